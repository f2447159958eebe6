"""Forks on a real database: whole or not at all, with the log of their source up to their place."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pykoclaw_acp
from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.frames import TurnStarted
from pykoclaw_acp.errors import InvalidParams, InvalidRequest, SessionNotFound, StoreUnavailable
from pykoclaw_acp.model.branches import Branch, Fork, ForkedAt, ForkPoint, Memory
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import Plan, PlanEntry, TitleChanged, ToolEnded, ToolStarted
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import Outcome, Turn, TurnState
from pykoclaw_acp.sessions.rewinding import Rewinding
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import deletion, forking
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.journal.branches import SqlBranchStore
from pykoclaw_acp.store.session_journal import SessionJournal
from tests.integration.rig import Rig, hanging, rig
from tests.waiting import eventually, not_within, running

TABLES = ("acp_log", "acp_turns", "acp_transcript_turns", "acp_notes", "acp_branches")


async def fork(r: Rig, source: Session, **more: Any) -> tuple[Session, ForkedAt]:
    return await r.sessions.forks.fork(source, "/", (), (), **more)


async def branch_of(r: Rig, made: Session) -> Branch:
    query = "SELECT claude_session_id, last_uuid FROM acp_branches WHERE acp_session_id = ?"
    ((source, at),) = await r.database.read(query, (made.id,))
    return Branch(source, at)


async def words(r: Rig, session: Session) -> list[Any]:
    return [one.event for one in await r.journal.read(session.id, 0, 1000)]


async def test_fork_is_asked_what_source_always_allowed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        await r.run(source, "say 1")
        allowed = Statement(
            "INSERT INTO acp_session_rules VALUES (?, ?, ?, ?)", (source.id, "Bash(make)", "cli", 1)
        )
        await r.database.commit(Unit(statements=(allowed,)))
        made, _ = await fork(r, source)
        await r.run(made, "say 1")
        assert not r.launcher.launched[-1].spec.options.rules
        await r.sessions.delete(source)
        assert await r.database.read("SELECT * FROM acp_session_rules") == []


async def test_forks_mark_survives_long_title(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        await r.run(source, "say 1")
        await r.sessions.catalogue.set_title(source.id, "word " * 40)
        made, _ = await fork(r, source)
        title = made.record.title
        assert title is not None
        assert len(title) == 80
        assert title.endswith("… (fork)")


async def test_fork_has_sources_log_up_to_running_turn(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        source, turn, worker = await hanging(r)
        assert (await fork(r, source))[1] == ForkedAt(0, complete=False)
        worker.say(worker.ended(turn.turn_id))
        await turn.over()
        await r.run(source, "say 3")
        before = await words(r, source)
        running = await r.prompt(source, "hang")
        await eventually(lambda: running.state != "queued")
        made, point = await fork(r, source)
        assert not point.complete
        said = await words(r, made)
        assert said[: len(before)] == before
        assert "a turn was running" in said[-1].text
        assert [one.title for one in said if isinstance(one, TitleChanged)][-1].endswith("(fork)")
        await r.run(made, "say 1")
        branch = r.launcher.launched[-1].spec.branch
        assert branch is not None
        assert branch.source == source.id
        assert branch.at is not None
        assert branch.at.startswith("end-")
        await r.run(made, "say 1")
        r.pool.retire(made.id)
        await r.run(made, "say 1")
        assert r.launcher.launched[-1].spec.branch is None, "it has a Claude session of its own"
        assert r.launcher.launched[-1].spec.resume_session_id == made.id
        assert (await words(r, source))[: len(before)] == before
        source.cancel()
        await source.idle()


async def test_fork_ends_with_the_turn_of_the_message(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        for count in (1, 2, 3):
            await r.run(source, f"say {count}")
        log = await r.journal.read(source.id, 0, 1000)
        last = next(one for one in log if one.turn_id == log[-1].turn_id)
        asked: list[Any] = [one.event for one in log if getattr(one.event, "content", None)]
        made, at = await fork(r, source, message_id=asked[1].message_id)
        assert at.upto < last.seq
        assert await branch_of(r, made) == Branch(source.id, f"end-{asked[1].message_id}")
        ids = {one.message_id for one in await words(r, made) if hasattr(one, "content")}
        assert ids == {one.message_id for one in asked[:2]}
        again, _ = await fork(r, made, message_id=asked[0].message_id)
        assert await branch_of(r, again) == Branch(source.id, f"end-{asked[0].message_id}"), (
            "in a fork, too"
        )
        with pytest.raises(InvalidParams):
            await fork(r, source, message_id="none")
        running = await r.prompt(source, "hang")
        await eventually(lambda: running.state != "queued")
        with pytest.raises(InvalidRequest, match="still runs"):
            await fork(r, source, message_id=running.turn_id)
        assert again.id != made.id
        source.cancel()
        await source.idle()


async def test_request_that_comes_again_makes_one_fork(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        await r.run(source, "say 1")
        made = await asyncio.gather(*(fork(r, source, request_key="f:1") for _ in range(3)))
        assert len({one.id for one, _ in made}) == 1
        ((count,),) = await r.database.read("SELECT COUNT(*) FROM acp_sessions")
        assert count == 2


async def test_request_of_lost_caller_makes_one_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection broke while the session was copied."""
    copies, is_copied = asyncio.Event(), asyncio.Event()
    copy = forking.copy_rows

    async def slow(*given: Any) -> None:
        copies.set()
        await is_copied.wait()
        await copy(*given)

    async with rig(tmp_path) as r:
        source = await r.session()
        await r.run(source, "say 1")
        monkeypatch.setattr(forking, "copy_rows", slow)
        lost = asyncio.create_task(fork(r, source, request_key="f:1"))
        await copies.wait()
        lost.cancel()
        again = asyncio.create_task(fork(r, source, request_key="f:1"))
        await not_within(again.done, 0.2)
        is_copied.set()
        made, _ = await again
        rows = await r.database.read("SELECT acp_session_id FROM acp_sessions")
        assert {session_id for (session_id,) in rows} == {source.id, made.id}


async def test_repeated_request_gets_same_fork_whatever_the_source(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        turn = await r.prompt(source, "say 1")
        await source.idle()
        wanted = {"message_id": turn.turn_id, "request_key": "f:1"}
        made, at = await fork(r, source, **wanted)
        rewinding = Rewinding(SqlBranchStore(r.database), r.pool)
        await rewinding.rewind(source, turn.turn_id, files=False, dry=False)
        with pytest.raises(InvalidRequest, match="was rewound"):
            await fork(r, source, message_id=turn.turn_id, request_key="f:2")

        again, same = await fork(r, source, **wanted)
        assert (again.id, same) == (made.id, at)


async def test_sources_open_calls_end_in_fork(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        await source.log.tell([ToolStarted("tool", "Bash", "Bash", "execute")])
        made, _ = await fork(r, source)
        said = [(one.tool_call_id, getattr(one, "status", None)) for one in await words(r, made)]
        assert said == [("tool", None), ("tool", "failed")]
        ended = (await words(r, made))[-1]
        assert ended.reason == "It goes on in the session that this one was forked from."


async def test_fork_has_no_tasks_of_its_source(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        turn = await r.prompt(source, "say 1")
        await source.idle()
        await r.run(source, "say 1")
        await source.log.tell([Plan((PlanEntry("Do it", "pending", "1"),))])
        made, _ = await fork(r, source)
        assert [one for one in await words(r, made) if isinstance(one, Plan)][-1] == Plan(())
        await r.run(made, "say 1")
        assert r.launcher.launched[-1].spec.options.plan == ()
        early, _ = await fork(r, source, message_id=turn.turn_id)
        assert not any(isinstance(one, Plan) for one in await words(r, early))


async def test_long_begun_call_ends_in_fork(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        await r.run(source, "say 1")
        await source.log.tell([ToolStarted("tool", "Bash", "Bash", "execute")])
        for n in range(300):
            await source.log.tell([ToolStarted(f"t{n}", "Read", "Read", "read")])
        await source.log.tell([ToolEnded(f"t{n}", "completed") for n in range(300)])
        made, _ = await fork(r, source)
        ends = [one for one in await words(r, made) if isinstance(one, ToolEnded)]
        assert [one.tool_call_id for one in ends if one.status == "failed"] == ["tool"]


async def test_fork_of_meanwhile_deleted_session_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        await r.run(source, "say 3")
        read = r.database.read

        async def meanwhile(*given: Any) -> list[tuple[Any, ...]]:
            monkeypatch.setattr(r.database, "read", read)
            await r.sessions.delete(source)
            return await read(*given)

        def reached(name: str) -> None:
            if name == "fork_piece_copied" and r.database.read == read:
                monkeypatch.setattr(crash_points, "reached", lambda _: None)
                monkeypatch.setattr(r.database, "read", meanwhile)

        monkeypatch.setattr(crash_points, "reached", reached)
        with pytest.raises(SessionNotFound):
            await fork(r, source)
        monkeypatch.undo()
        await eventually(lambda: not running("GivenUp._delete"))
        for table in TABLES:
            assert await r.database.read(f"SELECT * FROM {table}") == []
        ((names,),) = await r.database.read("SELECT COUNT(*) FROM conversations")
        assert names == 1


async def test_fork_that_fails_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while what it has left cannot be deleted, as on a full disk; what it is, nobody sees."""

    async def full(*_: object) -> None:
        raise StoreUnavailable(DatabaseState.BLOCKED, "The disk is full.")

    cleared = asyncio.Event()
    monkeypatch.setattr(forking, "copy_rows", full)
    monkeypatch.setattr(deletion, "give_up", lambda *_: cleared.wait())
    async with rig(tmp_path) as r:
        source = await r.session()
        await r.run(source, "say 1")
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(fork(r, source), 60)
        ((left,),) = await r.database.read(
            "SELECT acp_session_id FROM acp_sessions WHERE deleted_at = 0"
        )
        assert await r.sessions.find(left) is None
        cleared.set()


async def test_fork_gets_notes_its_source_still_awaits(tmp_path: Path) -> None:
    """Also if the prompt that carried it has not reached Claude."""
    async with rig(tmp_path) as r:
        source = await r.session()
        await r.run(source, "say 1")
        for number in (1, 2):
            await r.journal.add_note(source.id, Note(f"note {number}", f"News {number}."))
            turn = Turn(f"turn {number}", source.id, [{"type": "text", "text": "say 1"}])
            await r.journal.accept(turn)
            ((epoch,),) = await r.database.read("SELECT epoch FROM acp_sessions")
            note = Note(f"note {number}", f"News {number}.")
            await r.journal.dispatch(turn, epoch, [], [note])
            if number == 1:
                started = TurnStarted(epoch=epoch, n=1, turn_id=turn.turn_id)
                await r.journal.record(source.id, epoch, [started], {})
            ended = Outcome(TurnState.CANCELLED, "cancelled")
            await r.journal.finish(source.id, turn.turn_id, ended, [])
        made, _ = await fork(r, source)
        pending = await r.journal.pending_notes(made.id)
        assert [one.text for one in pending] == ["News 2."]


FORK = """
import asyncio, pathlib, sys
from pykoclaw_acp import crash_points
from pykoclaw_acp.model.branches import Branch, Fork, ForkPoint, Memory
from pykoclaw_acp.store import pieces
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.journal.branches import SqlBranchStore
async def main():
    database = await Database.open(pathlib.Path(sys.argv[1]))
    pieces.LARGEST = pieces.SMALLEST = 1
    crash_points.arm(sys.argv[3])
    point = ForkPoint(6, Memory(Branch("claude", "uuid")))
    await SqlBranchStore(database).fork(
        Fork("fork", "acp-fork", sys.argv[2], "/", (), point, (), at_end=True, request_key="f:1")
    )
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "step", ["fork_begun", "fork_piece_copied", "fork_piece_copied:4", "fork_shown"]
)
async def test_killed_server_leaves_a_whole_fork_or_none(tmp_path: Path, step: str) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        for _ in range(2):
            await r.run(source, "say 2")
        known = await r.journal.read(source.id, 0, 100)
    root = os.fspath(Path(pykoclaw_acp.__file__).parents[1])
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FORK, os.fspath(tmp_path / "pykoclaw.db"), source.id, step,
        env={**os.environ, "PYTHONPATH": root}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert await done.wait() == -signal.SIGKILL
    database = await Database.open(tmp_path / "pykoclaw.db")
    try:
        await deletion.purge(database)  # of another session, in a daemon that still makes the fork
        await forking.abandon(database)
        await deletion.purge(database)
        journal = SessionJournal(database)
        found = await journal.find("fork")
        if step == "fork_shown":
            assert found is not None
            assert found.branch == Branch("claude", "uuid")
            assert await journal.find_created("f:1") == "fork"
            copied = await journal.read("fork", 0, 100)
            assert [(one.seq, one.event) for one in copied] == [
                (one.seq, one.event) for one in known if one.seq <= 6
            ]
        else:
            assert found is None
            assert await journal.find_created("f:1") is None
            for table, column in (
                ("acp_turns", "acp_session_id"),
                ("acp_transcript_turns", "acp_session_id"),
            ):
                sql = f"SELECT 1 FROM {table} WHERE {column} = 'fork'"
                assert await database.read(sql) == []
            logs = await database.read("SELECT DISTINCT log_key FROM acp_log")
            assert len(logs) == 1
        fork = Fork(
            "other", "acp-other", source.id, "/", (), ForkPoint(6, Memory(None)), (), at_end=True
        )
        await SqlBranchStore(database).fork(fork)
        assert await journal.find("other") is not None
    finally:
        await database.close()


async def test_fork_in_the_making_is_not_deleted(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        await r.run(source, "say 3")
        hidden = Statement("UPDATE acp_sessions SET deleted_at = 0", ())
        await r.database.commit(Unit(statements=(hidden,)))
        await deletion.purge(r.database)
        assert await r.database.read("SELECT 1 FROM acp_log LIMIT 1") == [(1,)]
