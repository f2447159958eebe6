"""Lines and JSON-RPC: what every connection is made of."""

from __future__ import annotations

import json
from typing import Any

from tests.conformance.agents import Agent
from tests.conformance.peer import Peer, error_of
from tests.conformance.recording import Recording
from tests.conformance.registry import alone, check, must, must_always, should
from tests.schema import validation

MIB = 1024 * 1024


@must_always
def stdout_carries_only_messages(recording: Recording) -> None:
    """Each line of the agent's output is one JSON-RPC 2.0 message."""
    for line in recording.lines:
        if line.by_agent:
            check(line.frame is not None, f"no JSON object: {line.raw[:300]!r}")
            check((line.frame or {}).get("jsonrpc") == "2.0", f"not 2.0: {line.raw[:300]!r}")


@must_always
def messages_are_utf_8(recording: Recording) -> None:
    """The agent writes UTF-8."""
    for line in recording.lines:
        try:
            line.raw.decode()
        except UnicodeDecodeError:
            check(False, f"not UTF-8: {line.raw[:300]!r}")


@must_always
def every_message_ends_with_a_newline(recording: Recording) -> None:
    """The agent ends each message with a line feed, also its last one."""
    for line in recording.lines:
        check(line.raw.endswith(b"\n"), f"without a line feed: {line.raw[-300:]!r}")


@must_always
def no_line_is_longer_than_32_mib(recording: Recording) -> None:
    """The agent writes no line above 32 MiB: the official TypeScript SDK closes at it."""
    for line in recording.lines:
        if line.by_agent:
            check(len(line.raw) <= 32 * MIB, f"a line of {len(line.raw)} bytes")


@must_always
def messages_are_requests_notifications_or_answers(recording: Recording) -> None:
    """A message of the agent has `method`, or `id` and exactly one of `result` and `error`; and
    nothing that JSON-RPC does not know.
    """
    for frame in recording.from_agent():
        keys = set(frame) - {"jsonrpc"}
        call = "method" in keys and keys <= {"id", "method", "params"}
        answer = keys in ({"id", "result"}, {"id", "error"})
        check(call or answer, f"neither call nor answer: {frame}")


@must_always
def no_request_is_answered_twice(recording: Recording) -> None:
    """Each id of the client is answered once, and no other id is."""
    asked: list[str] = []
    for line in recording.lines:
        frame = line.frame
        if frame is None or "id" not in frame:
            continue
        key = json.dumps(frame["id"])
        if not line.by_agent and "method" in frame:
            asked.append(key)
        elif line.by_agent and "method" not in frame and key != "null":
            check(key in asked, f"an answer that nobody waits for, or the second one: {frame}")
            asked.remove(key)


@must_always
def every_request_is_answered(recording: Recording) -> None:
    """No request of the client stays without an answer."""
    answered = [json.dumps(request["id"]) for request, _ in recording.answers()]
    for line in recording.lines:
        frame = line.frame
        if frame is None or line.by_agent or "method" not in frame or "id" not in frame:
            continue
        key = json.dumps(frame["id"])
        check(key in answered, f"no answer to {frame}")
        answered.remove(key)


@must_always
def ids_of_the_agent_are_not_reused_while_pending(recording: Recording) -> None:
    """Two pending requests of the agent have different ids."""
    pending: set[str] = set()
    for line in recording.lines:
        frame = line.frame
        if frame is None or frame.get("id") is None:
            continue
        key = json.dumps(frame["id"])
        if line.by_agent and "method" in frame:
            check(key not in pending, f"the id is that of a pending request: {frame}")
            pending.add(key)
        elif not line.by_agent and "method" not in frame:
            pending.discard(key)


@must_always
def errors_have_a_code_and_one_line(recording: Recording) -> None:
    """An error has an integer code and a message of one line that is not empty."""
    for frame in recording.from_agent():
        if "error" in frame:
            problem = validation.error_problem(frame["error"])
            check(problem is None, f"{problem}: {frame}")
            words = frame["error"]["message"]
            check(words.strip() and "\n" not in words, f"not one line of text: {frame}")


async def _echo(peer: Peer, message_id: Any) -> None:
    future = peer.begin_as(message_id, {"method": "_conformance/echo", "params": {}})
    answer = await peer.answer(future, f"a request with the id {message_id!r}")
    check(json.dumps(answer["id"]) == json.dumps(message_id), f"{message_id!r} came back: {answer}")


@must
async def ids_are_echoed_exactly(agent: Agent) -> None:
    """Ids are texts and integers, and come back as they were sent."""
    async with agent.client() as peer:
        for message_id in ("a", "", '\u00e9\U0001f600"\\', "7", 0, -7, 2**53):
            await _echo(peer, message_id)


@must
async def the_id_null_is_echoed(agent: Agent) -> None:
    """A request whose id is null is a request: it is answered under null."""
    async with agent.client() as peer:
        await _echo(peer, None)


async def _unplaced(peer: Peer, line: bytes, code: int) -> None:
    future = peer.expect(None)
    peer.write(line + b"\n")
    answer = await peer.answer(future, f"the line {line[:80]!r}")
    error = error_of(answer, repr(line[:80]))
    check(error["code"] == code, f"{line[:80]!r} is answered with {error}, not with {code}")
    await peer.fence()


@must
async def bad_json_is_a_parse_error(agent: Agent) -> None:
    """A line that is no JSON is answered with -32700 under the id null, and the connection lives
    on.
    """
    async with agent.client() as peer:
        for line in (b"{", b"not json", b'{"jsonrpc":"2.0","id":1,"method":"x"'):
            await _unplaced(peer, line, -32700)


@must
async def a_line_that_is_no_object_is_an_invalid_request(agent: Agent) -> None:
    """JSON that is no object is answered with -32600 under the id null."""
    async with agent.client() as peer:
        for line in (b"42", b'"text"', b"true", b"null"):
            await _unplaced(peer, line, -32600)


@must
async def a_batch_is_one_invalid_request(agent: Agent) -> None:
    """ACP has no batches: an array gets one -32600 under the id null, and nothing in it is done."""
    async with agent.client() as peer:
        since = peer.seen()
        entries = [
            {"jsonrpc": "2.0", "id": f"entry-{n}", "method": "_conformance/entry"} for n in (1, 2)
        ]
        await _unplaced(peer, json.dumps(entries).encode(), -32600)
        later = [one.frame or {} for one in peer.recording.lines[since:] if one.by_agent]
        ids = [frame["id"] for frame in later if "method" not in frame]
        check(ids.count(None) == 1, f"an array was answered {ids.count(None)} times")
        check(not any("entry" in str(one) for one in ids), f"a part was answered: {later}")


@must
async def answers_that_nobody_asked_for_are_ignored(agent: Agent) -> None:
    """What has the form of an answer is never answered."""
    async with agent.client() as peer:
        since = peer.seen()
        peer.send({"jsonrpc": "2.0", "id": "never", "result": {}})
        peer.send({"jsonrpc": "2.0", "id": 77, "error": {"code": 1, "message": "no"}})
        peer.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no"}})
        await _nothing_but_the_fence(peer, since)


async def _nothing_but_the_fence(peer: Peer, since: int) -> None:
    await peer.fence()
    frames = [one.frame or {} for one in peer.recording.lines[since:] if one.by_agent]
    answers = [frame for frame in frames if "method" not in frame]
    check(len(answers) == 1, f"something was answered that must not be: {answers[:-1]}")


@must
async def notifications_get_no_answer(agent: Agent) -> None:
    """Nothing is said to a notification, known or unknown, right or wrong."""
    async with agent.client() as peer:
        since = peer.seen()
        peer.notify("session/cancel", sessionId="no-such-session")
        peer.notify("session/cancel", sessionId=["wrong"])
        peer.notify("session/new", cwd="/", mcpServers=[])
        await _nothing_but_the_fence(peer, since)


@must
async def unknown_notifications_are_ignored(agent: Agent) -> None:
    """A notification that the agent does not know is ignored in silence."""
    async with agent.client() as peer:
        since = peer.seen()
        peer.notify("session/dance", step=1)
        peer.notify("_conformance/dance", step=1)
        peer.notify("$/dance")
        await _nothing_but_the_fence(peer, since)


@must
async def unknown_requests_are_method_not_found(agent: Agent) -> None:
    """A request that the agent does not know is answered with -32601."""
    async with agent.client() as peer:
        error = await peer.refused("session/dance")
        check(error["code"] == -32601, f"not -32601: {error}")


@must
async def custom_requests_are_answered(agent: Agent) -> None:
    """A request whose method begins with `_` gets an answer."""
    async with agent.client() as peer:
        await peer.ask("_conformance/custom", x=1)


@must
async def absent_params_count_as_empty(agent: Agent) -> None:
    """A request without `params`, or with null, is as one with `{}`."""
    async with agent.client() as peer:
        codes = []
        wordings: tuple[dict[str, Any], ...] = ({"params": {}}, {"params": None}, {})
        for number, params in enumerate(wordings):
            future = peer.begin_as(f"empty-{number}", {"method": "session/new", **params})
            answer = await peer.answer(future, f"session/new with {params}")
            codes.append(error_of(answer, f"session/new with {params}")["code"])
        check(codes == [-32602] * 3, f"codes of {{}}, null and absent: {codes}, not -32602")


@must
@alone
async def unknown_fields_are_tolerated(agent: Agent) -> None:
    """Fields of a later ACP, and `_meta`, do no harm."""
    async with agent.raw() as peer:
        later = {"future": {"a": [1]}, "_meta": {"conformance": {"deep": [None]}}}
        await peer.initialize(clientCapabilities={"future": {}, **later}, **later)
        await agent.session(peer, **later)


@should
async def long_lines_are_accepted(agent: Agent) -> None:
    """A message of 31 MiB is answered under its id, and the connection lives on."""
    async with agent.client() as peer:
        block = {"type": "text", "text": "x" * 31 * MIB}
        message = {"sessionId": "no-such-session", "prompt": [block]}
        error = await peer.refused("session/prompt", **message)
        check(error["code"] != -32600, f"the message was not read: {error}")
        await peer.fence()


@should
@alone
async def the_end_of_input_ends_the_agent(agent: Agent) -> None:
    """An agent whose input has ended exits."""
    async with agent.fresh() as peer:
        check(await peer.ended(), f"it still runs after {peer.patience:g} s")


@should
@alone
async def nothing_is_served_before_initialize(agent: Agent) -> None:
    """A request before `initialize` is answered with -32600, and `initialize` works after it."""
    async with agent.raw() as peer:
        error = await peer.refused("session/new", cwd=str(agent.directory()), mcpServers=[])
        check(error["code"] == -32600, f"not -32600: {error}")
        await peer.initialize()
