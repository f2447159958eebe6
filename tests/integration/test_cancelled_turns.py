"""What is said of a cancelled turn: once, at its end, live and in the history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.asking import BOTH, park
from tests.integration.asking import rig as asking_rig
from tests.integration.rig import rig
from tests.integration.wires import Wire, client, hanging, new, prompt
from tests.waiting import eventually

SAID = "\n\nCancelled.\n\n"


def said(wire: Wire) -> list[Any]:
    """What a client is told of prompts, in order."""
    return [
        one["content"]["text"]
        for one in wire.updates()
        if one["sessionUpdate"] in ("user_message_chunk", "agent_message_chunk")
    ]


async def test_cancelled_turns_say_so_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, running, _, _ = await hanging(r, wire)
        waiting = wire.begin("session/prompt", **prompt(session, "say 1"))
        await eventually(lambda: len(r.sessions.live[session].turns) == 2)
        wire.send({"method": "session/cancel", "params": {"sessionId": session}})
        for one in (running, waiting):
            assert (await wire.answer(one))["result"]["stopReason"] == "cancelled"
        assert sorted(said(wire)) == [SAID, SAID]
        told = [one for one in wire.updates() if one.get("content", {}).get("text") == SAID]
        assert {one["_meta"]["pykoclaw.dev/note"] for one in told} == {"note"}
        ids = [one["messageId"] for one in told]
        wire.lines.clear()
        await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        assert sorted(said(wire)) == sorted(["hang", SAID, "say 1", SAID])
        assert said(wire)[0] == "hang"
        told = [one for one in wire.updates() if one.get("content", {}).get("text") == SAID]
        assert sorted(one["messageId"] for one in told) == sorted(ids)


async def test_turn_that_was_not_cancelled_does_not_say_so(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        await wire.call("session/prompt", **prompt(session, "say 1"))
        assert SAID not in said(wire)


async def test_parked_turn_says_only_why(tmp_path: Path) -> None:
    async with asking_rig(tmp_path, "park") as r, client(r) as wire:
        asking = await park(r, questions=BOTH)
        await wire.call("session/load", sessionId=asking.session.id, cwd="/", mcpServers=[])
        assert len(said(wire)) > 1
        assert SAID not in said(wire)
