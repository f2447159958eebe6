"""What the validation of frames finds, and what it lets pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.harness import frames
from tests.schema import validation


def update(**content: Any) -> dict[str, Any]:
    return {"sessionId": "s", "update": content}


def chunk(**more: Any) -> dict[str, Any]:
    content = {"type": "text", "text": "Hello."}
    return update(sessionUpdate="agent_message_chunk", content=content, **more)


TOOL = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T"}
LOCATED = [{"path": "/x", "line": 1}]


@pytest.mark.parametrize(
    "params",
    [
        chunk(),
        chunk(messageId="m", _meta={"pykoclaw.dev/seq": 1, "deep": [{"anything": None}]}),
        update(**TOOL, locations=LOCATED, rawInput={"any": {"thing": [1]}}, kind="edit"),
        update(sessionUpdate="plan_removed", planId="p"),
    ],
)
def test_what_acp_allows_passes(params: dict[str, Any]) -> None:
    assert validation.call_problem("session/update", params) is None


@pytest.mark.parametrize(
    ("params", "found"),
    [
        (chunk(seq=1), "seq"),
        ({**chunk(), "seq": 1}, "seq"),
        (update(**TOOL, locations=[{"path": "/x", "column": 1}]), "column"),
        (update(**TOOL, locations=[{"path": "/x", "line": -1}]), "-1"),
        (update(**TOOL, kind="dance"), "not valid"),
        (update(sessionUpdate="dance"), "not valid"),
        (update(sessionUpdate="tool_call", title="T"), "not valid"),
        ({"update": chunk()["update"]}, "sessionId"),
    ],
)
def test_what_acp_does_not_allow_is_found(params: dict[str, Any], found: str) -> None:
    problem = validation.call_problem("session/update", params)
    assert problem is not None
    assert found in problem


def test_alike_values_differ_where_schema_does() -> None:
    result = {"protocolVersion": 1, "authMethods": []}
    assert validation.result_problem("initialize", result) is None
    for version in (-1, 65536, 1.5, "1", True):
        wrong = {**result, "protocolVersion": version}
        assert validation.result_problem("initialize", wrong) is not None, version


def test_only_own_methods_may_be_unknown() -> None:
    assert validation.call_problem("_pykoclaw.dev/event", {"any": "thing"}) is None
    assert validation.call_problem("pykoclaw/event", {}) is not None
    assert validation.result_problem("_pykoclaw.dev/status", {"any": "thing"}) is None
    assert validation.result_problem("session/dance", {}) is not None


def test_tests_client_refuses_what_is_not_acp() -> None:
    frame = {"jsonrpc": "2.0", "method": "session/update", "params": chunk(seq=1)}
    with pytest.raises(frames.BadFrame, match="seq"):
        frames.validate_call(frame)
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "tired"}}
    with pytest.raises(frames.BadFrame, match="stopReason"):
        frames.validate_answer(answer, "session/prompt")
