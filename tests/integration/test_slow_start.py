"""A Claude that is slow to start: what clients are shown meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.sessions.turns import slow_start
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Rig, rig
from tests.integration.wires import Wire, client, load, new, prompt
from tests.waiting import eventually


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


def test_words_name_the_servers_of_the_client() -> None:
    servers = (McpServer(name="slow", command="x"), McpServer(name="other", command="x"))
    said = slow_start.words(TurnState.DISPATCHED, servers, has_worker=True)
    assert said.startswith(slow_start.NOT_BEGUN)
    assert said.endswith("for an MCP server: `slow`, `other`.")
    assert "server." in slow_start.words(TurnState.DISPATCHED, (), has_worker=True)
