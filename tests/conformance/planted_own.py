"""Faults that break the rules about keys and notifications of pykoclaw-acp's own."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance.fake.faults import Answers, Calls, Hears, Updates, result
from tests.conformance.fake.installation import Frame
from tests.conformance.fake.wire import Fault


def _bare(one: Frame) -> Frame:
    """Without what is the agent's own."""
    return {key: value for key, value in one.items() if key != "_meta"}


def _bare_content(one: Frame) -> Frame:
    return {**one, "content": [_bare(part) for part in one.get("content") or []]}


def _unmarked(made: Frame) -> Frame:
    return {**made, "sessions": [_bare(one) for one in made["sessions"]]}


def _without_reason(frame: Frame) -> Frame:
    outcome: Any = (frame.get("result") or {}).get("outcome")
    return {**frame, "result": {"outcome": _bare(outcome)}} if outcome else frame


OWN: Final[dict[str, Fault]] = {
    "changes_of_files_say_at_which_line_they_are": Updates("tool_call_update", _bare_content),
    "calls_of_a_subagent_name_the_call_that_began_it": Updates("tool_call", _bare),
    "words_that_are_not_claudes_are_marked": Updates("agent_message_chunk", _bare),
    "a_fork_ends_with_the_turn_of_its_message": Answers(
        "session/fork",
        lambda frame, _: [
            {**frame, "result": _bare(frame["result"])} if "result" in frame else frame
        ],
    ),
    "the_reason_of_a_refusal_reaches_the_model": Hears(None, _without_reason),
    "sessions_and_messages_of_others_say_whose_they_are": result("session/list", _unmarked),
    "pages_have_at_most_50_sessions": result(
        "session/list", lambda made: {**made, "sessions": made["sessions"] * 51}
    ),
    "too_many_requests_are_a_stop_reason": Hears(
        "session/new", lambda frame: {**frame, "params": _bare(frame["params"])}
    ),
    "a_follower_is_told_what_is_said_and_asked": Calls("_pykoclaw.dev/settled", lambda _: []),
}
