"""What the agent sends by itself: the schema, what it refers to, and what clients must have
advertised before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.conformance.peer import Frame
from tests.conformance.recording import Recording
from tests.conformance.registry import check, must_always, should_always
from tests.schema import validation

# What a client must have advertised before the agent may send or ask it.
GATED_METHODS = {
    "fs/read_text_file": "fs.readTextFile",
    "fs/write_text_file": "fs.writeTextFile",
    "terminal/create": "terminal",
    "terminal/output": "terminal",
    "terminal/wait_for_exit": "terminal",
    "terminal/kill": "terminal",
    "terminal/release": "terminal",
}
GATED_UPDATES = {
    "notice": "session.notices",
    "compaction_update": "session.compaction",
    "compaction_summary_chunk": "session.compaction",
    "plan_update": "plan",
    "plan_removed": "plan",
    "subagent_update": "subagents",
    "session_message": "subagents",
    "session_message_chunk": "subagents",
}


# --- the schema


@must_always
def calls_fit_the_schema(recording: Recording) -> None:
    """Parameters of the agent's requests and notifications fit the official JSON schema, and have
    no fields that it does not know.
    """
    for frame in recording.calls():
        problem = validation.call_problem(frame["method"], frame.get("params", {}))
        check(problem is None, f"{problem}: {str(frame)[:2000]}")


@must_always
def results_fit_the_schema(recording: Recording) -> None:
    """The agent's results fit the official JSON schema, and have no fields that it does not
    know.
    """
    for request, answer in recording.answers():
        if "result" in answer:
            problem = validation.result_problem(request["method"], answer["result"])
            check(problem is None, f"{problem}: {str(answer)[:2000]}")


@must_always
def own_methods_begin_with_an_underscore(recording: Recording) -> None:
    """A method that ACP does not have begins with `_`."""
    for frame in recording.calls():
        method = frame["method"]
        known = validation.unstable().call(method) is not None
        check(known or method.startswith("_"), f"an unknown method without `_`: {method}")


# --- what it refers to


@must_always
def updates_name_a_session_of_the_client(recording: Recording) -> None:
    """What is about a session names one that the client has opened, or is opening."""
    known: set[str] = set()
    for line in recording.lines:
        frame = line.frame or {}
        params, result = frame.get("params"), frame.get("result")
        session = params.get("sessionId") if isinstance(params, dict) else None
        if not line.by_agent and "id" in frame and isinstance(session, str):
            known.add(session)
        elif line.by_agent and isinstance(result, dict) and "sessionId" in result:
            known.add(str(result["sessionId"]))
        elif line.by_agent and isinstance(session, str):
            check(session in known, f"the client has no such session: {frame}")


@must_always
def tool_calls_are_announced(recording: Recording) -> None:
    """A `tool_call_update` is about a tool call that a `tool_call` has announced before."""
    known: set[tuple[str, Any]] = set()
    for session, update in recording.updates("tool_call", "tool_call_update"):
        key = (session, update.get("toolCallId"))
        if update["sessionUpdate"] == "tool_call":
            known.add(key)
        else:
            check(key in known, f"an update of a tool call that was not announced: {update}")


@must_always
def message_ids_belong_to_one_message(recording: Recording) -> None:
    """Two messages of different speakers have different ids."""
    speakers: dict[tuple[str, str], str] = {}
    for session, update in recording.updates("user_message_chunk", "agent_message_chunk"):
        if (message := update.get("messageId")) is not None:
            kind = speakers.setdefault((session, message), update["sessionUpdate"])
            check(kind == update["sessionUpdate"], f"the id of another message: {update}")


def _places(value: Any) -> Iterator[Frame]:
    """Locations and diffs of tool calls, wherever they are."""
    for one in (value.get("locations") or []) if isinstance(value, dict) else []:
        yield one
    for one in (value.get("content") or []) if isinstance(value, dict) else []:
        if isinstance(one, dict) and one.get("type") == "diff":
            yield one


def _tool_calls(recording: Recording) -> Iterator[Frame]:
    for _, update in recording.updates("tool_call", "tool_call_update"):
        yield update
    for frame in recording.calls("session/request_permission"):
        yield frame["params"]["toolCall"]


@must_always
def paths_are_absolute(recording: Recording) -> None:
    """Paths of locations, diffs and file requests are absolute."""
    paths = [one.get("path") for call in _tool_calls(recording) for one in _places(call)]
    for method in ("fs/read_text_file", "fs/write_text_file"):
        paths += [frame["params"].get("path") for frame in recording.calls(method)]
    for path in paths:
        check(str(path).startswith("/"), f"not absolute: {path!r}")


@must_always
def lines_count_from_one(recording: Recording) -> None:
    """Line numbers of locations and file requests begin with 1."""
    lines = [one.get("line") for call in _tool_calls(recording) for one in _places(call)]
    lines += [frame["params"].get("line") for frame in recording.calls("fs/read_text_file")]
    for line in lines:
        check(line is None or line >= 1, f"line {line}")


@must_always
def costs_have_a_currency(recording: Recording) -> None:
    """The currency of a cost is a code of ISO 4217."""
    for _, update in recording.updates("usage_update"):
        if cost := update.get("cost"):
            currency = cost.get("currency")
            check(re.fullmatch("[A-Z]{3}", str(currency)), f"the currency is {currency!r}")


@should_always
def tool_calls_end_with_their_turn(recording: Recording) -> None:
    """A tool call of a turn that has ended with `end_turn` is `completed` or `failed`, or said to
    be in progress still, as a command in the background is.
    """
    states: dict[str, dict[Any, tuple[str, bool]]] = {}
    prompts = {id(answer): request for request, answer in recording.answers()}
    for line in recording.lines:
        frame = line.frame or {}
        if not line.by_agent:
            continue
        params = frame.get("params") or {}
        is_update = frame.get("method") == "session/update" and isinstance(params, dict)
        update = params.get("update") or {} if is_update else {}
        if update.get("sessionUpdate") in {"tool_call", "tool_call_update"}:
            calls = states.setdefault(params["sessionId"], {})
            before = calls.get(update["toolCallId"], ("pending", False))[0]
            later = update["sessionUpdate"] == "tool_call_update"
            calls[update["toolCallId"]] = (update.get("status") or before, later)
        request = prompts.get(id(frame)) or {}
        if request.get("method") == "session/prompt":
            calls = states.pop(request["params"].get("sessionId"), {})
            result = frame.get("result") or {}
            for call, (status, later) in calls.items():
                over = status in {"completed", "failed"} or (later and status == "in_progress")
                ended = result.get("stopReason") == "end_turn"
                check(over or not ended, f"the turn has ended, {call} is {status}")


@must_always
def compactions_end_once(recording: Recording) -> None:
    """A compaction begins, and ends with one of its final states; its id is not used again."""
    states: dict[tuple[str, Any], str] = {}
    kinds = ("compaction_update", "compaction_summary_chunk")
    for session, update in recording.updates(*kinds):
        key = (session, update.get("compactionId"))
        before = states.get(key)
        check(before in {None, "in_progress"}, f"it had ended as {before}: {update}")
        if update["sessionUpdate"] == "compaction_update":
            states[key] = update["status"]
        else:
            check(before is not None, f"a summary of a compaction that has not begun: {update}")


@must_always
def terminals_are_released(recording: Recording) -> None:
    """The agent releases each terminal that it has created."""
    created = len(list(recording.calls("terminal/create")))
    released = len(list(recording.calls("terminal/release")))
    check(released >= created, f"{created} terminals created, {released} released")


# --- what clients must have advertised


@must_always
def methods_are_called_as_advertised(recording: Recording) -> None:
    """Files and terminals of the client are used only if it has advertised them."""
    for frame in recording.calls():
        capability = GATED_METHODS.get(frame["method"])
        allowed = capability is None or recording.has(capability)
        check(allowed, f"{frame['method']} without the client's {capability}")


@must_always
def updates_are_sent_as_advertised(recording: Recording) -> None:
    """Kinds of updates that a client must know about are sent only if it has advertised them."""
    for _, update in recording.updates():
        capability = GATED_UPDATES.get(str(update.get("sessionUpdate")))
        allowed = capability is None or recording.has(capability)
        check(allowed, f"{update.get('sessionUpdate')} without the client's {capability}")


@must_always
def forms_are_shown_as_advertised(recording: Recording) -> None:
    """`elicitation/create` is used only in a mode that the client has advertised."""
    for frame in recording.calls("elicitation/create"):
        mode = frame["params"].get("mode")
        check(recording.has(f"elicitation.{mode}"), f"the client has no elicitation.{mode}")


@must_always
def elicitations_are_safe(recording: Recording) -> None:
    """The addresses of elicitations are https, without credentials."""
    for frame in recording.calls("elicitation/create"):
        if frame["params"].get("mode") == "url":
            url = str(frame["params"].get("url"))
            check(re.match(r"https://[^/@]+(/|$)", url), f"the address is {url!r}")


@must_always
def forms_ask_for_no_secrets(recording: Recording) -> None:
    """A form asks for no password, key or token: those are for a page."""
    for frame in recording.calls("elicitation/create"):
        if frame["params"].get("mode") == "form":
            asked = frame["params"]["requestedSchema"].get("properties") or {}
            for name, field in asked.items():
                words = f"{name} {field.get('title')} {field.get('description')}"
                secret = re.search(r"(?i)password|passphrase|secret|api.?key|token", words)
                check(not secret, f"a form asks for {words!r}")


@must_always
def states_of_the_login_are_sent_as_advertised(recording: Recording) -> None:
    """`auth/status_update` is sent only by agents that advertise `auth.status`."""
    offered = recording.agent.get("agentCapabilities") or {}
    for _ in recording.calls("auth/status_update"):
        check((offered.get("auth") or {}).get("status") is not None, "auth.status is missing")
