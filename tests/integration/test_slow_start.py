"""A Claude that is slow to start: what clients are shown meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.sessions.early_starts import EarlyStarts
from pykoclaw_acp.sessions.turns import slow_start
from pykoclaw_acp.sessions.workspace_gate import WorkspaceGate
from tests.integration import trusting
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Client, Rig, rig
from tests.integration.wires import Wire, client, load, new, prompt
from tests.waiting import eventually, not_within, pass_loop_time, running


class Shown(Client):
    """Keeps what is no part of the log. It takes of both kinds when these are set."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.reads, self.reads_notes = asyncio.Event(), asyncio.Event()
        self.reads.set()
        self.reads_notes.set()

    async def deliver(self, session_id: str, logged: Logged) -> None:
        await self.reads.wait()
        await super().deliver(session_id, logged)

    async def show(self, session_id: str, message_id: str, text: str) -> None:
        await self.reads_notes.wait()
        self.notes.append(text.strip())


def shown(wire: Wire) -> list[str]:
    """What is no part of the log."""
    return [
        one["content"]["text"].strip()
        for one in wire.updates()
        if one.get("messageId", "").endswith("-start-shown")
    ]


async def launched(r: Rig) -> MemoryChannel:
    await eventually(lambda: r.launcher.launched)
    return r.launcher.launched[-1]


async def test_slow_start_is_shown_once_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_start, "WAIT", 0)
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other, client(r) as later:
        session = await new(wire)
        await load(other, session)
        r.launcher.slow = True
        call = wire.begin("session/prompt", **prompt(session, "say 1"))
        worker = await launched(r)
        await eventually(lambda: shown(wire) and shown(other))
        worker.ready()
        assert (await wire.answer(call))["result"]["stopReason"] == "end_turn"
        assert [shown(wire), shown(other)] == [[slow_start.STARTING]] * 2
        update = next(one for one in wire.updates() if one.get("messageId", "").endswith("-shown"))
        assert update["_meta"] == {"pykoclaw.dev/note": "note"}
        await load(later, session)
        assert shown(later) == []
        assert slow_start.STARTING not in later.text()


async def test_waiting_for_a_worker_is_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_start, "WAIT", 0)
    async with rig(tmp_path, max_workers=1) as r, client(r) as wire, client(r) as other:
        wire.begin("session/prompt", **prompt(await new(wire), "hang"))
        await eventually(lambda: r.launcher.launched and r.launcher.launched[0].prompts)
        other.begin("session/prompt", **prompt(await new(other), "say 1"))
        await eventually(lambda: shown(other) == [slow_start.NO_ROOM])


@pytest.mark.parametrize("ends", ["done", "cancelled"])
async def test_nothing_is_shown_of_turn_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr(slow_start, "WAIT", 0.5)
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        session = await new(wire)
        r.launcher.slow = ends == "cancelled"
        call = wire.begin("session/prompt", **prompt(session, "say 1"))
        await launched(r)
        if ends == "cancelled":
            wire.send({"method": "session/cancel", "params": {"sessionId": session}})
        await wire.answer(call)
        r.launcher.slow = True
        other.begin("session/prompt", **prompt(await new(other), "say 1"))
        await eventually(lambda: shown(other))  # its time began later
        assert shown(wire) == []


async def test_nothing_is_shown_below_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About trust in the directory, at which the early start still looks as the prompt comes."""
    looks, real = asyncio.Event(), WorkspaceGate.without_asking

    async def slow(self: WorkspaceGate, *given: Any) -> Any:
        await looks.wait()
        return await real(self, *given)

    monkeypatch.setattr(WorkspaceGate, "without_asking", slow)
    trusting.act(tmp_path, "touch done")
    async with trusting.rig(tmp_path) as r:
        w, follower = await trusting.Working.begin(r, tmp_path), Shown()
        w.session.subscribe(follower, 0)
        EarlyStarts(r.sessions.live, r.pool).begin(w.session)
        turn = await w.prompt()
        await eventually(lambda: w.session.early.awaited)
        looks.set()
        await w.asked()
        pass_loop_time(slow_start.WAIT)
        await w.answer(turn, "allow_once")
        assert follower.notes == []


async def test_nothing_is_shown_while_the_database_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That Claude has begun may be known later only."""
    monkeypatch.setattr(MemoryChannel, "_play", lambda *_: None)
    async with rig(tmp_path) as r:
        session, follower = await r.session(), Shown()
        session.subscribe(follower, 0)
        await r.prompt(session, "say 1")
        await eventually(lambda: r.launcher.launched and r.launcher.launched[0].prompts)
        for watching in running("watch-store"):
            watching.cancel()
        r.database.condition.failed(DatabaseState.LOCKED, "Another program keeps it locked.")
        pass_loop_time(slow_start.WAIT)
        await not_within(lambda: follower.notes)
        r.database.condition.recovered()
        await not_within(lambda: follower.notes)  # its time begins anew
        pass_loop_time(slow_start.WAIT)
        [note] = await eventually(lambda: follower.notes)
        assert note.startswith(slow_start.NOT_BEGUN)


async def test_nothing_is_shown_amid_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_start, "WAIT", 0)
    async with rig(tmp_path) as r:
        session, behind, follower = await r.session(), Shown(), Shown()
        await r.run(session, "say 1")
        r.pool.evict(session.id)
        behind.reads.clear()
        session.subscribe(behind, 0)
        session.subscribe(follower, session.last_seq)
        r.launcher.slow = True
        turn = await r.prompt(session, "say 1")
        await eventually(lambda: follower.notes == [slow_start.STARTING])
        behind.reads.set()
        r.launcher.launched[-1].ready()
        await turn.over()
        await eventually(lambda: behind.text == "0 0 ")
        assert behind.notes == []


async def test_client_that_does_not_read_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_start, "WAIT", 0)
    async with rig(tmp_path) as r:
        session, stuck, follower = await r.session(), Shown(), Shown()
        stuck.reads_notes.clear()
        session.subscribe(stuck, 0)
        session.subscribe(follower, 0)
        r.launcher.slow = True
        await r.prompt(session, "say 1")
        await eventually(lambda: follower.notes == [slow_start.STARTING], 5)
        stuck.reads_notes.set()


def test_words_name_the_servers_of_the_client() -> None:
    servers = (McpServer(name="slow", command="x"), McpServer(name="other", command="x"))
    said = slow_start.words(TurnState.DISPATCHED, servers, has_worker=True)
    assert said.startswith(slow_start.NOT_BEGUN)
    assert said.endswith("for an MCP server: `slow`, `other`.")
    assert "server." in slow_start.words(TurnState.DISPATCHED, (), has_worker=True)
