"""A client's connection on real sessions and a real database, with workers in memory."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pykoclaw_acp.channel.frames import AskWithdrawn
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.channel.usage import TurnUsage
from pykoclaw_acp.model.events import ModeChanged, UserMessage
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.server.line_room import LineRoom
from pykoclaw_acp.store.session_journal import SessionJournal
from tests.databases import on_writer
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import rig, take_up
from tests.integration.wires import Wire, client, hanging, listen, load, new, prompt
from tests.waiting import eventually, not_within

MIB = 1024 * 1024


async def test_closed_session_refuses_prompts_until_loaded(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        await wire.call("session/prompt", **prompt(session, "say 2"))
        await wire.call("session/close", sessionId=session)
        refused = await wire.call("session/prompt", **prompt(session, "say 1"))
        assert "Open it again in your client" in refused["error"]["message"]
        await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        before = len(wire.updates())
        assert (await wire.call("session/prompt", **prompt(session, "say 1")))["result"][
            "stopReason"
        ] == "end_turn"
        assert len(wire.updates()) > before


async def test_ten_mebibytes_of_text_reach_worker_and_log(tmp_path: Path) -> None:
    large = '[{"a": [1, 2]}, ' * (10 * MIB // 16)
    given = [{"type": "text", "text": large}, {"type": "text", "text": "say 1"}]
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        answer = await wire.call("session/prompt", sessionId=session, prompt=given)
        assert answer["result"]["stopReason"] == "end_turn"
        (sent,) = r.launcher.launched[0].contents
        assert sent == given
        await load(wire, session)
        told = [
            one["content"]["text"]
            for one in wire.updates()
            if one["sessionUpdate"] == "user_message_chunk"
        ]
        assert "".join(told) == large + "say 1"
        assert max(len(json.dumps(one)) for one in wire.updates()) < MIB


async def test_line_without_room_may_be_sent_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        wire = Wire(r, LineRoom(most=0))
        try:
            await wire.call("initialize", protocolVersion=1)
            session = await new(wire)
            line: dict[str, Any] = {"jsonrpc": "2.0", "id": 77, "method": "session/prompt"}
            line["params"] = prompt(session, "x" * MIB)
            encoded = json.dumps(line).encode() + b"\n"
            for begins in range(0, len(encoded), MIB // 2):
                wire.incoming.put_nowait(encoded[begins : begins + MIB // 2])
            refused = await wire.answer(77)
            assert refused["error"]["data"] == {"errorKind": "too_many_lines", "retryable": True}
            assert r.launcher.launched == []
            answer = await wire.call("session/prompt", **prompt(session, "say 1"))
            assert answer["result"]["stopReason"] == "end_turn"
        finally:
            await r.sessions.live.cancel_all()
            await wire.close()


async def test_short_line_does_not_overtake_long_one(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        long = prompt(session, "say 1")
        long["prompt"].insert(0, {"type": "text", "text": "x" * MIB})
        asked = [
            wire.begin("session/prompt", **one)
            for one in (long, prompt(session, "say 2"), long, prompt(session, "say 3"))
        ]
        for one in asked:
            await wire.answer(one)
        assert r.launcher.launched[0].prompts == ["say 1", "say 2", "say 1", "say 3"]


async def test_answer_follows_updates_even_after_load_replaces_subscription(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        first = wire.connection.client.subscriber.subscriptions[session]
        wire.blocked.clear()
        running = wire.begin("session/prompt", **prompt(session, "say 30"))
        await eventually(lambda: r.sessions.live[session].last_seq == 32)
        loading = wire.begin("session/load", sessionId=session, cwd="/", mcpServers=[])
        await eventually(
            lambda: wire.connection.client.subscriber.subscriptions[session] is not first
        )
        wire.blocked.set()
        await wire.answer(running)
        await wire.answer(loading)
        places = {line["id"]: at for at, line in enumerate(wire.lines) if "id" in line}
        updates = [
            at for at, line in enumerate(wire.lines) if line.get("method") == "session/update"
        ]
        assert max(updates) < places[running]
        assert wire.seqs()[-3:] == [1, 2, 32]
        assert wire.text().endswith("".join(f"{at} " for at in range(30)))


@pytest.mark.parametrize("missed", ["has ended", "goes on"])
async def test_resumed_updates_stay_apart_from_next_answer(tmp_path: Path, missed: str) -> None:
    """acpx prompts right after it has resumed."""
    async with rig(tmp_path) as r, client(r) as gone, client(r) as wire:
        session, _, worker, turn = await hanging(r, gone)
        gone.connection.leave()
        if missed == "has ended":
            worker.say(worker.event(turn, "the end"), worker.ended(turn))
            await eventually(lambda: not r.sessions.live[session].busy)
        resumed = wire.begin("session/resume", sessionId=session, cwd="/")
        asked = wire.begin("session/prompt", **prompt(session, "say 1"))
        await wire.answer(resumed)
        if missed == "goes on":
            await eventually(lambda: len(r.sessions.live[session].turns) == 2)
            worker.say(worker.event(turn, "the end"), worker.ended(turn))
        await wire.answer(asked)
        said = [
            one["content"]["text"]
            for one in wire.updates()
            if one["sessionUpdate"] == "agent_message_chunk"
        ]
        assert said == ["the end", "\n\n", "0 "]


async def test_missed_change_of_mode_adds_no_empty_line(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as gone, client(r) as wire:
        session = await new(gone)
        await gone.call("session/prompt", **prompt(session, "say 1"))
        live = r.sessions.live[session]
        await r.sessions.confirmations.written(5)
        gone.connection.leave()
        await SessionJournal(r.database).append(session, [ModeChanged("plan")])
        live.record.last_seq += 1
        await wire.call("session/resume", sessionId=session, cwd="/")
        await wire.call("session/prompt", **prompt(session, "say 1"))
        assert wire.updates()[0]["sessionUpdate"] == "current_mode_update"
        assert wire.text() == "0 "


async def test_resume_by_a_client_that_lags_loses_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        wire.blocked.clear()
        running = wire.begin("session/prompt", **prompt(session, "say 30"))
        await eventually(lambda: r.sessions.live[session].last_seq == 32)
        wire.begin("session/resume", sessionId=session, cwd="/")
        wire.blocked.set()
        await wire.answer(running)
        assert wire.seqs()[-1] == 32
        assert wire.text() == "".join(f"{at} " for at in range(30))


def user_messages(wire: Wire) -> list[str]:
    updates = [one for one in wire.updates() if one["sessionUpdate"] == "user_message_chunk"]
    return [one["content"]["text"] for one in updates]


@pytest.mark.parametrize(
    ("method", "more"),
    [("session/load", {}), ("session/resume", {"_meta": {"pykoclaw.dev/after": 0}})],
)
async def test_own_prompt_awaiting_worker_is_not_shown(
    tmp_path: Path, method: str, more: dict[str, Any]
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        r.launcher.slow = True
        running = wire.begin("session/prompt", **prompt(session, "say 1"))
        await eventually(lambda: r.launcher.launched)
        opened = await wire.call(method, sessionId=session, cwd="/", mcpServers=[], **more)
        assert "result" in opened
        r.launcher.launched[0].ready()
        await wire.answer(running)
        assert (user_messages(wire), wire.text()) == ([], "0 ")


async def test_own_steered_prompt_is_not_shown(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, running, worker, host = await hanging(r, wire)
        steered = {**prompt(session, "Look out."), "_meta": {"pykoclaw.dev/steering": "steer"}}
        given = wire.begin("session/prompt", **steered)
        await eventually(lambda: [one for one in worker.got if isinstance(one, Steer)])
        await load(wire, session)
        assert user_messages(wire) == ["hang"]
        turns = {one.turn_id: one for one in r.sessions.live[session].turns}
        (turn,) = (one for key, one in turns.items() if key != host)
        take_up(worker, turn, turns[host])
        worker.say(worker.ended(host), worker.ended(turn.turn_id))
        await wire.answer(running)
        assert (await wire.answer(given))["result"]["stopReason"] == "end_turn"
        assert user_messages(wire) == ["hang"]


def steered(became: str) -> dict[str, Any]:
    """The result of `_session/steering` while a turn runs."""
    return {"outcome": "injected", "_meta": {"pykoclaw.dev/steering": became}}


@pytest.mark.parametrize(("stop", "tokens"), [("end_turn", 14), ("cancelled", 7)])
async def test_response_comes_after_injected_prompts_end(
    tmp_path: Path, stop: str, tokens: int
) -> None:
    """Claude had ended its answer before it took the prompt up, which is of no request of its own."""
    async with rig(tmp_path) as r, client(r) as wire:
        session, running, worker, host = await hanging(r, wire)
        given = await wire.call("_session/steering", **prompt(session, "Look out."))
        assert given["result"] == steered("injected")
        (turn,) = (one for one in r.sessions.live[session].turns if one.turn_id != host)
        used = TurnUsage(1, 2, 3, 4)
        worker.say(replace(worker.ended(host), usage=used), worker.started(turn.turn_id))
        await eventually(lambda: worker.acked == worker.last)
        await not_within(lambda: any(one.get("id") == running for one in wire.lines))
        if stop == "cancelled":
            wire.send({"method": "$/cancel_request", "params": {"requestId": running}})
            await eventually(turn.cancelled.is_set)
        worker.say(replace(worker.ended(turn.turn_id, stop), usage=used))
        result = (await wire.answer(running))["result"]
        assert (result["stopReason"], result["usage"]["totalTokens"]) == (stop, tokens)


async def test_command_for_running_turn_is_answered_with_it(tmp_path: Path) -> None:
    """It waits, as it cannot go into a turn, for which the method has no word."""
    async with rig(tmp_path) as r, client(r) as wire:
        session, running, worker, host = await hanging(r, wire)
        given = await wire.call("_session/steering", **prompt(session, "/compact"))
        assert given["result"] == steered("queued")
        (turn,) = (one for one in r.sessions.live[session].turns if one.turn_id != host)
        worker.deaf = True
        worker.say(worker.ended(host))
        await eventually(lambda: turn.state == TurnState.DISPATCHED)
        await not_within(lambda: any(one.get("id") == running for one in wire.lines))
        worker.say(worker.started(turn.turn_id), worker.ended(turn.turn_id, "max_tokens"))
        assert (await wire.answer(running))["result"]["stopReason"] == "max_tokens"


@pytest.mark.parametrize(
    ("behavior", "outcome"), [("promptRequired", "promptRequired"), (None, "startedNewTurn")]
)
async def test_idle_session_leaves_steering_to_client(
    tmp_path: Path, behavior: str | None, outcome: str
) -> None:
    meta = {"steering": {"idleBehavior": behavior}}
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        given = await wire.call("_session/steering", **prompt(session, "say 1"), _meta=meta)
        assert given["result"]["outcome"] == outcome
        assert bool(await r.states()) == (behavior is None)


async def test_running_turn_takes_prompt_that_requires_one(tmp_path: Path) -> None:
    meta = {"steering": {"idleBehavior": "promptRequired"}}
    async with rig(tmp_path) as r, client(r) as wire:
        session, *_ = await hanging(r, wire)
        given = await wire.call("_session/steering", **prompt(session, "Look out."), _meta=meta)
        assert given["result"] == steered("injected")
        other = {"steering": {"idleBehavior": "wait"}}
        refused = await wire.call("_session/steering", **prompt(session, "No."), _meta=other)
        assert refused["error"]["code"] == -32602
        assert "promptRequired" in refused["error"]["message"]


async def test_oversized_event_is_replaced_by_note(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        giant = UserMessage("giant", {"type": "text", "text": "x" * (9 * 1024 * 1024)})
        live = r.sessions.live[session]
        await SessionJournal(r.database).append(session, [giant])
        live.record.last_seq = 1
        answered = await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        assert "result" in answered
        assert "cannot be read" in wire.updates()[0]["content"]["text"]
        assert (await wire.call("session/prompt", **prompt(session, "say 1")))["result"][
            "stopReason"
        ] == "end_turn"


@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        (OSError("input/output error"), -32603, None),
        (
            OSError(errno.EMFILE, "Too many open files"),
            -32012,
            {"errorKind": "out_of_descriptors", "retryable": True},
        ),
        (MemoryError(), -32012, {"errorKind": "out_of_memory", "retryable": True}),
    ],
)
async def test_load_with_unreadable_log_is_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
    data: dict[str, Any] | None,
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        await wire.call("session/prompt", **prompt(session, "say 3"))
        live = r.sessions.live[session]
        live.log.forget()

        async def broken(*_: Any) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(SessionJournal, "read", broken)
            failed = await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        assert (failed["error"]["code"], failed["error"].get("data")) == (code, data)
        assert "result" in await wire.call(
            "session/load", sessionId=session, cwd="/", mcpServers=[]
        )


async def test_unreadable_row_is_one_note_among_rest(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with client(r) as wire:
            session = await new(wire)
            await wire.call("session/prompt", **prompt(session, "say 5"))

        def spoil(connection: Any) -> None:
            connection.execute("UPDATE acp_log SET payload = '{broken' WHERE seq = 7")

        await on_writer(r.database, spoil)
        r.sessions.live[session].log.forget()
        async with client(r) as wire:
            await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
            assert wire.seqs() == [1, 2, 7]
            assert "cannot be read" in wire.updates()[2]["content"]["text"]


async def test_later_client_gets_open_question_first_answer_counts(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as first, client(r) as second:
        session, running, channel, turn = await hanging(r, first)
        answers = listen(channel)
        channel.say(_question(channel, turn))
        await first.answer("q1")  # type: ignore[arg-type]
        await second.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        await second.answer("q1")  # type: ignore[arg-type]
        second.send(
            {"id": "q1", "result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}}}
        )
        await eventually(lambda: answers)
        assert [answer.decision for answer in answers] == ["allow_once"]
        await eventually(lambda: [m for m in first.lines if m.get("method") == "$/cancel_request"])
        first.send({"id": "q1", "result": {"outcome": {"outcome": "cancelled"}}})
        rows = await r.database.read("SELECT outcome, option_id, answered_by FROM acp_permissions")
        assert rows == [("selected", "allow_once", "unknown")]
        channel.say(channel.ended(turn))
        await first.answer(running)


@pytest.mark.parametrize(
    ("method", "params"), [("session/load", {"mcpServers": []}), ("session/resume", {})]
)
async def test_open_again_reasks_question_and_needs_one_answer(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, running, channel, turn = await hanging(r, wire)
        answers = listen(channel)
        channel.say(_question(channel, turn))
        await wire.answer("q1")  # type: ignore[arg-type]
        await wire.call(method, sessionId=session, cwd="/", **params)
        await eventually(lambda: asked(wire) == 2)
        wire.send(
            {"id": "q1", "result": {"outcome": {"outcome": "selected", "optionId": "reject_once"}}}
        )
        await eventually(lambda: answers)
        channel.say(channel.ended(turn))
        await wire.answer(running)
        assert asked(wire) == 2
        assert "$/cancel_request" not in [line.get("method") for line in wire.lines]


def asked(wire: Wire) -> int:
    return [line.get("method") for line in wire.lines].count("session/request_permission")


async def test_question_withdrawn_at_once_is_asked_of_nobody(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as first, client(r) as second:
        session, running, channel, turn = await hanging(r, first)
        question = _question(channel, turn)
        channel.last += 1
        channel.say(question, AskWithdrawn(epoch=1, n=channel.last, ask_id="q1"))
        await eventually(lambda: channel.acked == channel.last)
        await second.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        channel.say(channel.ended(turn))
        await first.answer(running)
        assert not [
            line
            for line in first.lines + second.lines
            if line.get("method") == "session/request_permission"
        ]
        assert await r.database.read("SELECT outcome FROM acp_permissions") == [("withdrawn",)]


def _question(channel: MemoryChannel, turn: str) -> PermissionRequest:
    channel.last += 1
    return PermissionRequest(
        epoch=1,
        n=channel.last,
        ask_id="q1",
        turn_id=turn,
        tool_call_id="t",
        title="Bash: ls",
        tool_kind="execute",
    )


async def test_adopted_session_takes_directory_from_first_load(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:

        def adopt(connection: Any) -> None:
            connection.execute(
                "INSERT INTO acp_sessions (acp_session_id, conversation_name, created_at, updated_at)"
                " VALUES ('../old id', 'acp-old', 0, 0)"
            )

        await on_writer(r.database, adopt)
        refused = await wire.call("session/prompt", **prompt("../old id", "say 1"))
        assert "in your client" in refused["error"]["message"]
        await wire.call("session/load", sessionId="../old id", cwd="/usr", mcpServers=[])
        await wire.call("session/prompt", **prompt("../old id", "say 1"))
        launched = r.launcher.launched[0]
        assert launched.spec.options.cwd == "/usr"
        assert ".." not in launched.files.socket
        assert ".." not in launched.files.temporary


async def test_servers_changed_during_turn_reach_next_worker(tmp_path: Path) -> None:
    server = {"name": "s", "command": "/bin/true", "args": [], "env": [{"name": "K", "value": "v"}]}
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        running = wire.begin("session/prompt", **prompt(session, "hang"))
        await eventually(lambda: r.launcher.launched and r.launcher.launched[0].acked)
        await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[server])
        channel = r.launcher.launched[0]
        channel.say(channel.ended(next(iter(await r.states()))))
        await wire.answer(running)
        await wire.call("session/prompt", **prompt(session, "say 1"))
        assert [s.name for s in r.launcher.launched[-1].spec.options.mcp_servers] == ["s"]
        assert len(r.launcher.launched) == 2
