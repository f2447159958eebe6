"""Old logs: read, continued and converted, in either form and in between, whatever cuts the
conversion off.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import pykoclaw_acp
from pykoclaw_acp import crash_points
from pykoclaw_acp.commands import status as status_command
from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import (
    Event,
    Plan,
    PlanEntry,
    Text,
    Thinking,
    ToolEnded,
    ToolStarted,
    Usage,
    UserMessage,
    encode,
)
from pykoclaw_acp.model.log import Logged, TurnsPlace
from pykoclaw_acp.server import side_tasks
from pykoclaw_acp.sessions.retention import Pruner
from pykoclaw_acp.store import (
    conversion,
    deletion,
    events,
    imports,
    pieces,
    preflight,
    turns,
)
from pykoclaw_acp.store.conversion import Conversion
from pykoclaw_acp.store.database import Statement, Unit
from pykoclaw_acp.store.journal.branches import SqlBranchStore
from pykoclaw_acp.store.open_file import OpenFile
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.sqlite import sqlite3
from tests import damaged
from tests.databases import on_writer
from tests.folds import seen
from tests.integration.callers import caller
from tests.integration.rig import Rig, rig
from tests.integration.wires import client, prompt
from tests.waiting import eventually

TURNS = 4


def turn_of(number: int) -> list[Event]:
    call = f"tool-{number}"
    return [
        UserMessage(f"turn-{number}", {"type": "text", "text": "hi"}),
        *[Thinking(f"m{number}-0", "hm ")] * 4,
        *[Text(f"m{number}-1", f"{number}a ")] * 5,
        ToolStarted(call, "Bash", "ls", "execute"),
        ToolEnded(call, "completed"),
        *[Text(f"m{number}-2", f"{number}b ")] * 5,
        Usage(number, 9),
    ]


OLD = [event for number in range(TURNS) for event in turn_of(number)]


async def make_old(r: Rig, session: str, said: list[Event] = OLD) -> None:
    """A log as the version before has written it; its turns are `<session>/turn-N`."""

    def write(connection: sqlite3.Connection) -> None:
        per_turn = len(turn_of(0))
        for number in range(TURNS):
            connection.execute(
                "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, stop_reason, epoch, created_at,"
                " ended_at) VALUES (?, ?, 'client', '[]', 'done', 'end_turn', 1, ?, ?)",
                (f"{session}/turn-{number}", session, number, number),
            )
        connection.executemany(
            "INSERT INTO acp_events (acp_session_id, seq, turn_id, kind, payload, created_at)"
            " VALUES (?, ?, ?, ?, ?, 1)",
            [
                (
                    session,
                    seq,
                    f"{session}/turn-{(seq - 1) // per_turn}",
                    event.__struct_config__.tag,
                    encode(event),
                )
                for seq, event in enumerate(said, 1)
            ],
        )
        connection.execute(
            "UPDATE acp_sessions SET last_seq = ?, prompted_at = 1 WHERE acp_session_id = ?",
            (len(said), session),
        )

    await on_writer(r.database, write)


async def old_session(r: Rig) -> str:
    session = (await r.session()).id
    await make_old(r, session)
    r.sessions.live.remove(session)
    return session


def converter(r: Rig) -> Conversion:
    return Conversion(r.database, lambda: True)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LARGEST", 7)
    monkeypatch.setattr(pieces, "SMALLEST", 7)


async def read(r: Rig, session: str, after: int) -> list[Logged]:
    return await SessionJournal(r.database).read(session, after, 10_000)


async def check(r: Rig, session: str, told: list[Event]) -> None:
    """From every place the rest is told, once."""
    for after in range(len(told) + 1):
        rest = await read(r, session, after)
        assert [seq for one in rest for seq in range(one.first, one.seq + 1)] == list(
            range(after + 1, len(told) + 1)
        )
        assert seen([*told[:after], *(one.event for one in rest)]) == seen(told)


async def old_rows(r: Rig) -> int:
    return int((await r.database.read("SELECT COUNT(*) FROM acp_events"))[0][0])


async def test_log_reads_same_before_during_and_after_conversion(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await old_session(r)
        both = converter(r)
        while True:
            await check(r, session, OLD)
            assert (await SessionJournal(r.database).find(session)).last_seq == len(OLD)  # type: ignore[union-attr]
            if not await both.step(session):
                break
        assert await old_rows(r) == 0
        ids = [one.turn_id for one in await read(r, session, 0)]
        assert list(dict.fromkeys(ids)) == [f"{session}/turn-{number}" for number in range(TURNS)]
        rows = await r.database.read(
            "SELECT turn_id, position, first_seq, last_seq FROM acp_turns ORDER BY 2"
        )
        length = len(turn_of(0))
        assert rows == [
            (f"{session}/turn-{number}", number + 1, number * length + 1, (number + 1) * length)
            for number in range(TURNS)
        ]


async def test_session_is_usable_with_log_in_both_forms(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await old_session(r)
        both = converter(r)
        async with client(r) as wire:
            for number in range(3):
                await both.step(session)
                await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
                wire.lines.clear()
                answer = await wire.call("session/prompt", **prompt(session, "say 3"))
                assert answer["result"]["stopReason"] == "end_turn"
                wire.lines.clear()
                await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
                assert wire.seqs() == sorted(set(wire.seqs()))
                assert wire.text().endswith("3b " * 5 + "0 1 2 " * (number + 1))
        while await both.step(session):
            pass
        everything = [one.event for one in await read(r, session, 0)]
        assert seen(everything)[0][:-1] == seen([*OLD, *everything[-7:]])[0][:-1]
        live = r.sessions.live[session]
        assert await r.seqs(live) == list(range(1, live.last_seq + 1))
        positions = [
            one
            for (one,) in await r.database.read("SELECT position FROM acp_turns ORDER BY position")
        ]
        assert positions == list(range(1, TURNS + 4))


async def test_previous_version_turn_continues_in_new_form(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await old_session(r)
        turn = f"{session}/turn-{TURNS - 1}"
        running = "UPDATE acp_turns SET state = 'running', position = ? WHERE turn_id = ?"
        await r.database.commit(Unit((Statement(running, (TURNS, turn)),)))
        more: list[Event] = [Text("m3-3", "and "), Text("m3-3", "on")]
        await r.database.commit(Unit(events=events.rows(session, turn, more)))
        both = converter(r)
        while True:
            await check(r, session, [*OLD, *more])
            (left,) = await turns.unfinished(r.database)
            assert left.turn.spoke
            assert list(await events.open_tools(r.database, session, 1)) == []
            if not await both.step(session):
                break


async def places(r: Rig, session: str) -> list[int]:
    return [seq for one in await read(r, session, 0) for seq in range(one.first, one.seq + 1)]


async def test_fork_during_conversion_has_whole_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await old_session(r)
        both, read, steps = converter(r), r.database.read, asyncio.Lock()

        async def meanwhile(
            sql: str, parameters: tuple[Any, ...] = (), size: int | None = None
        ) -> list[tuple[Any, ...]]:
            rows = await read(sql, parameters, size)
            if not rows and "ORDER BY" in sql and not steps.locked():  # of a table that is copied
                async with steps:
                    await both.step(session)
            return rows

        monkeypatch.setattr(r.database, "read", meanwhile)
        made, _ = await r.sessions.forks.fork(await r.sessions.get(session), "/", (), ())
        assert (await places(r, made.id))[: len(OLD)] == list(range(1, len(OLD) + 1))
        await check(r, session, OLD)


@pytest.mark.parametrize("steps", [0, 2, 99])
async def test_open_calls_are_those_of_the_whole_log(tmp_path: Path, steps: int) -> None:
    """The second piece ends between a call and its end."""
    hangs = ToolStarted("hangs", "Bash", "sleep", "execute")
    told = [*OLD[:-2], Plan((PlanEntry("one", "pending"),)), hangs, Usage(1, 9)]
    async with rig(tmp_path) as r:
        session = (await r.session()).id
        await make_old(r, session, told)
        r.sessions.live.remove(session)
        for _ in range(steps):
            await converter(r).step(session)
        loaded = await r.sessions.get(session)
        assert [type(one.event) for one in await loaded.log.in_effect(len(told))] == [
            Plan,
            ToolStarted,
        ]
        assert list(await events.open_tools_upto(r.database, session, len(told))) == ["hangs"]
        assert await events.last_plan(r.database, session, None) == (PlanEntry("one", "pending"),)
        await loaded.log.close_lost()
        ends = [
            (one.event.tool_call_id, one.event.status)
            for one in await read(r, session, 0)
            if isinstance(one.event, ToolEnded)
        ]
        assert ends == [*((f"tool-{n}", "completed") for n in range(TURNS)), ("hangs", "failed")]


@pytest.mark.parametrize("steps", [0, 2])
async def test_messages_are_found_before_conversion(tmp_path: Path, steps: int) -> None:
    async with rig(tmp_path) as r:
        session = await old_session(r)
        for _ in range(steps):
            await converter(r).step(session)
        loaded = await r.sessions.get(session)
        store = SqlBranchStore(r.database)
        point = await store.point(loaded.record, loaded.last_seq, f"m{TURNS - 1}-2")
        assert point.upto == len(OLD)
        assert await old_rows(r) == 0


@pytest.mark.parametrize("steps", [0, 2])
async def test_newest_turns_begin_where_they_do(tmp_path: Path, steps: int) -> None:
    async with rig(tmp_path) as r:
        session = await old_session(r)
        dispatched = Statement("UPDATE acp_turns SET dispatched_at = 1")
        await r.database.commit(Unit((dispatched,)))
        for _ in range(steps):
            await converter(r).step(session)
        if not steps:  # and while nothing can be written, everything is shown
            r.database.condition.failed(DatabaseState.BLOCKED, "The disk is full.")
            assert await SessionJournal(r.database).last_turns(session, 1) == TurnsPlace(0, 0)
            r.database.condition.recovered()
        place = await SessionJournal(r.database).last_turns(session, 1)
        assert place == TurnsPlace(len(OLD) - len(turn_of(0)), TURNS - 1)


async def test_what_old_logs_imported_is_known(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await old_session(r)
        sourced = "UPDATE acp_events SET source_uuid = 'source-' || seq"
        await r.database.commit(Unit((Statement(sourced),)))
        await converter(r).step(session)
        asked = {"source-2", f"source-{len(OLD)}"}
        assert await imports.imported(r.database, session, [*asked, "source-other"]) == asked


async def test_session_deleted_or_pruned_during_conversion_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await old_session(r)
        both = converter(r)
        await both.step(session)
        commit = r.database.commit

        async def late(unit: Unit, *, patient: bool = False) -> list[int]:
            monkeypatch.setattr(r.database, "commit", commit)
            await deletion.delete(r.database, session)
            return await commit(unit, patient=patient)

        monkeypatch.setattr(r.database, "commit", late)
        running = asyncio.create_task(both.run())
        await asyncio.wait_for(running, 30)
        assert await r.database.read("SELECT COUNT(*) FROM acp_log") == [(0,)]
        assert await old_rows(r) == 0


async def test_unused_old_session_is_pruned_without_seq_reuse(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await old_session(r)
        await converter(r).step(session)
        unused = "UPDATE acp_sessions SET prompted_at = NULL, used_clock = 0"
        await r.database.commit(Unit((Statement(unused),)))
        pruner = Pruner(r.sessions, SessionJournal(r.database), after=-1.0)
        assert await pruner.prune() == 0, "its log is not converted"
        await converter(r).run()
        assert await pruner.prune() == 1
        assert await read(r, session, 0) == []
        assert (await SessionJournal(r.database).find(session)).last_seq == len(OLD)  # type: ignore[union-attr]
        assert await r.database.commit(
            Unit(events=events.rows(session, None, [Text("m", "x")]))
        ) == [len(OLD) + 1]


async def test_conversion_runs_only_while_no_turn_runs(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        for _ in range(3):
            await old_session(r)
        busy = True
        both = Conversion(r.database, lambda: not busy)
        running = asyncio.create_task(both.run())
        await r.database.probe()
        assert await old_rows(r) == 3 * len(OLD)
        async with caller(r, tmp_path, both) as cli:
            shown = dict(status_command.facts(await cli.call("status")))
            assert shown["old logs"] == (
                f"0 of {3 * len(OLD)} events converted; it goes on while nothing runs"
            )
            busy = False
            await asyncio.wait_for(running, 30)
            assert await old_rows(r) == 0
            assert "old logs" not in dict(status_command.facts(await cli.call("status")))


def refuse(connection: sqlite3.Connection) -> None:
    """A row that no rule of the tables lets go."""
    connection.execute(
        "CREATE TRIGGER refuse BEFORE DELETE ON acp_events WHEN OLD.payload LIKE '%bad%'"
        " BEGIN SELECT RAISE(FAIL, 'no'); END"
    ).close()


def let(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TRIGGER refuse").close()


async def test_full_disk_delays_conversion_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "LOOK", 0.05)
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL

    def fail(_: OpenFile) -> None:
        raise full

    async with rig(tmp_path) as r:
        session = await old_session(r)
        both = converter(r)
        await both.step(session)
        with monkeypatch.context() as disk:
            disk.setattr(OpenFile, "check", fail)
            running = asyncio.create_task(both.run())
            await eventually(lambda: r.database.condition.state == DatabaseState.BLOCKED)
            assert both.progress is not None
            assert both.progress.left == await old_rows(r) == len(OLD) - 7
            await check(r, session, OLD)
        await asyncio.wait_for(running, 30)
        await check(r, session, OLD)
        assert await old_rows(r) == 0


@pytest.mark.parametrize(
    ("query", "code", "times"),
    [
        ("COUNT(*)", sqlite3.SQLITE_CORRUPT, 99),
        ("COUNT(*)", sqlite3.SQLITE_IOERR, 2),
        ("ORDER BY acp_session_id", sqlite3.SQLITE_IOERR, 2),
    ],
)
async def test_logs_are_converted_whatever_first_reads_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, code: int, times: int
) -> None:
    monkeypatch.setattr(side_tasks, "RETRY", 0.01)
    error = sqlite3.OperationalError("it cannot be read")
    error.sqlite_errorcode = code
    async with rig(tmp_path) as r:
        session = await old_session(r)
        read, left = r.database.read, times

        async def fail(sql: str, *more: Any) -> list[tuple[Any, ...]]:
            nonlocal left
            if query in sql and left:
                left -= 1
                raise StoreUnavailable(DatabaseState.BLOCKED, "It cannot be read.") from error
            return await read(sql, *more)

        with monkeypatch.context() as failing:
            failing.setattr(r.database, "read", fail)
            run = side_tasks.to_the_end(converter(r).run, "later", action="conversion_failed")
            await asyncio.wait_for(run, 30)
        await check(r, session, OLD)
        assert await old_rows(r) == 0


async def test_refused_log_is_passed_over_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "RETRY", 0.05)
    bad: list[Event] = [*OLD[:-1], Text("m", "bad")]
    async with rig(tmp_path) as r:
        sessions = sorted([(await r.session()).id for _ in range(2)])
        for session, said in zip(sessions, (bad, OLD), strict=True):
            await make_old(r, session, said)
            r.sessions.live.remove(session)
        await on_writer(r.database, refuse)
        with capture_logs() as told:
            running = asyncio.create_task(converter(r).run())

            async def other_is_converted() -> bool:
                return await left_of(r) == [(sessions[0],)]

            passed: bool = await eventually(other_is_converted)
            assert passed
            await on_writer(r.database, let)
            await asyncio.wait_for(running, 30)
        assert await old_rows(r) == 0
        for session, said in zip(sessions, (bad, OLD), strict=True):
            await check(r, session, said)
    assert [one["session"] for one in told if one["action"] == "conversion_delayed"] == sessions[:1]


async def left_of(r: Rig) -> list[tuple[Any, ...]]:
    return await r.database.read("SELECT DISTINCT acp_session_id FROM acp_events")


async def test_damaged_log_holds_up_no_other_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "RETRY", 0.05)
    long: list[Event] = [Text(f"m{at}", f"place {at}." + "a" * 600) for at in range(len(OLD))]
    async with rig(tmp_path) as r:
        sessions = sorted([(await r.session()).id for _ in range(2)])
        await make_old(r, sessions[0], long)
        await make_old(r, sessions[1])
    damaged.page_with(tmp_path / "pykoclaw.db", b"place 40.")
    monkeypatch.setattr(preflight, "FULL_CHECK_LIMIT", 0)  # as of a large database
    async with rig(tmp_path) as r:
        reads: list[str] = []
        read_one = r.database.read

        async def count(sql: str, *given: Any) -> list[tuple[Any, ...]]:
            reads.append(sql)
            return await read_one(sql, *given)

        async def other_is_converted() -> bool:
            sql = "SELECT 1 FROM acp_events WHERE acp_session_id = ? LIMIT 1"
            return not await read_one(sql, (sessions[1],))

        monkeypatch.setattr(r.database, "read", count)
        with capture_logs() as told:
            running = asyncio.create_task(converter(r).run())
            passed: bool = await eventually(other_is_converted)
            assert passed
            await check(r, sessions[1], OLD)
            before = len(reads)
            await eventually(lambda: len(reads) >= before + 4)  # it is tried again
            running.cancel()
            await asyncio.wait([running])
    delayed = [one["session"] for one in told if one["action"] == "conversion_delayed"]
    assert delayed == sessions[:1]
    assert len(reads) < 1000, "it never paused"


CONVERT = """
import asyncio, pathlib, sys
from pykoclaw_acp import crash_points
from pykoclaw_acp.store import conversion, pieces
from pykoclaw_acp.store.database import Database
async def main():
    database = await Database.open(pathlib.Path(sys.argv[1]))
    pieces.LARGEST = pieces.SMALLEST = 7
    crash_points.arm(sys.argv[2])
    await conversion.Conversion(database, lambda: True).run()
    await database.close()
asyncio.run(main())
"""


KILLS = [
    pytest.param(f"{step}:{number}", marks=() if number == 2 else pytest.mark.long)
    for step in crash_points.CONVERSION
    for number in (1, 2, 5)
]


@pytest.mark.long
@pytest.mark.parametrize("kill", KILLS)
async def test_kill_during_conversion_loses_nothing_next_daemon_continues(
    tmp_path: Path, kill: str
) -> None:
    async with rig(tmp_path) as r:
        sessions = [await old_session(r) for _ in range(2)]
    root = os.fspath(Path(pykoclaw_acp.__file__).parents[1])
    for expected in ({-9}, {-9, 0}, {-9, 0}):
        done = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CONVERT, os.fspath(tmp_path / "pykoclaw.db"), kill,
            env={**os.environ, "PYTHONPATH": root}, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        assert await done.wait() in expected
        with closing(sqlite3.connect(tmp_path / "pykoclaw.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        async with rig(tmp_path) as r:
            for session in sessions:
                await check(r, session, OLD)
    async with rig(tmp_path) as r:
        await asyncio.wait_for(converter(r).run(), 30)
        assert await old_rows(r) == 0
        for session in sessions:
            await check(r, session, OLD)
