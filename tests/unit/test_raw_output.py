"""The raw output of a call is what its tool has put out: no words of ours, no Markdown around it."""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.model.events import TextPart, ToolEnded, decode, encode
from pykoclaw_acp.protocol.tool_results import raw_output
from pykoclaw_acp.translation.translator import CANCELLED, ToolResult, Translation

QUESTIONS = {"questions": [{"question": "Which?", "options": [{"label": "Red"}]}]}
REFUSED = (
    "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user"
    " said:\nFewer steps"
)
REPORT = {
    "content": [{"type": "text", "text": "The report."}],
    "totalTokens": 7506,
    "totalToolUseCount": 1,
    "totalDurationMs": 3000,
}


def ended(name: str, given: dict[str, Any], details: object, said: object, failed: bool) -> Any:
    """The end of a call."""
    made = Translation("/w", plans="/p")
    made.start_tool("c", name, given)
    return made.end_tools([ToolResult("c", said, failed)], details)[-1]


@pytest.mark.parametrize(
    ("name", "given", "details", "said", "output"),
    [
        ("Agent", {"description": "Look", "prompt": "p"}, REPORT, "r", "The report."),
        ("AskUserQuestion", QUESTIONS, {"answers": {"Which?": "Red"}}, "r", None),
        ("AskUserQuestion", QUESTIONS, {"answers": {}}, "r", None),
        ("ToolSearch", {"query": "a"}, {"matches": []}, "r", None),
        ("ToolSearch", {"query": "a"}, {"matches": ["A"]}, "r", "A"),
        ("Read", {"file_path": "/w/a"}, {"type": "file_unchanged"}, "r", None),
        ("Bash", {"command": "a"}, {"stdout": "a", "persistedOutputSize": 99_999}, "a", "a"),
        ("Bash", {"command": "a"}, {"stdout": "", "interrupted": True}, "a", None),
        ("mcp__a__b", {}, None, [{"type": "text", "text": '{"a": 1}'}], '{"a": 1}'),
    ],
)
def test_raw_output_has_nothing_of_ours(
    name: str, given: dict[str, Any], details: object, said: object, output: str | None
) -> None:
    end = ended(name, given, details, said, failed=False)
    assert (raw_output(end) or {}).get("output") == output


HUNK = {"oldStart": 1, "newStart": 1, "lines": ["-a", "+b"]}
CURRENT = " (file state is current in your context — no need to Read it back)"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Edit", "The file /w/a has been updated successfully."),
        ("Write", "File created successfully at: /w/a"),
        ("NotebookEdit", "Updated cell c1 with b"),
    ],
)
def test_raw_output_of_change_says_it_was_made(name: str, said: str) -> None:
    given = {"file_path": "/w/a", "old_string": "a", "new_string": "b", "content": "b"}
    details = {"filePath": "/w/a", "structuredPatch": [HUNK]}
    end = ended(name, given, details, said + CURRENT, failed=False)
    assert [part for part in end.content if isinstance(part, TextPart)] == []
    assert raw_output(end) == {"output": said}
    assert decode(encode(end)) == end


@pytest.mark.parametrize(
    ("name", "given"), [("ExitPlanMode", {"plan": "# Plan"}), ("AskUserQuestion", QUESTIONS)]
)
def test_raw_output_of_refusal_repeats_no_question(name: str, given: dict[str, Any]) -> None:
    end = ended(name, given, f"Error: {REFUSED}", REFUSED, failed=True)
    assert len(end.content) == 2
    assert raw_output(end) == {"output": "Refused: Fewer steps"}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Agent", {"description": "Look", "prompt": "the prompt"}),
        ("ExitPlanMode", {"plan": "# Plan"}),
        ("NotebookEdit", {"notebook_path": "/w/a.ipynb", "new_source": "a"}),
    ],
)
def test_call_without_result_has_no_output(name: str, given: dict[str, Any]) -> None:
    made = Translation("/w")
    made.start_tool("c", name, given)
    (end,) = made.end_these(["c"], CANCELLED)
    assert isinstance(end, ToolEnded)
    assert raw_output(end) is None


def test_rows_of_earlier_versions_have_their_output() -> None:
    row = (
        '{"kind":"tool_ended","tool_call_id":"c","status":"completed","content":'
        '[{"type":"text","text":"The report."},{"type":"text","text":"1 tool call"}]}'
    )
    event = decode(row)
    assert isinstance(event, ToolEnded)
    assert raw_output(event) == {"output": "The report.\n1 tool call"}
    now = ToolEnded("c", "completed", (TextPart("a"), TextPart("(cut)", beside=True)))
    assert decode(encode(now)) == now
    assert raw_output(now) == {"output": "a"}
