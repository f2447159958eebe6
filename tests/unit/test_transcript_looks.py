"""Tool calls of transcripts are shown alike, wherever a look falls between their entries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.events import (
    Event,
    Plan,
    PlanEntry,
    TextPart,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    size,
)
from pykoclaw_acp.transcripts.newest_plans import MOST_PLANS
from pykoclaw_acp.transcripts.state import (
    MOST_COMMANDS,
    MOST_INPUT,
    MOST_INPUTS,
    MOST_SHOWN,
    MOST_TASKS,
    MOST_TEXT,
)
from tests.unit.transcripts import Reading, Transcript, words

REFUSED = (
    "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user"
    " said:\nFewer steps"
)
INTERRUPTED = {
    "type": "tool_result",
    "tool_use_id": "tool",
    "is_error": True,
    "content": (
        "[Tool call interrupted: the session ended before this call's result was recorded, so its"
        " outcome is unknown. Check whether it took effect before relying on it or running it"
        " again.]"
    ),
}
EDIT = {"file_path": "/w/a.txt", "old_string": "a", "new_string": "b"}
PATCH = [{"oldStart": 1, "newStart": 1, "lines": ["-a", "+b"]}]
QUESTIONS = {"questions": [{"question": "Which?", "options": [{"label": "Red"}]}]}
CALLS: dict[str, tuple[dict[str, Any], Any]] = {  # input, and the CLI's form of the result
    "Bash": ({"command": "ls\necho " + "x" * 200}, {"stdout": "a.txt"}),
    "Monitor": ({"command": "tail -f a", "description": "Look"}, None),
    "Read": ({"file_path": "/w/a.txt"}, {"file": {"content": "a"}}),
    "Write": ({"file_path": "/w/a.txt", "content": "a"}, {"filePath": "/w/a.txt"}),
    "Edit": (EDIT, {"filePath": "/w/a.txt", "structuredPatch": PATCH}),
    "MultiEdit": ({"file_path": "/w/a.txt", "edits": [EDIT]}, None),
    "NotebookEdit": ({"notebook_path": "/w/a.ipynb", "new_source": "a"}, None),
    "Grep": ({"pattern": "a", "path": "/w"}, None),
    "WebSearch": ({"query": "a"}, {"results": ["found"]}),
    "WebFetch": ({"url": "http://localhost", "prompt": "p"}, {"result": "found"}),
    "Agent": ({"description": "Look", "prompt": "p"}, {"content": [{"text": "It is."}]}),
    "EnterPlanMode": ({}, None),
    "ExitPlanMode": ({"plan": "# Plan\n\nOne\nTwo"}, {"plan": "# Plan"}),
    "AskUserQuestion": (QUESTIONS, {"answers": {"Which?": "Red"}}),
    "ToolSearch": ({"query": "select:TaskCreate"}, {"matches": ["TaskCreate"]}),
    "TaskCreate": ({"subject": "A"}, {"task": {"id": "2", "subject": "A"}}),
    "TaskUpdate": ({"taskId": "1", "status": "completed"}, {"taskId": "1"}),
    "TodoWrite": ({"todos": []}, {"newTodos": [{"content": "B", "status": "pending"}]}),
    "Skill": ({"skill": "a"}, None),
    "mcp__x__y": ({"a": 1}, None),
}

POLLED = "/tmp/x/tasks/{}.output"


def notice(status: str, summary: str = "") -> str:
    """What the CLI says when the background task of the call `c` has ended."""
    return (
        "<task-notification>\n<task-id>b1</task-id>\n<tool-use-id>c</tool-use-id>\n"
        f"<status>{status}</status>\n<summary>{summary}</summary>\n</task-notification>"
    )


@pytest.fixture
def t(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path / "t.jsonl")


def assert_looks_change_nothing(t: Transcript, *steps: Callable[[], object]) -> list[Event]:
    """A look after each step finds what a single one finds; returns that."""
    reading, found = Reading(t), []
    for step in steps:
        step()
        found += reading.look()
    assert found == Reading(t).look()
    return found


def made_task(t: Transcript) -> None:
    t.prompt("one", "p1")
    t.call("first", "TaskCreate", subject="Think")
    t.result("first", toolUseResult={"task": {"id": "1", "subject": "Think"}})


@pytest.mark.parametrize("end", ["result", "refusal", "none"])
@pytest.mark.parametrize("name", CALLS)
def test_look_before_result_changes_nothing(t: Transcript, name: str, end: str) -> None:
    arguments, details = CALLS[name]
    refusal = {"type": "tool_result", "tool_use_id": "c", "content": REFUSED, "is_error": True}
    ends: dict[str, Callable[[], object]] = {
        "result": lambda: t.result("c", toolUseResult=details),
        "refusal": lambda: t.prompt([refusal], toolUseResult=f"Error: {REFUSED}"),
        "none": lambda: t.prompt("next", "p2"),
    }
    begins = (lambda: made_task(t), lambda: t.call("c", name, **arguments))
    found = assert_looks_change_nothing(t, *begins, ends[end], lambda: t.prompt("last", "p3"))
    started = {one.tool_call_id for one in found if isinstance(one, ToolStarted)}
    assert {one.tool_call_id for one in found if isinstance(one, ToolEnded)} == started


def test_poll_of_background_command_between_looks(t: Transcript) -> None:
    """What it has put out, and who has stopped it, is not forgotten either."""
    file = {"filePath": "/tmp/x/tasks/b1.output", "content": "a\nb\n", "startLine": 1}
    found = assert_looks_change_nothing(
        t,
        lambda: t.prompt("one", "p1"),
        lambda: t.call("c", command="make\nmake " + "x" * 200),
        lambda: t.result("c", toolUseResult={"backgroundTaskId": "b1", "timedOutAfterMs": 9000}),
        lambda: t.call("poll", "Read", file_path="/tmp/x/tasks/b1.output"),
        lambda: t.result("poll", "1\ta", toolUseResult={"type": "text", "file": file}),
        lambda: t.call("stop", "TaskStop", task_id="b1"),
        lambda: t.result("stop", toolUseResult={"message": "stopped"}),
        lambda: t.prompt(notice("killed", "Killed"), "b1", turnOrigin="task_notification"),
        lambda: t.say("It is stopped."),
    )
    (ended,) = (one for one in found if isinstance(one, ToolEnded))
    assert ended.reason == "Stopped by Claude."
    assert TextPart("```\na\nb\n```") in ended.content


def told_early(t: Transcript, text: str) -> None:
    t.add(
        "attachment",
        attachment={"type": "queued_command", "commandMode": "task-notification", "prompt": text},
    )


def test_end_of_task_before_calls_result(t: Transcript) -> None:
    """A task may end before the CLI has written that it goes on."""
    found = assert_looks_change_nothing(
        t,
        lambda: t.prompt("one", "p1"),
        lambda: t.call("c", command="make"),
        lambda: told_early(t, notice("failed", "It failed with exit code 3")),
        lambda: t.result("c", toolUseResult={"backgroundTaskId": "b1"}),
        lambda: t.prompt("two", "p2"),
    )
    (ended,) = (one for one in found if isinstance(one, ToolEnded))
    assert ended.exit_code == 3


def test_failed_poll_behind_piece_is_shown(t: Transcript) -> None:
    """A hidden call is shown by its failure, wherever a piece ends between them."""
    t.prompt("one", "p1")
    t.call("c", command="make")
    t.result("c", toolUseResult={"backgroundTaskId": "b1"})
    t.call("poll", "Read", file_path=POLLED.format("b1"))
    t.say("meanwhile")
    failure = {"type": "tool_result", "tool_use_id": "poll", "content": "gone", "is_error": True}
    t.prompt([failure], toolUseResult="Error: gone")
    found = Reading(t, fields={"careful": True}).look()
    assert words(found)[-2:] == ["Read /tmp/x/tasks/b1.output …", "poll failed"]
    assert found == Reading(t).look()


def test_repeated_results_of_background_calls_count_once(t: Transcript) -> None:
    t.prompt("one", "p1")
    t.call("c", command="make")
    for _ in range(100):
        t.result("c", toolUseResult={"backgroundTaskId": "b1", "timedOutAfterMs": 9000})
    t.result("c", "a plain one")
    reading = Reading(t)
    (shown,) = (one for one in reading.look() if isinstance(one, ToolProgressed))
    assert len(shown.content) == 1
    assert list(json.loads(reading.state)["calls"]) == ["c"]


def test_polls_after_end_of_task_stay_hidden(t: Transcript) -> None:
    """A call that was hidden is not shown by its result, though its task is forgotten."""
    t.prompt("one", "p1")
    t.call("c", command="make")
    t.result("c", toolUseResult={"backgroundTaskId": "b1"})
    t.call("poll", "Read", file_path="/tmp/x/tasks/b1.output")
    told_early(t, notice("completed"))
    reading = Reading(t)
    assert words(reading.look())[-1] == "c completed"
    t.result("poll", "1\ta")
    assert reading.look() == []
    assert json.loads(reading.state).get("calls", {}) == {}


def test_hidden_calls_end_with_their_turn(t: Transcript) -> None:
    t.prompt("one", "p1")
    t.call("c", command="make")
    t.result("c", toolUseResult={"backgroundTaskId": "b1"})
    t.call("poll", "Read", file_path="/tmp/x/tasks/b1.output")
    reading = Reading(t)
    reading.look()
    assert list(json.loads(reading.state)["calls"]) == ["c", "poll"]
    t.prompt("two", "p2")
    reading.look()
    assert list(json.loads(reading.state)["calls"]) == ["c"]


def test_states_of_earlier_versions_are_read(t: Transcript) -> None:
    made_task(t)
    for call in ("ExitPlanMode", "AskUserQuestion", "TaskCreate", "Bash"):
        t.call(call, call, **CALLS[call][0])
    reading = Reading(t)
    reading.look()
    state = json.loads(reading.state)
    for call in state["calls"].values():
        del call["input"], call["quiet"]
    del state["tasks"]["1"]["id"]
    reading.state = json.dumps(state)
    for call in ("ExitPlanMode", "AskUserQuestion"):
        refusal = {"type": "tool_result", "tool_use_id": call, "content": REFUSED, "is_error": True}
        t.prompt([refusal], toolUseResult=f"Error: {REFUSED}")
    t.result("TaskCreate", toolUseResult=CALLS["TaskCreate"][1])
    t.result("Bash", toolUseResult={"stdout": "a.txt"})
    plan, question, tasks, command = reading.look()
    why = (TextPart("Refused: Fewer steps"),)
    assert plan == ToolEnded("ExitPlanMode", "failed", why)
    assert question == ToolEnded("AskUserQuestion", "failed", why)
    assert tasks == Plan((PlanEntry("Think", id="1"), PlanEntry("A", id="2")))
    assert isinstance(command, ToolEnded)
    assert command.content[0] == TextPart(
        f"```sh\n{CALLS['Bash'][0]['command']}\n```", command=True
    )


def test_inputs_of_open_calls_are_bounded(t: Transcript) -> None:
    t.prompt("one", "p1")
    for n in range(40):
        t.call(f"c{n}", "Write", file_path=f"/w/{n}", content="x" * MOST_TEXT * 2)
    t.call("many", "Write", file_path="/w/a", **{f"{n}": "x" * MOST_TEXT for n in range(3)})
    reading = Reading(t)
    reading.look()
    kept = [one.get("input") for one in json.loads(reading.state)["calls"].values()]
    assert kept[0]["file_path"] == "/w/0"
    assert kept[-1] is None
    assert len(json.dumps(kept)) < MOST_INPUTS + MOST_INPUT
    t.prompt("next", "p2")
    assert words(reading.look()) == [*(f"c{n} failed" for n in range(40)), "many failed", "> next"]


def test_what_background_calls_show_is_bounded(t: Transcript) -> None:
    t.prompt("one", "p1")
    for n in range(60):
        t.call(f"c{n}", command=f"make {n}\n" + "x" * 8000)
        t.result(f"c{n}", toolUseResult={"backgroundTaskId": f"b{n}", "backgroundedByUser": True})
        t.call(f"poll{n}", "Read", file_path=POLLED.format(f"b{n}"))
        file = {"filePath": POLLED.format(f"b{n}"), "content": f"{n}\n" * 4000, "startLine": 1}
        t.result(f"poll{n}", toolUseResult={"type": "text", "file": file})
    reading = Reading(t)
    reading.look()
    kept = list(json.loads(reading.state)["calls"].values())
    assert len(kept) == 60
    assert not any("input" in one for one in kept)
    for name in ("command", "notes", "output"):
        assert [name in one for one in (kept[0], kept[-1])] == [False, True]
    assert len(reading.state) < MOST_COMMANDS + 2 * MOST_SHOWN
    said = notice("killed").replace(">b1<", ">b59<").replace(">c<", ">c59<")
    t.prompt(said, "b1", turnOrigin="task_notification")
    t.say("It is stopped.")
    (ended,) = (one for one in reading.look() if isinstance(one, ToolEnded))
    _, output, note = ended.content
    assert isinstance(output, TextPart)
    assert "59\n59" in output.text
    assert note == TextPart("It was moved to the background.", beside=True)


def test_long_reports_that_come_early_are_bounded(t: Transcript) -> None:
    t.prompt("one", "p1")
    for n in range(4):
        t.call(f"c{n}", "Agent", description="Look", prompt="p")
        text = notice("completed", "Done").replace(">c<", f">c{n}<")
        told_early(t, text.replace("</task-n", f"<result>{'x' * 40_000}</result></task-n"))
    reading = Reading(t)
    reading.look()
    assert MOST_SHOWN / 2 < len(reading.state) < 2 * MOST_SHOWN
    for n in range(4):
        t.result(f"c{n}", toolUseResult={"isAsync": True, "agentId": f"a{n}"})
    assert words(reading.look()) == [f"c{n} completed" for n in range(4)]


def test_plans_of_thousands_of_tasks_are_bounded(t: Transcript) -> None:
    """Each is a whole one: what all of them say grows with the transcript only."""
    t.prompt("one", "p1")
    for n in range(1000):
        t.call(f"c{n}", "TaskCreate", subject=f"Task {n}")
        t.result(f"c{n}", toolUseResult={"task": {"id": f"{n}", "subject": f"Task {n}"}})
    reading = Reading(t)
    plans = [one for one in reading.look() if isinstance(one, Plan)]
    assert len(reading.pieces) < 10
    longest = max(size(one) for one in plans)
    assert sum(size(one) for one in plans) < len(reading.pieces) * (MOST_PLANS + longest)
    assert plans[-1].entries[-1] == PlanEntry("Task 999", id="999")
    assert len(plans[-1].entries) < 1000
    assert len(json.loads(reading.state)["tasks"]) == MOST_TASKS


@pytest.mark.parametrize("looks", [False, True], ids=["at_once", "in_looks"])
@pytest.mark.parametrize("out", ["TERM", ""])
def test_late_result_corrects_an_interrupted_call(t: Transcript, out: str, looks: bool) -> None:
    """Our CLI resumes in the middle of a terminal's turn, and finds no result of its call."""
    reading, ends = Reading(t, own=("p2",)), list[ToolEnded]()

    def look() -> None:
        ends.extend(one for one in reading.look() if isinstance(one, ToolEnded))

    t.prompt("one", "p1")
    call = t.call("tool", command="make")
    t.prompt([INTERRUPTED], parentUuid=call)
    t.prompt("two", "p2", parentUuid=t.synthetic())
    t.say("ours")
    if looks:
        look()
    details = {"stdout": out, "stderr": ""}
    t.result("tool", out, parentUuid=call, toolUseResult=details)
    t.say("end of terminal")
    look()
    first, last = ends
    assert first.status == "failed"
    assert first.reason == "Its result is not known: the conversation went on before it had one."
    assert "[Tool call" not in repr(ends)
    assert (last.tool_call_id, last.status, last.exit_code) == ("tool", "completed", 0)
    assert (out or "(no output)") in repr(last.content)


@pytest.mark.parametrize("looks", [False, True], ids=["at_once", "in_looks"])
def test_interrupted_call_ends_in_background(t: Transcript, looks: bool) -> None:
    """The terminal sends it there after our CLI has resumed."""
    reading, found = Reading(t), list[Event]()
    t.prompt("one", "p1")
    call = t.call("c", command="make")
    t.prompt([{**INTERRUPTED, "tool_use_id": "c"}], parentUuid=call)
    t.prompt("two", "p2", parentUuid=t.synthetic())
    found += reading.look() if looks else []
    t.result("c", parentUuid=call, toolUseResult={"backgroundTaskId": "b1"})
    found += reading.look() if looks else []
    told_early(t, notice("failed", "It failed with exit code 3"))
    found += reading.look()
    first, last = (one for one in found if isinstance(one, ToolEnded))
    assert (first.exit_code, last.exit_code) == (None, 3)


def test_interrupted_call_without_result_ends_once(t: Transcript) -> None:
    reading = Reading(t)
    t.prompt("one", "p1")
    call = t.call("tool", command="make")
    for _ in range(2):
        t.prompt([INTERRUPTED], parentUuid=call)
        t.prompt("two", parentUuid=t.synthetic())
        t.say("an answer")
    assert [one for one in words(reading.look()) if one.startswith("tool")] == ["tool failed"]
