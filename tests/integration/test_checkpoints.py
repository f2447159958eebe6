# ruff: noqa: ASYNC240 - a test may look at a file while it does nothing else
"""The write-ahead log stays small; with an affected engine only we bring it in, while nobody
writes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import pykoclaw_acp
from pykoclaw_acp.store import checkpoints
from pykoclaw_acp.store.connection import LOCK_WAIT
from pykoclaw_acp.store.database import Database, NewEvent, Unit
from pykoclaw_acp.store.engine import Engine
from pykoclaw_acp.store.sqlite import sqlite3
from tests.databases import on_writer, opened
from tests.integration.rows import NEW_SESSION, SESSION, create
from tests.statements import watched
from tests.waiting import eventually, running

PAGE = 4096
STEP_BYTES = (
    4 * checkpoints.STEP * PAGE
)  # a step is an estimate, and what comes meanwhile is written behind it


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "pykoclaw.db"
    create(made, "WAL")
    return made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for seconds in life waits for an instant here."""
    monkeypatch.setattr(checkpoints, "QUIET", 0.05)
    monkeypatch.setattr(checkpoints, "RETRY", 0.05)


@pytest.fixture
def never_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "QUIET", 1000)


@pytest.fixture(params=["affected", "as installed"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "affected":
        monkeypatch.setattr(
            "pykoclaw_acp.store.opening.ENGINE", Engine("sqlite3", (3, 40, 1), affected=True)
        )
    return str(request.param)


@pytest.fixture
def affected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pykoclaw_acp.store.opening.ENGINE", Engine("sqlite3", (3, 40, 1), affected=True)
    )


@pytest.fixture
def other(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program, which is given a time to come: it is connected, and does nothing."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("SELECT count(*) FROM conversations").fetchone()
        yield connection


def wal(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


async def write(database: Database, commits: int, size: int = 1000) -> None:
    for _ in range(commits):
        await database.commit(
            Unit(events=(NewEvent(SESSION, None, "text", json.dumps("x" * size)),))
        )


def logged(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM acp_log").fetchone()[0])


@pytest.mark.usefixtures("never_quiet", "other")
async def test_while_commits_go_on_the_log_stays_small(path: Path, engine: str) -> None:
    database = await opened(path)
    try:
        await database.commit(NEW_SESSION)
        largest = 0
        for _ in range(40):
            await write(database, 100)
            largest = max(largest, wal(path))
        assert largest < STEP_BYTES, "that is not what 4000 commits have written"
        await write(database, 10, 2_000_000)
        assert wal(path) < STEP_BYTES + 10 * 2_000_000
    finally:
        await database.close()
    assert logged(path) == 4010


@pytest.mark.usefixtures("quick", "other")
async def test_when_it_is_quiet_the_log_is_emptied(path: Path, engine: str) -> None:
    database = await opened(path)
    try:
        for commits in (1, 20):
            await database.commit(NEW_SESSION) if commits == 1 else await write(database, commits)
            assert wal(path) > 0
            await eventually(lambda: wal(path) == 0)
        assert logged(path) == 20
    finally:
        await database.close()


@pytest.mark.usefixtures("quick", "other", "affected")
async def test_earlier_daemons_log_is_checkpointed_without_commit(
    path: Path, other: sqlite3.Connection
) -> None:
    other.execute("PRAGMA wal_autocheckpoint=0")
    other.execute("UPDATE conversations SET cwd = 'left'")
    before = wal(path)
    assert before > 0
    database = await opened(path)
    try:
        await eventually(lambda: wal(path) == 0)
    finally:
        await database.close()


@pytest.mark.usefixtures("quick")
async def test_reader_holds_wal_until_it_leaves(
    path: Path, engine: str, other: sqlite3.Connection
) -> None:
    database = await opened(path)
    try:
        await database.commit(NEW_SESSION)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM acp_log").fetchone()
        await write(database, 2000)
        kept = wal(path)
        assert kept > 2000 * 1000
        assert other.execute("SELECT count(*) FROM acp_log").fetchone() == (0,), (
            "it sees what it saw"
        )
        await write(database, 10)
        other.execute("ROLLBACK")
        await eventually(lambda: wal(path) == 0)
        await write(database, 5)
        assert wal(path) < kept / 10
    finally:
        await database.close()
    assert logged(path) == 2015


@pytest.mark.usefixtures("quick", "affected")
async def test_nothing_is_brought_in_while_another_program_writes(
    path: Path, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    guard = watched(monkeypatch, checkpoints)
    database = await opened(path)
    try:
        await database.commit(NEW_SESSION)
        await eventually(lambda: wal(path) == 0)
        await write(database, 3)
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE conversations SET cwd = 'x'")
        untouched = path.read_bytes()
        guard.before = lambda _, sql, __: looks.append(sql)
        await eventually(lambda: len(looks) >= 3)
        assert path.read_bytes() == untouched
        other.execute("COMMIT")
        await eventually(lambda: wal(path) == 0)
        assert path.read_bytes() != untouched
    finally:
        await database.close()


@pytest.mark.usefixtures("affected")
async def test_nobody_can_write_during_a_checkpoint_of_ours(
    path: Path, other: sqlite3.Connection
) -> None:
    """The statement that makes it is traced: another program is refused the lock at that moment."""
    other.execute("PRAGMA busy_timeout=0")
    refused: list[str] = []

    def during(statement: str) -> None:
        if "PASSIVE" in statement:
            try:
                other.execute("BEGIN IMMEDIATE")
                other.execute("ROLLBACK")
                refused.append("nobody")
            except sqlite3.OperationalError as error:
                refused.append(str(error))

    database = await opened(path)
    try:
        await database.commit(NEW_SESSION)
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("PRAGMA busy_timeout=0")
            await on_writer(database, lambda connection: connection.set_trace_callback(during))
            await eventually(lambda: refused)
            await on_writer(database, lambda connection: connection.set_trace_callback(None))
    finally:
        await database.close()
    assert refused == ["database is locked"]


@pytest.mark.usefixtures("quick", "other")
async def test_writer_lock_timeout_is_unchanged_by_checkpoint(path: Path, engine: str) -> None:
    database = await opened(path)
    try:
        await database.commit(NEW_SESSION)
        await eventually(lambda: wal(path) == 0)
        (timeout,) = await on_writer(
            database, lambda c: c.execute("PRAGMA busy_timeout").fetchone()
        )
        assert timeout == LOCK_WAIT * 1000
    finally:
        await database.close()


@pytest.mark.usefixtures("quick", "affected")
async def test_file_in_rollback_mode_has_checkpoints_once_wal(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    database = await opened(path)
    try:
        await database.commit(NEW_SESSION)
        await eventually(lambda: not running("checkpoints"))
        assert sorted(os.listdir(tmp_path)) == ["new.db"]
        with closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA journal_mode=WAL")
            await write(database, 5)
            assert wal(path) > 0
            await eventually(lambda: wal(path) == 0)
    finally:
        await database.close()
    assert logged(path) == 5


REAL = """
import asyncio, sys
sys.modules["pysqlite3"] = None
from pathlib import Path
import sqlite3
from pykoclaw_acp.store import checkpoints, engine
from pykoclaw_acp.store.database import Database, NewEvent, Statement, Unit
assert engine.install().name == "sqlite3"
checkpoints.QUIET = 1000
path = Path(sys.argv[1])

async def main():
    database = await Database.open(path)
    new = "INSERT INTO acp_sessions (acp_session_id, conversation_name, created_at, updated_at) VALUES ('s', 'c', 0, 0)"
    await database.commit(Unit((Statement(new),)))
    largest = 0
    for _ in range(12000):
        await database.commit(Unit(events=(NewEvent("s", None, "text", '"12345678"'),)))
        largest = max(largest, path.with_name("pykoclaw.db-wal").stat().st_size)
    print(engine.install().affected, database.journal_mode.own_checkpoints, largest)
    await database.close()

asyncio.run(main())
"""


@pytest.mark.long
def test_twelve_thousand_deltas_leave_a_small_log(path: Path, other: sqlite3.Connection) -> None:
    """On its own SQLite, which is affected where it is older than 3.51.3: 90 MB before."""
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    root = Path(pykoclaw_acp.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", REAL, str(path)],
        env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    affected, own, largest = done.stdout.split()
    assert affected == own
    assert int(largest) < STEP_BYTES
    assert logged(path) == 12000
