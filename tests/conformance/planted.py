"""For each rule a fault that breaks it."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.conformance.fake.faults import (
    Answers,
    Calls,
    Hears,
    Said,
    Updates,
    accepts,
    after,
    before,
    chunk,
    code,
    done,
    failing,
    own,
    refuses,
    result,
    session_of,
    silent,
    update,
)
from tests.conformance.fake.installation import Frame
from tests.conformance.fake.wire import Fault, MemoryWire
from tests.conformance.planted_own import OWN

MIB = 1024 * 1024
PERMISSION = "session/request_permission"


def _twice(frame: Frame, *_: Any) -> Said:
    return [frame, frame]


def _first(frame: Frame, _: Frame) -> Said:
    """A line of a library, before the first message."""
    return [b"Loading the models...\n", frame]


class Replayed(Fault):
    """Changes what a load or resume replays."""

    def __init__(self, method: str, *, drop: str = "", late: bool = False) -> None:
        self._method, self._drop, self._late = method, drop, late

    def into(self, frame: Frame, wire: MemoryWire) -> Frame | None:
        if frame.get("method") == self._method:
            wire.memory.update(on=True, kept=[])
        return frame

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        if request.get("method") == self._method:
            wire.memory["on"] = False
            return [frame, *wire.memory["kept"]]
        if wire.memory.get("on") and frame.get("method") == "session/update":
            if frame["params"]["update"]["sessionUpdate"] == self._drop:
                return []
            if self._late:
                wire.memory["kept"].append(frame)
                return []
        return [frame]


class Second(Fault):
    """Treats the second request of a method otherwise."""

    def __init__(self, method: str) -> None:
        self._method = method

    def into(self, frame: Frame, wire: MemoryWire) -> Frame | None:
        if frame.get("method") == self._method:
            wire.memory["count"] = wire.memory.get("count", 0) + 1
            if wire.memory["count"] > 1:
                wire.say(failing(frame, -32600))
                return None
        return frame


class Running(Fault):
    """While a prompt runs, this other method is answered only with it, or harms it."""

    def __init__(self, method: str, *, harm: bool = False) -> None:
        self._method, self._harm = method, harm

    def into(self, frame: Frame, wire: MemoryWire) -> Frame | None:
        running = wire.memory.get("running", 0)
        if frame.get("method") == self._method and running:
            if not self._harm:
                return None
            session = frame["params"]["sessionId"]
            cancel = {
                "jsonrpc": "2.0",
                "method": "session/cancel",
                "params": {"sessionId": session},
            }
            wire.memory["running"] += 1
            wire.say(done(frame, stopReason="end_turn"))
            return cancel
        if frame.get("method") == "session/prompt":
            wire.memory["running"] = running + 1
        return frame

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        if request.get("method") == "session/prompt":
            wire.memory["running"] = wire.memory.get("running", 1) - 1
            if self._harm and "result" in frame:
                return [{**frame, "result": {"stopReason": "end_turn"}}]
        return [frame]


class Forgets(Fault):
    """The model does not get what was said on other connections."""

    def __init__(self, method: str) -> None:
        self._method = method

    def into(self, frame: Frame, wire: MemoryWire) -> Frame | None:
        if frame.get("method") == self._method:
            wire.memory["opened"] = True
        return frame

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        told = frame.get("method") == "session/update" and wire.memory.get("opened")
        return [json.loads(json.dumps(frame).replace("ananas", "?"))] if told else [frame]


class NoLogins(Answers):
    """An agent without logins that demands one."""

    logins = False

    def __init__(self) -> None:
        super().__init__("session/new", lambda frame, _: [failing(frame, -32000)])


class Deaf(Fault):
    deaf = True


class Cut(Fault):
    tail = b'{"jsonrpc":"2.0","method":"_over","params":{}}'


class Batches(Fault):
    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        invalid = (frame.get("error") or {}).get("code") == -32600 and frame.get("id") is None
        return [frame, frame] if invalid else [frame]


class Unplaced(Fault):
    """Another code under the id null."""

    def __init__(self, number: int, given: int) -> None:
        self._number, self._given = number, given

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        error = frame.get("error") or {}
        if frame.get("id") is None and error.get("code") == self._number:
            return [{**frame, "error": {**error, "code": self._given}}]
        return [frame]


class ReplacedIds(Fault):
    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        known = "method" in frame or frame["id"] != 2**53
        return [frame] if known else [{**frame, "id": float(2**53)}]


class NullIds(Fault):
    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        return [] if request and frame.get("id") is None else [frame]


class Stray(Fault):
    def into(self, frame: Frame, wire: MemoryWire) -> Frame | None:
        if "method" not in frame and frame.get("id") == "never":
            wire.say(failing(frame, -32600))
            return None
        return frame


class NoParams(Fault):
    def into(self, frame: Frame, wire: MemoryWire) -> Frame | None:
        if "method" in frame and "id" in frame and frame.get("params") is None:
            wire.say(failing(frame, -32600))
            return None
        return frame


class Closing(Fault):
    """Closes sessions without a word to the prompt that runs."""

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        if request.get("method") == "session/close":
            wire.memory["closed"] = True
        if request.get("method") == "session/prompt" and wire.memory.get("closed"):
            return [failing(frame)]
        return [frame]


class Stored(Fault):
    """Forgets the mode when the session is opened again."""

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        if request.get("method") == "session/load" and "result" in frame:
            made = json.loads(json.dumps(frame))
            made["result"]["modes"]["currentModeId"] = "ask"
            made["result"]["configOptions"][0]["currentValue"] = "ask"
            return [made]
        return [frame]


class Cancelled(Fault):
    """What the client says about a cancelled turn is lost, or is answered otherwise."""

    def __init__(self, answer: Frame | None) -> None:
        self._answer = answer

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        reason = (frame.get("result") or {}).get("stopReason")
        if request.get("method") == "session/prompt" and reason == "cancelled":
            if self._answer is None:
                return []
            return [{"jsonrpc": "2.0", "id": frame["id"], **self._answer}]
        return [frame]


class Broken(Cancelled):
    """A session that was cancelled takes nothing more."""

    def __init__(self) -> None:
        super().__init__({"result": {"stopReason": "cancelled"}})

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        reason = (frame.get("result") or {}).get("stopReason")
        if request.get("method") == "session/prompt" and reason == "end_turn":
            return [failing(frame)] if wire.memory.get("broken") else [frame]
        if reason == "cancelled":
            wire.memory["broken"] = True
        return [frame]


class Idle(Fault):
    """A cancel without a turn hits the next one."""

    def into(self, frame: Frame, wire: MemoryWire) -> Frame | None:
        if frame.get("method") == "session/cancel":
            wire.memory["cancelled"] = True
        return frame

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        if request.get("method") == "session/prompt" and wire.memory.pop("cancelled", False):
            return [{**frame, "result": {"stopReason": "cancelled"}}]
        return [frame]


class Pending(Fault):
    """Runs a tool whose permission request was answered with `cancelled`."""

    def into(self, frame: Frame, wire: MemoryWire) -> Frame | None:
        if frame.get("method") == "session/cancel":
            return None
        outcome = ((frame.get("result") or {}).get("outcome") or {}).get("outcome")
        if outcome == "cancelled":
            return {**frame, "result": _allowing()}
        return frame


class Kept(Fault):
    """Keeps terminals."""

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        if frame.get("method") != "terminal/release":
            return [frame]
        wire.write(json.dumps(done(frame)).encode())
        return []


class Early(Fault):
    """Answers prompts at once."""

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        return [] if request.get("method") == "session/prompt" else [frame]

    def into(self, frame: Frame, wire: MemoryWire) -> Frame | None:
        if frame.get("method") == "session/prompt":
            wire.say(done(frame, stopReason="end_turn"))
        return frame


class LoginStates(Fault):
    """Tells of logins without having said so."""

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        if request.get("method") == "initialize" and "result" in frame:
            less = {**frame["result"]["agentCapabilities"], "auth": {}}
            frame = {**frame, "result": {**frame["result"], "agentCapabilities": less}}
            return [frame, own("auth/status_update", state="authenticated")]
        return [frame]


def _allowing() -> Frame:
    return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}


def _decides(meant: str, given: str) -> Fault:
    """Takes one decision for another."""

    def change(frame: Frame) -> Frame:
        outcome = (frame.get("result") or {}).get("outcome")
        if outcome and meant in {outcome.get("outcome"), outcome.get("optionId")}:
            chosen = {"outcome": "selected", "optionId": given}
            return {**frame, "result": {"outcome": chosen}}
        return frame

    return Hears(None, change)


def _echo_version(frame: Frame, request: Frame) -> Said:
    asked = request["params"].get("protocolVersion")
    if "result" not in frame:
        return [frame]
    return [{**frame, "result": {**frame["result"], "protocolVersion": asked}}]


def _version(wanted: int, given: Any) -> Fault:
    def change(frame: Frame, request: Frame) -> Said:
        if "result" not in frame or request["params"].get("protocolVersion") != wanted:
            return [frame]
        return [{**frame, "result": {**frame["result"], "protocolVersion": given}}]

    return Answers("initialize", change)


def _without(method: str, name: str) -> Fault:
    return result(method, lambda made: {key: one for key, one in made.items() if key != name})


def _with(method: str, **fields: Any) -> Fault:
    return result(method, lambda made: {**made, **fields})


def _edit(frame: Frame, **params: Any) -> Frame:
    return {**frame, "params": {**frame["params"], **params}}


def _hears(method: str, bad: Any, number: int = -32603) -> Fault:
    """An error to requests that this is true of."""
    return Hears(method, lambda frame: failing(frame, number) if bad(frame["params"]) else frame)


def _skipping(method: str, bad: Any) -> Fault:
    """Drops what this is true of from the parameters."""
    return Hears(method, lambda frame: _edit(frame, **bad(frame["params"])))


def _without_meta(method: str) -> Fault:
    """Does not look at `_meta`."""
    return _skipping(method, lambda _: {"_meta": {}})


def _headless(params: Frame) -> Frame:
    return {"mcpServers": [{**one, "headers": []} for one in params.get("mcpServers", [])]}


def _terminal_always(made: Frame) -> Frame:
    return {
        **made,
        "authMethods": [{"type": "terminal", "id": "shell", "name": "A shell"}],
    }


def _modes(made: Frame, **fields: Any) -> Frame:
    return {**made, "modes": {**made["modes"], **fields}}


def _options(made: Frame, number: int, **fields: Any) -> Frame:
    options = [dict(one) for one in made["configOptions"]]
    options[number].update(fields)
    return {**made, "configOptions": options}


def _located(one: Frame, **fields: Any) -> Frame:
    return {**one, "locations": [{"path": "/x", **fields}]} if one.get("locations") else one


def _sessions(made: Frame, **fields: Any) -> Frame:
    return {**made, "sessions": [{**one, **fields} for one in made["sessions"]]}


def _list(change: Any) -> Fault:
    return result("session/list", change)


def _archived(frame: Frame) -> Frame:
    """Takes `only` for the default."""
    params = {key: one for key, one in frame["params"].items() if key != "archived"}
    return {**frame, "params": params}


def _kept_option(frame: Frame, request: Frame) -> Said:
    """Only the option that was set."""
    if "result" not in frame:
        return [frame]
    wanted = request["params"]["configId"]
    kept = [one for one in frame["result"]["configOptions"] if one["id"] == wanted]
    return [{**frame, "result": {"configOptions": kept}}]


def _stale_mode(frame: Frame, request: Frame) -> Said:
    """The option for the mode says what was first."""
    if "result" not in frame or request["params"]["configId"] == "mode":
        return [frame]
    return [{**frame, "result": _options(frame["result"], 0, currentValue="ask")}]


def _fake_switch(made: Frame) -> Frame:
    switch = {"id": "turbo", "name": "Turbo", "type": "boolean", "currentValue": False}
    return {**made, "configOptions": [*made["configOptions"], switch]}


def _once_more(session: str) -> Frame:
    return update(session, sessionUpdate="tool_call_update", toolCallId="never", status="failed")


def _compacted(session: str) -> Frame:
    content = {"type": "text", "text": "x"}
    kind = "compaction_summary_chunk"
    return update(session, sessionUpdate=kind, compactionId="never", content=content)


def _form(**params: Any) -> Frame:
    made = {"jsonrpc": "2.0", "id": "form", "method": "elicitation/create"}
    return {**made, "params": {"message": "Who?", **params}}


def _asked_form(session: str) -> Frame:
    schema = {"type": "object", "properties": {}}
    return _form(mode="form", sessionId=session, requestedSchema=schema)


def _read(session: str, **more: Any) -> Frame:
    params = {"sessionId": session, "path": "/etc/hosts", **more}
    return {"jsonrpc": "2.0", "id": "read", "method": "fs/read_text_file", "params": params}


def _no_reason(reason: str) -> Fault:
    """An error in the place of this stop reason."""

    def changed(frame: Frame, _: Frame) -> Said:
        return [failing(frame) if reason in str(frame.get("result")) else frame]

    return Answers("session/prompt", changed)


def _report_of_all(frame: Frame, request: Frame) -> Said:
    """Says the words of the copy wherever the original is reported."""
    return [chunk(session_of(request, frame), "ananas"), frame]


PROMPT = "session/prompt"
NEW = "session/new"
LOAD = "session/load"
SECRET_FORM: Frame = {"type": "object", "properties": {"key": {"title": "Your API key"}}}
NOT_FOUND = {"code": -32002, "message": "No."}

PLANTED: Final[dict[str, Fault]] = {
    **OWN,
    # transport
    "stdout_carries_only_messages": Answers("initialize", _first),
    "messages_are_utf_8": after("initialize", lambda _: b'{"jsonrpc":"2.0","method":"_\xff"}\n'),
    "every_message_ends_with_a_newline": Cut(),
    "no_line_is_longer_than_32_mib": after(
        "initialize", lambda _: b'{"jsonrpc":"2.0","method":"_' + b"x" * 33 * MIB + b'"}\n'
    ),
    "messages_are_requests_notifications_or_answers": Answers(
        NEW, lambda frame, _: [{**frame, "took": 7}]
    ),
    "no_request_is_answered_twice": Answers(NEW, _twice),
    "every_request_is_answered": silent("_conformance/unknown"),
    "ids_of_the_agent_are_not_reused_while_pending": Calls(PERMISSION, _twice),
    "errors_have_a_code_and_one_line": Answers(
        "_conformance/unknown",
        lambda frame, _: [{**frame, "error": {"code": -32601, "message": "No\nway."}}],
    ),
    "ids_are_echoed_exactly": ReplacedIds(),
    "the_id_null_is_echoed": NullIds(),
    "bad_json_is_a_parse_error": Unplaced(-32700, -32603),
    "a_line_that_is_no_object_is_an_invalid_request": Unplaced(-32600, -32700),
    "a_batch_is_one_invalid_request": Batches(),
    "answers_that_nobody_asked_for_are_ignored": Stray(),
    "notifications_get_no_answer": Hears("session/cancel", failing),
    "unknown_notifications_are_ignored": Hears("session/dance", failing),
    "unknown_requests_are_method_not_found": code("session/dance", -32603),
    "custom_requests_are_answered": silent("_conformance/custom"),
    "absent_params_count_as_empty": NoParams(),
    "unknown_fields_are_tolerated": _hears("initialize", lambda params: "future" in params),
    "long_lines_are_accepted": _hears(PROMPT, lambda params: len(str(params)) > MIB, -32600),
    "the_end_of_input_ends_the_agent": Deaf(),
    "nothing_is_served_before_initialize": accepts(NEW, {"sessionId": "early"}),
    # initializing
    "a_supported_version_is_answered_with_itself": _version(1, 2),
    "an_unknown_version_is_answered_with_an_own_one": Answers("initialize", _echo_version),
    "a_later_client_is_understood": _hears("initialize", lambda asked: "info" in asked),
    "the_agent_says_who_it_is": _without("initialize", "agentInfo"),
    "initialize_may_be_repeated": Second("initialize"),
    "malformed_capabilities_fall_back": _hears(
        "initialize", lambda asked: not isinstance(asked.get("clientInfo", {}), dict)
    ),
    "a_malformed_version_is_invalid": accepts("initialize", {"protocolVersion": 1}),
    "terminal_logins_only_where_there_is_a_terminal": result("initialize", _terminal_always),
    "no_login_is_demanded_where_none_is_offered": NoLogins(),
    "a_login_opens_the_agent": refuses(NEW, {"code": -32000, "message": "Log in."}),
    "an_unknown_login_is_invalid": accepts("authenticate", {}),
    "a_logout_closes_the_agent": Hears("logout", done),
    "the_state_of_the_login_is_told_to_everybody": refuses("auth/status"),
    "providers_are_listed_and_guarded": accepts("providers/disable", {}),
    # sessions
    "session_ids_are_unique": _with(NEW, sessionId="the-session"),
    "a_session_works_in_its_directory": _skipping(NEW, lambda _: {"cwd": "/tmp"}),
    "relative_directories_are_invalid": accepts(NEW, {"sessionId": "x"}),
    "required_parameters_are_demanded": _skipping(
        NEW, lambda params: {"mcpServers": params.get("mcpServers", [])}
    ),
    "malformed_mcp_servers_are_invalid": _skipping(NEW, lambda _: {"mcpServers": []}),
    "directories_that_are_left_out_are_none": Hears(
        "session/resume",
        lambda frame: _edit(frame, **{"additionalDirectories": ["/tmp"], **frame["params"]}),
    ),
    "malformed_directories_are_invalid": _skipping(NEW, lambda _: {"additionalDirectories": []}),
    "mcp_servers_on_stdio_are_started": _skipping(NEW, lambda _: {"mcpServers": []}),
    "mcp_servers_over_http_are_connected": _skipping(NEW, lambda _: {"mcpServers": []}),
    "mcp_servers_over_sse_are_connected": _skipping(NEW, _headless),
    "unknown_transports_are_invalid": _skipping(NEW, lambda _: {"mcpServers": []}),
    "meta_is_no_parameter": Hears(
        PROMPT, lambda frame: _edit(frame, **frame["params"].get("_meta", {}))
    ),
    "a_prompt_for_an_unknown_session_is_not_found": code(PROMPT, -32603),
    "loading_an_unknown_session_is_not_found": code(LOAD, -32602),
    "resuming_an_unknown_session_is_not_found": code("session/resume", -32602),
    "a_session_is_not_loaded_in_another_directory": accepts(LOAD, {}),
    "loading_replays_everything_before_the_answer": Replayed(LOAD, late=True),
    "a_loaded_session_remembers": Forgets(LOAD),
    "a_resumed_session_remembers": Forgets("session/resume"),
    "resuming_replays_nothing": before("session/resume", chunk),
    "a_session_without_prompts_can_be_resumed": refuses("session/resume", NOT_FOUND),
    "notices_are_not_replayed": before(
        LOAD, lambda one: update(one, sessionUpdate="notice", severity="info", title="Note")
    ),
    "closing_cancels_what_runs": Closing(),
    "a_closed_session_can_be_opened_again": refuses(LOAD),
    # prompting
    "text_is_accepted": Updates("agent_message_chunk", lambda _: None),
    "links_are_accepted": _hears(PROMPT, lambda asked: "resource_link" in str(asked)),
    "advertised_content_is_accepted": _hears(PROMPT, lambda asked: "blob" in str(asked)),
    "malformed_content_is_invalid": accepts(PROMPT, {"stopReason": "end_turn"}),
    "a_refusal_is_a_stop_reason": _no_reason("refusal"),
    "a_refused_prompt_is_forgotten": before(PROMPT, lambda one: chunk(one, "ananas")),
    "too_long_an_answer_is_a_stop_reason": _no_reason("max_tokens"),
    "every_plan_is_the_whole_plan": Updates(
        "plan", lambda one: {**one, "entries": one["entries"][-1:]}
    ),
    "updates_of_a_turn_precede_its_answer": after(PROMPT, chunk),
    "a_prompt_is_pending_until_its_turn_is_over": Early(),
    "a_second_prompt_does_no_harm": Running(PROMPT, harm=True),
    "a_cancelled_prompt_is_answered_so": Cancelled({"error": {"code": -32603, "message": "No."}}),
    "a_cancelled_session_goes_on": Broken(),
    "a_cancel_ends_what_waits_for_a_permission": Pending(),
    "a_cancel_without_a_turn_is_ignored": Idle(),
    "a_cancelled_request_is_still_answered": Cancelled(
        {"error": {"code": -32603, "message": "No."}}
    ),
    "cancelling_an_unknown_request_is_ignored": Hears("$/cancel_request", failing),
    "what_an_agent_offers_it_keeps": code("session/fork", -32601),
    # choosing
    "the_current_mode_is_available": result(NEW, lambda made: _modes(made, currentModeId="x")),
    "available_modes_can_be_set": Running("session/set_mode"),
    "unknown_modes_are_invalid": accepts("session/set_mode", {}),
    "a_mode_is_kept": Stored(),
    "options_have_a_valid_value": result(NEW, lambda made: _options(made, 1, currentValue="x")),
    "switches_are_only_for_clients_that_know_them": result(NEW, _fake_switch),
    "modes_and_the_option_for_them_agree": result(
        NEW, lambda made: _options(made, 0, currentValue="plan")
    ),
    "setting_an_option_gives_the_whole_list": Answers("session/set_config_option", _kept_option),
    "unknown_options_are_invalid": accepts("session/set_config_option", {"configOptions": []}),
    "a_mode_set_as_mode_is_set_as_option": Answers("session/set_config_option", _stale_mode),
    "the_end_of_planning_is_asked_and_told": Updates("current_mode_update", lambda _: None),
    "forms_that_are_not_filled_in_harm_nothing": Hears(
        None, lambda frame: None if frame.get("result") == {"action": "cancel"} else frame
    ),
    "permission_requests_offer_a_choice": Calls(
        PERMISSION, lambda frame: [_edit(frame, options=frame["params"]["options"][:1] * 2)]
    ),
    "what_is_allowed_runs": _decides("allow_once", "reject_once"),
    "what_is_rejected_does_not_run": _decides("reject_once", "allow_once"),
    "a_cancelled_permission_request_allows_nothing": _decides("cancelled", "allow_once"),
    "an_unknown_choice_allows_nothing": _decides("no-such-option", "allow_once"),
    # updating
    "calls_fit_the_schema": Updates("tool_call", lambda one: {**one, "kind": "dance"}),
    "results_fit_the_schema": _with(NEW, models={}),
    "own_methods_begin_with_an_underscore": after(NEW, lambda _: own("vendor/news")),
    "updates_name_a_session_of_the_client": before(NEW, lambda _: chunk("elsewhere")),
    "tool_calls_are_announced": before(PROMPT, _once_more),
    "message_ids_belong_to_one_message": Updates(
        "agent_message_chunk",
        lambda one: {**one, "messageId": str(one["messageId"]).split("-agent")[0] + "-user"},
    ),
    "paths_are_absolute": Updates("tool_call", lambda one: _located(one, path="x")),
    "lines_count_from_one": Updates("tool_call", lambda one: _located(one, line=0)),
    "costs_have_a_currency": Updates(
        "usage_update", lambda one: {**one, "cost": {"amount": 1, "currency": "$"}}
    ),
    "tool_calls_end_with_their_turn": Updates("tool_call_update", lambda _: None),
    "compactions_end_once": before(PROMPT, _compacted),
    "terminals_are_released": Kept(),
    "methods_are_called_as_advertised": before(PROMPT, _read),
    "updates_are_sent_as_advertised": before(
        PROMPT, lambda one: update(one, sessionUpdate="plan_removed", planId="x")
    ),
    "forms_are_shown_as_advertised": before(PROMPT, _asked_form),
    "elicitations_are_safe": Calls(
        "elicitation/create",
        lambda frame: [
            _edit(frame, url="http://me:secret@example.com")
            if frame["params"]["mode"] == "url"
            else frame
        ],
    ),
    "forms_ask_for_no_secrets": Calls(
        "elicitation/create", lambda frame: [_edit(frame, requestedSchema=SECRET_FORM)]
    ),
    "states_of_the_login_are_sent_as_advertised": LoginStates(),
    # catalogue
    "lists_contain_the_sessions_of_a_directory": Hears(
        "session/list", lambda frame: _edit(frame, cwd=None)
    ),
    "cursors_lead_through_the_whole_list": _list(
        lambda made: {**made, "sessions": made["sessions"][:1]}
    ),
    "nothing_found_is_an_empty_list": Answers(
        "session/list",
        lambda frame, _: [
            failing(frame) if (frame.get("result") or {}).get("sessions") == [] else frame
        ],
    ),
    "updates_have_growing_positions": Updates(
        "tool_call", lambda one: {**one, "_meta": {"pykoclaw.dev/seq": 1}}
    ),
    "a_resume_goes_on_after_a_position": _without_meta("session/resume"),
    "a_load_of_the_newest_turns_has_no_others": _without_meta("session/load"),
    "wrong_values_of_own_keys_are_refused": _without_meta(NEW),
    "a_session_can_be_given_its_id": _without_meta(NEW),
    "prompts_with_one_key_are_one_prompt": _without_meta(PROMPT),
    "steering_without_a_turn_begins_one": _without_meta(PROMPT),
    "a_response_waits_for_a_report_on_a_subagent": _without_meta(PROMPT),
    "a_wrong_cursor_is_invalid": accepts("session/list", {"sessions": []}),
    "listing_has_no_effects": before("session/list", lambda _: own("session/update", x=1)),
    "times_of_listed_sessions_are_iso_8601": _list(
        lambda made: _sessions(made, updatedAt="yesterday")
    ),
    "directories_of_listed_sessions_are_absolute": _list(lambda made: _sessions(made, cwd=".")),
    "a_deleted_session_is_not_listed": Hears("session/delete", done),
    "deleting_is_idempotent": _hears(
        "session/delete", lambda asked: str(asked["sessionId"]).startswith("00000000")
    ),
    "a_fork_is_a_session_of_its_own": Answers(PROMPT, _report_of_all),
    "forking_an_unknown_session_is_not_found": code("session/fork", -32602),
    "archiving_needs_a_list": result(
        "initialize",
        lambda made: {
            **made,
            "agentCapabilities": {"sessionCapabilities": {"archive": {}}},
        },
    ),
    "archived_sessions_are_listed_on_demand": Hears("session/list", _archived),
    "archiving_is_idempotent": accepts("session/archive", {}),
    "an_unknown_archive_filter_is_invalid": accepts("session/list", {"sessions": []}),
    "the_status_of_an_unknown_session_is_not_found": Answers(
        "session/status",
        lambda frame, _: [frame if "result" in frame else failing(frame, -32002)],
    ),
    "the_status_of_an_open_session_is_open": _with("session/status", status="saved"),
    "archiving_closes_a_session_first": Hears("session/archive", done),
    "a_title_of_the_user_stays": before(
        PROMPT, lambda one: update(one, sessionUpdate="session_info_update", title="Another")
    ),
    "titles_are_stored": _with("session/set_title", title="Another title"),
    "empty_titles_are_invalid": accepts("session/set_title", {"title": ""}),
    "system_prompts_that_cannot_be_used_are_refused": _skipping(
        NEW, lambda _: {"systemPrompt": None}
    ),
}
