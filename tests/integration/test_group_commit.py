"""Group commit through the open database: order, cancelled callers, other processes,
and SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

import pykoclaw_acp
from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.store.database import Database, NewEvent, Statement, Unit
from pykoclaw_acp.store.sqlite import sqlite3
from tests.databases import on_writer, opened
from tests.waiting import not_within

CREATE = "INSERT INTO acp_sessions (acp_session_id, conversation_name, created_at, updated_at) VALUES (?, 'c', 0, 0)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = await opened(path)
    await database.commit(
        Unit(tuple(Statement(CREATE, (session,)) for session in ("s0", "s1", "s2")))
    )
    yield database
    await database.close()


def unit(session: str, payload: str = "{}", *, durable: bool = False) -> Unit:
    return Unit(events=(NewEvent(session, None, "text", payload),), durable=durable)


async def assert_gap_free(database: Database) -> None:
    rows = await database.read(
        "SELECT acp_session_id, count(seq), coalesce(max(seq), 0), coalesce(min(seq), 1) "
        "FROM acp_sessions LEFT JOIN acp_log USING (log_key) GROUP BY 1"
    )
    assert [row for row in rows if not (row[1] == row[2] and row[3] == 1)] == []


async def test_units_are_committed_in_call_order(database: Database) -> None:
    units = [unit(f"s{number % 3}", str(number), durable=number % 7 == 0) for number in range(300)]
    seqs = await asyncio.gather(*(database.commit(each) for each in units))
    assert seqs == [[number // 3 + 1] for number in range(300)]
    rows = await database.read(
        "SELECT acp_session_id, seq, CAST(payload AS INTEGER) FROM acp_log JOIN acp_sessions USING (log_key) ORDER BY 3"
    )
    assert rows == [(f"s{number % 3}", number // 3 + 1, number) for number in range(300)]
    await assert_gap_free(database)


async def test_each_caller_gets_its_own_outcome(database: Database) -> None:
    outcomes = await asyncio.gather(
        database.commit(unit("s1")),
        database.commit(unit("nobody")),
        database.commit(Unit((Statement(CREATE, ("s1",)),))),
        database.commit(Unit((Statement("DELETE FROM acp_sessions", rows=99),))),
        database.commit(unit("s1")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [list, Conflict, RowRefused, Conflict, list]
    assert [outcomes[0], outcomes[4]] == [[1], [2]]
    await assert_gap_free(database)


async def test_a_cancelled_caller_changes_nothing_for_anyone(database: Database) -> None:
    choice = random.Random(7)
    for _ in range(20):
        callers = [
            asyncio.create_task(database.commit(unit(choice.choice(["s0", "s1"]))))
            for _ in range(20)
        ]
        callers.append(
            asyncio.create_task(database.commit(unit("nobody")))
        )  # its error has nobody to hear it
        for _ in range(choice.randrange(4)):
            await asyncio.sleep(0)
        for caller in choice.sample(callers, 10):
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        last = await database.commit(unit("s2"))
    assert last == [20]
    # All but those that were cancelled before they had begun to run are there.
    await assert_gap_free(database)


async def test_unit_is_committed_although_caller_was_cancelled(database: Database) -> None:
    for _ in range(10):
        caller = asyncio.create_task(database.commit(unit("s1")))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
    assert await database.commit(unit("s1")) == [11]


def start(code: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, "PYTHONPATH": str(Path(pykoclaw_acp.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


HOLD_UNTIL_TOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("INSERT INTO conversations (name, created_at) VALUES ('wa-1', '2025')")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
connection.close()
"""


async def test_commit_waits_for_other_process_but_reads_proceed(
    database: Database, path: Path
) -> None:
    with start(HOLD_UNTIL_TOLD, path) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "locked\n"
        commits = [asyncio.create_task(database.commit(unit("s1"))) for _ in range(10)]
        assert await database.read("SELECT count(*) FROM conversations") == [(0,)]
        await not_within(lambda: any(commit.done() for commit in commits))
        holder.stdin.write("go on\n")
        holder.stdin.flush()
        assert await asyncio.gather(*commits) == [[seq] for seq in range(1, 11)]
    assert await database.read("SELECT name FROM conversations") == [("wa-1",)]
    await assert_gap_free(database)


WRITE_FOR_EVER = """
import asyncio, pathlib, sys
from pykoclaw_acp.store.database import Database, NewEvent, Unit
async def write(database, session):
    while True:
        events = (NewEvent(session, None, "text", "{}"), NewEvent(session, None, "text", "{}"))
        for seq in await database.commit(Unit(events=events)):
            print(session, seq, flush=True)
async def main():
    database = await Database.open(pathlib.Path(sys.argv[1]))
    await asyncio.gather(*(write(database, f"s{number}") for number in (0, 1, 2) for _ in range(3)))
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "lines", [50, *(pytest.param(lines, marks=pytest.mark.long) for lines in (1, 400))]
)
def test_sigkill_loses_nothing_that_was_acknowledged(path: Path, lines: int) -> None:
    async def create() -> None:
        database = await opened(path)
        await database.commit(
            Unit(tuple(Statement(CREATE, (session,)) for session in ("s0", "s1", "s2")))
        )
        await database.close()

    async def look() -> None:
        database = await opened(path)
        try:
            await assert_gap_free(database)
            assert await database.read(
                "SELECT count(*) FROM acp_log WHERE seq % 2 = 0"
            ) == await database.read("SELECT count(*) FROM acp_log WHERE seq % 2 = 1")
            rows = await database.read(
                "SELECT acp_session_id, seq FROM acp_log JOIN acp_sessions USING (log_key)"
            )
            present = {tuple(row) for row in rows}
            assert acknowledged <= present
            last = max((seq for session, seq in present if session == "s1"), default=0)
            assert await database.commit(unit("s1")) == [last + 1]
        finally:
            await database.close()

    asyncio.run(create())
    acknowledged = set()
    for _ in range(2):
        with start(WRITE_FOR_EVER, path) as writer:
            assert writer.stdout is not None
            output = [writer.stdout.readline() for _ in range(lines)]
            writer.kill()
            output += writer.stdout.read().splitlines(keepends=True)
        for line in output:
            if line.endswith("\n"):
                session, seq = line.split()
                acknowledged.add((session, int(seq)))
        assert len(acknowledged) >= lines
    asyncio.run(look())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# --- the watchdog's question


async def test_writer_answers_while_idle_and_while_busy(database: Database) -> None:
    await asyncio.wait_for(database.probe(), 30)
    release = threading.Event()
    working = [asyncio.create_task(database.commit(unit("s1"))) for _ in range(10)]
    holding = asyncio.create_task(on_writer(database, lambda _: release.wait(60)))
    await asyncio.sleep(0)  # the first unit is a batch of its own, and the rest is held behind it
    await asyncio.wait_for(database.probe(), 30)
    await not_within(working[-1].done)
    release.set()
    await asyncio.gather(holding, *working)
    assert await database.read("SELECT count(*) FROM acp_log") == [(10,)]


async def test_a_lock_of_another_process_is_an_answer(database: Database, path: Path) -> None:
    await on_writer(
        database, lambda connection: connection.execute("PRAGMA busy_timeout=50").close()
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        await asyncio.wait_for(database.probe(), 30)


async def test_a_writer_that_hangs_does_not_answer(database: Database) -> None:
    release = threading.Event()
    hanging = asyncio.create_task(on_writer(database, lambda _: release.wait(60)))
    await asyncio.sleep(0)
    probing = asyncio.create_task(database.probe())
    await not_within(probing.done)
    release.set()
    await asyncio.gather(hanging, probing)
    await asyncio.wait_for(database.probe(), 30)
