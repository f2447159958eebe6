"""What is said of a cancelled turn: once, at its end, live and in the history."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.model.events import Text, UserMessage
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.sessions.choosing import Choosing
from tests.integration.adopting import alive, daemon, killed
from tests.integration.asking import BOTH, park
from tests.integration.asking import rig as asking_rig
from tests.integration.rig import Rig, rig
from tests.integration.rig import hanging as hanging_turn
from tests.integration.wires import Wire, client, hanging, new, prompt
from tests.waiting import eventually, within

__all__ = ["alive"]

SAID = "\n\nCancelled.\n\n"
NOT_SENT = "\n\nCancelled before it was sent to Claude.\n\n"


def not_sent(words: str) -> str:
    """Of a prompt below whose words other turns may stand."""
    return f"\n\nCancelled before it was sent to Claude: “{words}”\n\n"


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
        assert said(wire) == [SAID, not_sent("say 1")]
        told = [one for one in wire.updates() if one.get("content", {}).get("text") in said(wire)]
        assert {one["_meta"]["pykoclaw.dev/note"] for one in told} == {"note"}
        ids = [one["messageId"] for one in told]
        wire.lines.clear()
        await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        assert said(wire) == ["hang", SAID, "say 1", not_sent("say 1")]
        notes = [one for one in wire.updates() if "pykoclaw.dev/note" in one["_meta"]]
        assert [one["messageId"] for one in notes] == ids


async def test_words_on_cancelled_prompt_precede_its_response(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, running, worker, turn = await hanging(r, wire)
        waiting = wire.begin("session/prompt", **prompt(session, "waits"))
        await eventually(lambda: len(r.sessions.live[session].turns) == 2)
        worker.deaf = True  # its end takes a while
        wire.send({"method": "session/cancel", "params": {"sessionId": session}})
        last = wire.begin("session/prompt", **prompt(session, "say 1"))
        await eventually(lambda: len(r.sessions.live[session].turns) == 3)
        worker.deaf = False
        worker.say(worker.ended(turn, "cancelled"))
        await wire.answer(last)
        texts = [one for one in wire.lines if "id" in one or "content" in one["params"]["update"]]
        shown = [one.get("id") or one["params"]["update"]["content"]["text"] for one in texts]
        assert shown.index(SAID) < shown.index(running)
        assert shown.index(not_sent("waits")) < shown.index(waiting) < shown.index(last)
        assert shown.index(not_sent("waits")) < shown.index("0 ")


@pytest.mark.parametrize("goes_on", [True, False])
async def test_cancelled_prompts_words_outlive_the_daemon(
    tmp_path: Path, alive: WorkerProcess, *, goes_on: bool
) -> None:
    async with killed(tmp_path, alive) as r:
        session, turn, worker = await hanging_turn(r)
        waiting = await r.prompt(session, "waits")
        session.cancel(waiting)
        assert (await waiting.ended)[0].state == TurnState.CANCELLED
    worker.say(worker.event(turn.turn_id, "one "), worker.ended(turn.turn_id))
    told = await after_restart(tmp_path, session.id, r if goes_on else None)
    assert told[0] == "hang"
    assert told[-2:] == ["waits", not_sent("waits")]
    assert ("one " in told) is goes_on
    assert await after_restart(tmp_path, session.id) == told  # and once only


async def after_restart(path: Path, session_id: str, before: Rig | None = None) -> list[str]:
    """What the log has, once the next daemon has caught up."""
    async with daemon(path, before) as r:

        async def caught_up() -> Any:
            return not await r.database.read("SELECT 1 FROM acp_turns WHERE unsaid = 1")

        session = await r.sessions.get(session_id)
        await eventually(lambda: not session.busy)
        await eventually(caught_up)
        events = [one.event for one in await r.journal.read(session_id, 0, 100)]
        return [
            one.text if isinstance(one, Text) else one.content["text"]
            for one in events
            if isinstance(one, Text | UserMessage)
        ]


async def test_waiting_prompts_words_do_not_cut_running_answer(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, running, worker, turn = await hanging(r, wire)
        worker.say(worker.event(turn, "one "))
        waiting = wire.begin("session/prompt", **prompt(session, "waits"))
        await eventually(lambda: len(r.sessions.live[session].turns) == 2)
        wire.send({"method": "$/cancel_request", "params": {"requestId": waiting}})
        assert (await wire.answer(waiting))["result"]["stopReason"] == "cancelled"
        worker.say(worker.event(turn, "two "))
        worker.say(worker.ended(turn))
        assert (await wire.answer(running))["result"]["stopReason"] == "end_turn"
        await eventually(lambda: said(wire) == ["one ", "two ", not_sent("waits")])
        wire.lines.clear()
        await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        assert said(wire) == ["hang", "one two ", "waits", not_sent("waits")]


async def test_prompt_cancelled_before_claude_came_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        starts = asyncio.Event()

        async def never(*_: Any) -> int:
            starts.set()
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr(r.pool, "acquire", never)
        running = wire.begin("session/prompt", **prompt(session, "say 1"))
        await starts.wait()
        wire.send({"method": "session/cancel", "params": {"sessionId": session}})
        assert (await wire.answer(running))["result"]["stopReason"] == "cancelled"
        await eventually(lambda: said(wire) == [NOT_SENT])


async def test_cancel_does_not_overtake_the_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is told first what was chosen, and may take its time."""
    tells, is_told = asyncio.Event(), asyncio.Event()

    async def tell(*_: object) -> None:
        tells.set()
        await is_told.wait()

    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        monkeypatch.setattr(Choosing, "tell_worker", tell)
        running = wire.begin("session/prompt", **prompt(session, "say 1"))
        await tells.wait()
        (kept,) = r.sessions.live[session].cancel()
        early = await within(kept.done, 0.1)
        is_told.set()
        assert (await wire.answer(running))["result"]["stopReason"] == "cancelled"
        await eventually(lambda: said(wire) == [SAID])
        assert r.launcher.launched[-1].prompts == []
        assert not early, "the next daemon would send the prompt"


async def test_turn_nobody_cancelled_does_not_say_so(tmp_path: Path) -> None:
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
