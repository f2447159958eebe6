"""SDK messages to events: what was streamed is not said again, and what a stream broke off is
completed.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from claude_agent_sdk import (
    AssistantMessage,
    TaskNotificationMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from claude_agent_sdk._internal.message_parser import parse_message

from pykoclaw_acp.model.events import (
    MAX_TEXT,
    Event,
    Text,
    TextPart,
    Thinking,
    ToolEnded,
    ToolStarted,
    Usage,
)
from pykoclaw_acp.protocol import projection
from pykoclaw_acp.translation.translator import UNANSWERED
from pykoclaw_acp.worker.translate import Translator
from tests.unit.sdk_messages import block, delta, result, start, stream, whole


def bash(tool_id: str, command: str = "ls") -> AssistantMessage:
    return whole(ToolUseBlock(id=tool_id, name="Bash", input={"command": command}))


def answered(
    tool_id: str, content: Any, *, failed: bool = False, details: Any = None
) -> UserMessage:
    return UserMessage(
        content=[ToolResultBlock(tool_use_id=tool_id, content=content, is_error=failed)],
        tool_use_result=details,
    )


def run(*messages: Any) -> list[Event]:
    translator = Translator("/work")
    translator.begin_turn()
    return [event for message in messages for event in translator.events(message)]


def test_thoughts_that_claude_keeps_secret_are_passed_over() -> None:
    secret = {"type": "redacted_thinking", "data": "EmwKAhgB"}
    message = parse_message(
        {"type": "assistant", "message": {"id": "m1", "model": "x", "content": [secret]}}
    )
    events = run(
        start("m1"), stream("content_block_start", index=0, content_block=secret), message,
        block(1, "text"), delta(1, "Hel"), delta(1, "lo"), whole(TextBlock("Hello")),
    )  # fmt: skip
    assert events == [Text("m1-1", "Hel"), Text("m1-1", "lo")]


def test_a_streamed_block_is_said_once() -> None:
    events = run(
        start("m1"), block(0, "thinking"), delta(0, "Hm", "thinking"), whole(ThinkingBlock("Hm", "sig")),
        block(1, "text"), delta(1, "Hel"), delta(1, "lo"), whole(TextBlock("Hello")),
    )  # fmt: skip
    assert events == [Thinking("m1-0", "Hm"), Text("m1-1", "Hel"), Text("m1-1", "lo")]


@pytest.mark.parametrize("said", ["Saved: \x1b7", "It ends in \x1b[3", "\x1b7, and the rest."])
def test_nothing_said_waits_after_its_block(said: str) -> None:
    """As what seems to begin a sequence of a terminal."""
    shown = said.replace("\x1b", "")
    begun = (start("m1"), block(0, "text"), *(delta(0, letter) for letter in said))

    def words(events: list[Event]) -> str:
        return "".join(event.text for event in events if isinstance(event, Text))

    assert words(run(*begun, whole(TextBlock(said)))) == shown
    assert words(run(*begun, start("m2"))) == shown
    translator = Translator("/work")
    translator.begin_turn()
    streamed = [event for message in begun for event in translator.events(message)]
    assert words([*streamed, *translator.end_turn(result(result=said))]) == shown


def test_broken_stream_is_completed_under_same_message() -> None:
    events = run(
        start("m1"), block(0, "text"), delta(0, "Hel"), whole(TextBlock("Hello"), message_id="m2")
    )
    assert events == [Text("m1-0", "Hel"), Text("m1-0", "lo")]


def test_answer_restreamed_after_broken_stream_is_told_once() -> None:
    events = run(
        start("m1"), block(0, "text"), delta(0, "one"),
        start("m2"), block(0, "text"), delta(0, "one two"), whole(TextBlock("one two"), message_id="m2"),
    )  # fmt: skip
    assert events == [Text("m1-0", "one"), Text("m2-0", "one two")]


def cut_off(*said: Any) -> list[Event]:
    """The stream breaks off, as the CLI tells it (2.1.327), and the answer begins anew."""
    translator = Translator("/work")
    events = [
        event
        for message in (start("m1"), block(0, "text"), delta(0, "```\none"))
        for event in translator.events(message)
    ]
    gone = {"abandoned_blocks": {"api_message_id": "m1", "from_block_index": 0}}
    assert translator.events(stream("message_stop"), gone) == []
    for message in said:
        events.extend(translator.events(message))
    return events


def test_broken_off_text_says_so_before_its_repetition() -> None:
    for again in (
        (start("m2"), block(0, "text"), delta(0, "two"), whole(TextBlock("two"), message_id="m2")),
        (whole(TextBlock("two"), message_id="m2"),),
    ):
        first, ending, note, rest = cut_off(*again)
        assert (first, ending) == (Text("m1-0", "```\none"), Text("m1-0", "\n```\n"))
        assert isinstance(note, Text)
        assert note.note
        assert "Cut off here" in note.text
        assert isinstance(rest, Text)
        assert rest.text == "two"


def test_broken_off_text_continuing_alike_is_not_cut() -> None:
    rest = whole(TextBlock("```\none\n```\n"), message_id="m2")
    assert cut_off(rest, start("m3")) == [
        Text("m1-0", "```\none"),
        Text("m1-0", "\n```\n"),
    ]


def test_subagent_call_outlives_turn_it_began_in() -> None:
    translator = Translator("/work")
    translator.events(
        whole(ToolUseBlock(id="t1", name="Bash", input={"command": "ls"}), parent="t0")
    )
    assert translator.end_turn(result()) == []
    [ended] = translator.events(answered("t1", "inner"))
    assert isinstance(ended, ToolEnded)
    assert ended.status == "completed"


def test_different_answer_after_broken_stream_is_new_message() -> None:
    events = run(
        start("m1"), block(0, "text"), delta(0, "Hel"), whole(TextBlock("Servus"), message_id="m2")
    )
    assert [type(event) for event in events] == [Text, Text]
    first, second = events
    assert isinstance(first, Text)
    assert isinstance(second, Text)
    assert first.message_id != second.message_id
    assert second.text == "Servus"


def test_unstreamed_answer_is_told_whole_in_bounded_pieces() -> None:
    events = run(whole(TextBlock("x" * (3 * MAX_TEXT))))
    assert len(events) == 3
    assert len({event.message_id for event in events if isinstance(event, Text)}) == 1


def test_subagent_text_is_omitted_and_tools_name_parent() -> None:
    events = run(
        stream(
            "content_block_delta",
            parent="t0",
            index=0,
            delta={"type": "text_delta", "text": "inner"},
        ),
        whole(
            TextBlock("inner"),
            ToolUseBlock(id="t1", name="Read", input={"file_path": "/work/a"}),
            parent="t0",
        ),
    )
    [tool] = events
    assert isinstance(tool, ToolStarted)
    assert tool.parent_id == "t0"
    assert tool.title == "Read a"


def test_mcp_tool_has_names_its_server_gives() -> None:
    called = whole(
        ToolUseBlock(id="t1", name="mcp__fs__ls", input={"path": "/work/a"}),
        ToolUseBlock(id="t2", name="mcp__fs__ls", input={}),
    )
    named = {"id": "t1", "server_display_name": "Files", "display_name": "List a folder"}
    events = Translator("/work").events(called, {"tool_use_meta": [named, "?", {"id": "t2"}]})
    titles = [event.title for event in events if isinstance(event, ToolStarted)]
    assert titles == ["fs: List a folder (ls, /work/a)", "fs: Ls"]


def test_api_error_is_not_told_as_answer() -> None:
    assert run(whole(TextBlock("API Error: 529"), error="server_error")) == []


@pytest.mark.parametrize(("failed", "status"), [(False, "completed"), (True, "failed")])
def test_tool_ends_with_result_and_colours_beside(failed: bool, status: str) -> None:
    put_out = "\x1b[2K\x1b[31mred\x1b[0m ``` fence\n\x1b[0m"
    events = run(bash("t1"), answered("t1", put_out, failed=failed))
    coloured = "\x1b[31mred\x1b[0m ``` fence\x1b[0m"
    part = TextPart("````\nred ``` fence\n````", coloured=coloured)
    assert events[1] == ToolEnded("t1", status, content=(part,))  # type: ignore[arg-type]


def test_result_of_unknown_or_ended_call_is_ignored() -> None:
    events = run(bash("t1"), answered("t1", "a"), answered("t1", "b"), answered("t9", "c"))
    assert [type(event) for event in events] == [ToolStarted, ToolEnded]


def test_background_command_ends_when_its_process_ends() -> None:
    translator = Translator("/work")
    events = translator.events(bash("t1", "sleep 9"))
    events += translator.events(answered("t1", "running as b1", details={"backgroundTaskId": "b1"}))
    events += translator.end_turn(result())
    assert [type(event) for event in events] == [ToolStarted], "Claude's own words are hidden"
    done = TaskNotificationMessage(
        subtype="task_notification", data={}, task_id="b1", status="completed", output_file="", summary="done",
        uuid="n", session_id="s", tool_use_id="t1",
    )  # fmt: skip
    [ended] = translator.events(done)
    assert isinstance(ended, ToolEnded)
    assert ended.status == "completed"


def test_call_without_result_fails_with_its_turn() -> None:
    translator = Translator("/work")
    translator.events(bash("t1"))
    assert translator.end_turn(result()) == [ToolEnded("t1", "failed", reason=UNANSWERED)]


def test_what_only_the_result_says_is_said() -> None:
    translator = Translator("/work")
    translator.begin_turn()
    assert translator.end_turn(result(result="Compacted.")) == [Text("r", "Compacted.")]
    translator.begin_turn()
    translator.events(whole(TextBlock("Hello")))
    assert translator.end_turn(result(result="Hello")) == []
    translator.begin_turn()
    assert translator.end_turn(result(result="a\x1b[31mb\x07")) == [Text("r", "ab")]


def test_usage_counts_the_context_window() -> None:
    translator = Translator("/work")
    translator.events(start("m1", tokens=100))
    translator.events(stream("message_delta", usage={"output_tokens": 7}))
    translator.events(start("m2", tokens=200))
    translator.events(stream("message_delta", usage={"output_tokens": 3}))
    ended = translator.end_turn(
        result(model_usage={"x": {"contextWindow": 1000}}, total_cost_usd=0.5)
    )
    assert ended == [Usage(used=203, size=1000, cost=0.5)]


def test_costs_have_six_decimals_at_most() -> None:
    said = projection.update(1, Usage(used=1, size=2, cost=0.8636840000000002))
    assert msgspec.to_builtins(said)["cost"]["amount"] == 0.863684
