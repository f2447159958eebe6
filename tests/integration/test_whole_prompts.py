"""Prompts that are answered when all that their turn leads to has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace as changed

from pykoclaw_acp.channel.requests import StopSubagents
from pykoclaw_acp.channel.usage import TurnUsage
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import Text, ToolEnded, ToolStarted
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions import work
from pykoclaw_acp.store.hinting_journal import HintingJournal
from tests.integration import linked
from tests.integration.linked import Front, front, words
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Rig, rig, take_up
from tests.integration.wires import Wire, client, new, prompt
from tests.waiting import eventually, not_within

WHOLE = "pykoclaw.dev/whole"
AGENT = ToolStarted("call", "Agent", "look", "think")
ENDED = ToolEnded("call", "completed", background=True)
SHELL = ToolStarted("call", "Bash", "serve", "execute", input={"run_in_background": True})


async def started(
    r: Rig, wire: Wire, begun: ToolStarted = AGENT, *, whole: bool | None = True
) -> tuple[str, int, MemoryChannel]:
    """A prompt whose turn has ended with the words `Started.`, and what it has left running."""
    session = await new(wire)
    meta = {} if whole is None else {"_meta": {WHOLE: whole}}
    at = wire.begin("session/prompt", **prompt(session, "hang"), **meta)
    await eventually(lambda: r.launcher.launched and r.launcher.launched[0].acked)
    worker, turn = r.launcher.launched[0], next(iter(await r.states()))
    worker.background(1)
    worker.report(turn, begun, Text("a", "Started."))
    worker.say(worker.ended(turn))
    await eventually(lambda: not r.sessions.live[session].busy)
    return session, at, worker


def answered(wire: Wire, at: int) -> bool:
    return any(one.get("id") == at for one in wire.lines)


def tell(worker: MemoryChannel, stop: str = "end_turn") -> None:
    """The subagent ends, and Claude tells of it."""
    worker.report(None, ENDED)
    worker.background(0)
    worker.begin_own("own", "call")
    worker.report("own", Text("b", "It found 42."))
    worker.say(worker.ended("own", stop))


async def test_response_waits_for_report_of_subagent(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        _, at, worker = await started(r, wire)
        await not_within(lambda: answered(wire, at))
        tell(worker, "max_tokens")
        result = (await wire.answer(at))["result"]
        assert result["stopReason"] == "max_tokens"
        assert wire.text().endswith("It found 42.")
        assert wire.lines[-1]["id"] == at


@pytest.mark.parametrize(
    ("name", "whole", "begun", "waits"),
    [
        ("acpx", None, AGENT, True),
        ("acpx", False, AGENT, False),
        ("acpx", None, SHELL, False),
        ("acpx", True, SHELL, True),
        ("editor", None, AGENT, False),
        ("editor", True, SHELL, True),
    ],
)
async def test_what_response_waits_for(
    tmp_path: Path, name: str, whole: bool | None, begun: ToolStarted, waits: bool
) -> None:
    async with rig(tmp_path) as r, client(r, name) as wire:
        _, at, _ = await started(r, wire, begun, whole=whole)
        if waits:
            await not_within(lambda: answered(wire, at))
        else:
            assert (await wire.answer(at))["result"]["stopReason"] == "end_turn"


async def test_whole_is_true_or_false(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        asked = {**prompt(session, "say 1"), "_meta": {WHOLE: "yes"}}
        answer = await wire.call("session/prompt", **asked)
        assert answer["error"]["code"] == -32602
        assert WHOLE in answer["error"]["message"]
        assert await r.states() == {}


async def test_cancel_of_held_response_stops_subagents(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, at, worker = await started(r, wire)
        wire.send({"method": "session/cancel", "params": {"sessionId": session}})
        await eventually(lambda: any(isinstance(one, StopSubagents) for one in worker.got))
        await not_within(lambda: answered(wire, at))
        worker.report(None, ToolEnded("call", "failed"))
        assert (await wire.answer(at))["result"]["stopReason"] == "cancelled"
        assert wire.updates()[-1]["status"] == "failed"


async def test_withdrawn_request_is_answered_cancelled(tmp_path: Path) -> None:
    """Another prompt goes on."""
    async with rig(tmp_path) as r, client(r) as wire:
        session, at, worker = await started(r, wire)
        wire.send({"method": "$/cancel_request", "params": {"requestId": at}})
        assert (await wire.answer(at))["result"]["stopReason"] == "cancelled"
        assert any(isinstance(one, StopSubagents) for one in worker.got)
        assert (await wire.call("session/prompt", **prompt(session, "say 1")))["result"]


async def test_withdrawn_request_spares_running_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, at, worker = await started(r, wire)
        other = wire.begin("session/prompt", **prompt(session, "hang"))
        await eventually(lambda: len(worker.prompts) == 2)
        wire.send({"method": "$/cancel_request", "params": {"requestId": at}})
        assert (await wire.answer(at))["result"]["stopReason"] == "cancelled"
        assert not any(isinstance(one, StopSubagents) for one in worker.got)
        assert not answered(wire, other)


async def test_cancel_ends_held_and_running_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, at, worker = await started(r, wire)
        other = wire.begin("session/prompt", **prompt(session, "hang"))
        await eventually(lambda: len(worker.prompts) == 2)
        wire.send({"method": "session/cancel", "params": {"sessionId": session}})
        for one in (at, other):
            assert (await wire.answer(one))["result"]["stopReason"] == "cancelled"


async def steered(r: Rig, wire: Wire) -> tuple[str, int, MemoryChannel, str, Turn]:
    """A prompt that runs, and one for its turn, by `_session/steering`."""
    session = await new(wire)
    at = wire.begin("session/prompt", **prompt(session, "hang"), _meta={WHOLE: True})
    await eventually(lambda: r.launcher.launched and r.launcher.launched[0].acked)
    worker, host = r.launcher.launched[0], next(iter(await r.states()))
    await wire.call("_session/steering", **prompt(session, "Look out."))
    (turn,) = (one for one in r.sessions.live[session].turns if one.turn_id != host)
    return session, at, worker, host, turn


@pytest.mark.parametrize("by", ["session/cancel", "$/cancel_request"])
async def test_cancel_reaches_steered_prompts_subagents(tmp_path: Path, by: str) -> None:
    """The prompt that came by `_session/steering` has run as a turn of its own."""
    async with rig(tmp_path) as r, client(r) as wire:
        session, at, worker, host, turn = await steered(r, wire)
        worker.say(worker.ended(host), worker.started(turn.turn_id))
        worker.background(1)
        worker.report(turn.turn_id, AGENT, Text("a", "Started."))
        worker.say(worker.ended(turn.turn_id))
        await eventually(lambda: not r.sessions.live[session].busy)
        await not_within(lambda: answered(wire, at))
        params = {"requestId": at} if by.startswith("$") else {"sessionId": session}
        wire.send({"method": by, "params": params})
        await eventually(lambda: any(isinstance(one, StopSubagents) for one in worker.got))
        worker.report(None, ToolEnded("call", "failed"))
        assert (await wire.answer(at))["result"]["stopReason"] == "cancelled"


async def test_own_turns_of_injected_prompts_count_once(tmp_path: Path) -> None:
    used = TurnUsage(1, 2, 3, 4)
    async with rig(tmp_path) as r, client(r) as wire:
        session, at, worker, host, turn = await steered(r, wire)
        host_turn = next(one for one in r.sessions.live[session].turns if one is not turn)
        worker.background(1)
        worker.report(host, AGENT, Text("a", "Started."))
        take_up(worker, turn, host_turn)
        worker.say(changed(worker.ended(host), usage=used), worker.ended(turn.turn_id))
        await eventually(lambda: not r.sessions.live[session].busy)
        worker.report(None, ENDED)
        worker.background(0)
        worker.begin_own("own", "call")
        worker.report("own", Text("b", "It found 42."))
        worker.say(changed(worker.ended("own", "max_tokens"), usage=used))
        result = (await wire.answer(at))["result"]
        assert (result["stopReason"], result["usage"]["totalTokens"]) == ("max_tokens", 14)


async def test_hour_ends_while_claude_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "LONGEST", 0.5)
    async with rig(tmp_path) as r, client(r) as wire:
        _, at, worker = await started(r, wire)
        worker.report(None, ENDED)
        worker.background(0)
        worker.begin_own("own", "call")
        worker.report("own", Text("b", "It "))
        assert (await wire.answer(at))["result"]["stopReason"] == "end_turn"


async def test_cancel_of_waiting_prompt_stops_subagents(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, at, worker = await started(r, wire)
        live = r.sessions.live[session]
        with live.hold():
            other = wire.begin("session/prompt", **prompt(session, "hang"))
            await eventually(lambda: live.turns)
            wire.send({"method": "session/cancel", "params": {"sessionId": session}})
            for one in (at, other):
                assert (await wire.answer(one))["result"]["stopReason"] == "cancelled"
            await eventually(lambda: any(isinstance(one, StopSubagents) for one in worker.got))


async def test_cancel_does_not_wait_for_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, at, worker = await started(r, wire)
        reading = AsyncMock(side_effect=StoreUnavailable(DatabaseState.LOCKED, "locked"))
        monkeypatch.setattr(HintingJournal, "work", reading)
        worker.report(None, ENDED)
        worker.background(0)
        await eventually(lambda: reading.await_count)
        wire.send({"method": "session/cancel", "params": {"sessionId": session}})
        assert (await wire.answer(at))["result"]["stopReason"] == "cancelled"


async def test_closed_session_answers_held_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, at, _ = await started(r, wire)
        await wire.call("session/close", sessionId=session)
        assert (await wire.answer(at))["result"]["stopReason"] == "cancelled"


async def test_lost_worker_is_error_of_held_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        _, at, worker = await started(r, wire)
        worker.kill()
        assert (await wire.answer(at))["error"]["data"]["errorKind"] == "worker_lost"


async def test_failed_report_invites_nobody_to_repeat_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        _, at, worker = await started(r, wire)
        worker.report(None, ENDED)
        worker.begin_own("own", "call")
        failure = TurnFailure(ErrorKind.OVERLOADED, "Claude could not go on by itself.")
        worker.say(changed(worker.ended("own"), stop_reason=None, error=failure))
        error = (await wire.answer(at))["error"]
        assert (error["message"], error["data"]["retryable"]) == (failure.message, False)


async def test_second_prompt_runs_while_first_is_held(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, at, worker = await started(r, wire)
        other = await wire.call("session/prompt", **prompt(session, "say 2"))
        assert other["result"]["stopReason"] == "end_turn"
        assert not answered(wire, at)
        tell(worker)
        assert (await wire.answer(at))["result"]["stopReason"] == "end_turn"


async def held(r: Rig, one: Front) -> tuple[str, MemoryChannel, dict[str, Any]]:
    """A prompt under the number 2 whose response is held."""
    session = await linked.new(one)
    asked = words(session, "hang", **{WHOLE: True})
    one.call(2, "session/prompt", **asked)
    await eventually(lambda: r.launcher.launched and r.launcher.launched[0].acked)
    worker, turn = r.launcher.launched[0], next(iter(await r.states()))
    worker.background(1)
    worker.report(turn, AGENT, Text("a", "Started."))
    worker.say(worker.ended(turn))
    await eventually(lambda: "Started." in one.text())
    await eventually(lambda: not r.sessions.live[session].busy)
    return session, worker, asked


async def test_held_response_follows_reconnected_front(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with front(r) as one:
            session, worker, asked = await held(r, one)
            seen = max(one.places())
            await one.leave()
        known = {session: {"seq": seen, "seen": seen, "line": 1, "opened": None}}
        async with front(r, sessions=known, taken=[2]) as again:
            again.call(2, "session/prompt", again=1000, **asked)
            tell(worker)
            answer = await again.answer(2)
            assert answer["result"]["stopReason"] == "end_turn"
            assert again.text().endswith("It found 42.")
            assert again.places() == list(range(seen + 1, r.sessions.live[session].last_seq + 1))
        assert worker.prompts == ["hang"]


async def test_repeated_cancel_is_of_held_prompt(tmp_path: Path) -> None:
    """A front repeats it, as it repeats the prompt; a prompt that came later is not meant."""
    async with rig(tmp_path) as r:
        async with front(r) as one:
            session, _, asked = await held(r, one)
            later = words(session, "hang", **{WHOLE: True})
            one.call(4, "session/prompt", **later)
            await linked.until_there_is(r, "request_key = 'front-1:4' AND state = 'running'")
            await one.leave()
        async with front(r, taken=[2]) as again:
            again.call(2, "session/prompt", again=1000, **asked)
            again.notify(3, "session/cancel", again=1001, sessionId=session)
            again.call(4, "session/prompt", again=1002, **later)
            assert (await again.answer(2))["result"]["stopReason"] == "cancelled"
            await eventually(lambda: again.rests("ack"))
            told = [kind for kind, rest in again.heard if rest.split()[0] in ("2", "3")]
            assert told == ["taken", "answer", "ack"], "a daemon that ends before is told again"
            assert not [rest for rest in again.rests("answer") if rest.startswith("4 ")]
