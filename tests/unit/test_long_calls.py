"""Frames of the CLI about commands and subagents, and what becomes of them: every frame is one that
CLI 2.1.327 sends, read by the SDK's own parser.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from claude_agent_sdk import ClaudeSDKClient, ResultMessage
from claude_agent_sdk._internal.message_parser import parse_message
from structlog.testing import capture_logs

from pykoclaw_acp.channel.requests import StopTask
from pykoclaw_acp.model.events import (
    Event,
    Output,
    Text,
    TextPart,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from pykoclaw_acp.translation import tasks
from pykoclaw_acp.translation.long_calls import progress
from pykoclaw_acp.translation.results import CUT, LAST_MISSING, STOPPED
from pykoclaw_acp.translation.translator import UNANSWERED
from pykoclaw_acp.worker import sdk_private
from pykoclaw_acp.worker.interrupts import Interrupts
from pykoclaw_acp.worker.long_work import LongWork
from pykoclaw_acp.worker.requests import NO_TASK, TaskRequests
from pykoclaw_acp.worker.translate import Translator


class Cli:
    """A worker's part that translates, fed with frames; `events` are those of all."""

    def __init__(self, tmp_path: Path) -> None:
        self.translator = Translator("/work")
        self.events: list[Event] = []
        self.noted: list[Event] = []  # those of no turn
        self.work = LongWork(str(tmp_path), self.translator, self._note)
        self.turn: str | None = "turn"
        self.prompted: str | None = "turn"

    def _note(self, event: Event) -> None:
        self.events.append(event)
        self.noted.append(event)

    async def say(self, **frame: Any) -> list[Event]:
        message = parse_message({"uuid": "u", "session_id": "s", **frame})
        assert message is not None
        told: list[Event] = []
        if isinstance(message, ResultMessage):
            told += [*self.translator.end_turn(message), *self.work.end(self.turn)]
        else:
            await self.work.take(message)
            told += self.work.begin(message, self.turn, self.prompted)
            told += self.translator.events(message, frame)
        self.work.refresh(told)
        self.events += told
        return told

    async def system(self, subtype: str, **fields: Any) -> list[Event]:
        return await self.say(type="system", subtype=subtype, **fields)

    async def speaks(self) -> list[Event]:
        """A request, and the beginning of its answer."""
        told = await self.system("status", status="requesting")
        start = {"type": "message_start", "message": {"id": "m2"}}
        return told + await self.say(type="stream_event", event=start)

    async def assistant(self, *blocks: dict[str, Any], parent: str | None = None) -> list[Event]:
        message = {"id": "m", "model": "x", "content": list(blocks)}
        return await self.say(type="assistant", message=message, parent_tool_use_id=parent)

    async def call(
        self, call: str, name: str = "Bash", parent: str | None = None, **arguments: Any
    ) -> list[Event]:
        block = {"type": "tool_use", "id": call, "name": name, "input": arguments}
        return await self.assistant(block, parent=parent)

    async def result(
        self, call: str, content: Any, details: Any = None, *, error: bool = False
    ) -> list[Event]:
        block = {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": error}
        return await self.say(type="user", message={"content": [block]}, tool_use_result=details)

    async def background(self, call: str, task: str, command: str = "make") -> list[Event]:
        """A command is launched in the background."""
        told = await self.call(call, command=command, run_in_background=True)
        told += await self.started(call, task)
        details = {"stdout": "", "backgroundTaskId": task}
        return told + await self.result(call, f"running with ID: {task}", details)

    async def started(self, call: str, task: str, kind: str = "local_bash") -> list[Event]:
        fields = {"description": "Count", "is_backgrounded": True, "task_type": kind}
        return await self.system("task_started", task_id=task, tool_use_id=call, **fields)

    async def ended(
        self, call: str | None, task: str, status: str, summary: str, **more: Any
    ) -> list[Event]:
        fields = {"status": status, "summary": summary, "output_file": "", **more}
        return await self.system("task_notification", task_id=task, tool_use_id=call, **fields)

    async def over(self, **more: Any) -> list[Event]:
        usual: dict[str, Any] = {
            "subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False,
            "num_turns": 1, **more,
        }  # fmt: skip
        return await self.say(type="result", **usual)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def said(events: list[Event]) -> str:
    return "".join(one.text for one in events if isinstance(one, Text))


def call_of(events: list[Event]) -> list[str]:
    return [one.tool_call_id for one in events if isinstance(one, ToolStarted)]


async def test_launch_is_no_end_and_hides_its_prose(cli: Cli) -> None:
    told = await cli.background("call", "b1")
    assert [type(one) for one in told] == [ToolStarted]
    assert await cli.over() == []
    assert await cli.ended("call", "b1", "completed", 'Background command "x" (exit code 0)') == [
        ToolEnded("call", "completed", exit_code=0, background=True)
    ]


@pytest.mark.parametrize(
    ("status", "summary", "code", "reason"),
    [
        ("failed", 'Background command "Count" failed with exit code 3', 3, None),
        ("completed", 'Background command "Count" completed (exit code 2)', 2, None),
        ("failed", 'Background command "Expect exit code 0" failed with exit code 1', 1, None),
        ("killed", "Expect no failure with exit code 1", None, "It was stopped."),
        ("killed", "Count", None, "It was stopped."),
        ("failed", "No space left.", None, "It failed. No space left."),
    ],
)
async def test_each_bad_end_has_its_reason(
    cli: Cli, status: str, summary: str, code: int | None, reason: str | None
) -> None:
    await cli.background("call", "b1")
    [ended] = await cli.ended("call", "b1", status, summary)
    assert ended == ToolEnded("call", "failed", exit_code=code, reason=reason, background=True)


async def test_description_does_not_say_exit_code(cli: Cli) -> None:
    await cli.background("call", "b1")
    said = 'Background command "Check that it returns exit code 2" completed (exit code 0)'
    [ended] = await cli.ended("call", "b1", "completed", said)
    assert ended == ToolEnded("call", "completed", exit_code=0, background=True)


async def test_exit_code_with_meaning_is_success(cli: Cli) -> None:
    """As in the foreground, where the CLI does not tell the code."""
    await cli.background("call", "b1", "grep x y")
    await cli.over()
    cli.turn = cli.prompted = None
    said = 'Background command "Look" completed (exit code 1: No matches found)'
    [ended] = await cli.ended("call", "b1", "completed", said)
    note = TextPart("(No matches found)", beside=True)
    assert ended == ToolEnded("call", "completed", (note,), background=True)
    cli.turn = "own"
    [why] = await cli.speaks()
    assert isinstance(why, Text)
    assert "The background command `grep x y` has ended (No matches found)." in why.text


async def test_end_before_launchs_answer_is_not_lost(cli: Cli) -> None:
    await cli.call("call", command="true", run_in_background=True)
    await cli.started("call", "b1")
    assert await cli.ended("call", "b1", "completed", "(exit code 0)") == []
    told = await cli.result("call", "running", {"backgroundTaskId": "b1"})
    assert told == [ToolEnded("call", "completed", exit_code=0, background=True)]


async def test_foreground_command_turned_task_ends_with_result(cli: Cli) -> None:
    await cli.call("call", command="sleep 4")
    fields = {"description": "", "is_backgrounded": False, "task_type": "local_bash"}
    await cli.system("task_started", task_id="b1", tool_use_id="call", **fields)
    assert await cli.ended("call", "b1", "completed", "Count") == []
    [ended] = await cli.result("call", "out", {"stdout": "out"})
    assert ended == ToolEnded("call", "completed", (TextPart("```\nout\n```"),), exit_code=0)


async def test_stopped_command_keeps_its_output(cli: Cli) -> None:
    await cli.call("call", command="seq 99")
    fields = {"description": "", "is_backgrounded": False, "task_type": "local_bash"}
    await cli.system("task_started", task_id="b1", tool_use_id="call", **fields)
    cli.translator.long.known.calls["call"].output = Output("1\n2\n")
    [ended] = await cli.result("call", "[Request interrupted by user for tool use]", error=True)
    shown = (TextPart("```\n1\n2\n```"),)
    assert ended == ToolEnded("call", "failed", shown, reason=STOPPED)


@pytest.mark.parametrize("live", [True, False])
async def test_failed_commands_long_output_is_not_called_whole(cli: Cli, *, live: bool) -> None:
    await cli.call("call", command="seq 9999")
    fields = {"description": "", "is_backgrounded": False, "task_type": "local_bash"}
    await cli.system("task_started", task_id="b1", tool_use_id="call", **fields)
    if live:
        cli.translator.long.known.calls["call"].output = Output("9998\n9999\n", 50_000)
    [ended] = await cli.result("call", "Exit code 3\n" + "1234567\n" * 1250, error=True)
    assert isinstance(ended, ToolEnded)
    *_, text, note = ended.content
    assert isinstance(text, TextPart)
    assert ("9999\n```" in text.text) == live
    assert note == TextPart(LAST_MISSING if live else CUT, beside=True)
    assert ended.exit_code == 3


async def test_command_beyond_time_limit_continues_and_says_so(cli: Cli) -> None:
    await cli.call("call", command="sleep 999")
    details = {"stdout": "", "backgroundTaskId": "b1", "timedOutAfterMs": 120000}
    [progressed] = await cli.result("call", "moved to the background", details)
    note = TextPart("Its time limit of 120 s is over; it was moved to the background.", beside=True)
    assert progressed == ToolProgressed("call", (note,))
    await cli.over()
    [ended] = await cli.ended("call", "b1", "failed", "failed with exit code 1")
    assert ended == ToolEnded("call", "failed", (note,), exit_code=1, background=True)


async def test_polls_and_stop_land_on_processs_first_call(cli: Cli) -> None:
    await cli.background("one", "b1")
    await cli.background("two", "b2")
    assert await cli.call("poll", "Read", file_path="/tmp/s/tasks/b2.output") == []
    file = {"filePath": "/tmp/s/tasks/b2.output", "content": "b\n", "startLine": 1}
    told = await cli.result("poll", "1\tb", {"type": "text", "file": file})
    shown = (TextPart("```\nb\n```"),)
    assert told == [ToolProgressed("two", shown, Output("b\n"))]
    assert await cli.call("stop", "TaskStop", task_id="b2") == []
    told = await cli.ended("two", "b2", "stopped", "Count")
    told += await cli.result("stop", '{"message": "stopped"}', {"task_id": "b2"})
    assert told == [ToolEnded("two", "failed", shown, reason="Stopped by Claude.")]
    assert await cli.call("again", "Read", file_path="/tmp/s/tasks/b2.output") == []
    assert await cli.result("again", "1\tb", {"type": "text", "file": file}) == []
    assert await cli.ended("one", "b1", "completed", "(exit code 0)") == [
        ToolEnded("one", "completed", exit_code=0, background=True)
    ]
    assert call_of(cli.events) == ["one", "two"]


async def test_failed_poll_is_a_call_of_its_own(cli: Cli) -> None:
    await cli.background("call", "b1")
    await cli.call("stop", "TaskStop", task_id="b1")
    started, ended = await cli.result("stop", "not allowed", "Error", error=True)
    assert isinstance(started, ToolStarted)
    assert isinstance(ended, ToolEnded)
    assert (started.tool_call_id, ended.tool_call_id, ended.status) == ("stop", "stop", "failed")
    [ended] = await cli.ended("call", "b1", "stopped", "Count")
    assert ended == ToolEnded("call", "failed", reason="It was stopped.")


async def test_failed_poll_forgets_no_stop(cli: Cli) -> None:
    await cli.background("call", "b1")
    await cli.call("stop", "TaskStop", task_id="b1")
    await cli.result("stop", "stopped", {"task_id": "b1"})
    await cli.call("poll", "Read", file_path=POLLED["file_path"])
    await cli.result("poll", "gone", "Error", error=True)
    [ended] = await cli.ended("call", "b1", "stopped", "Count")
    assert ended == ToolEnded("call", "failed", reason="Stopped by Claude.")


POLLED = {"file_path": "/tmp/s/tasks/b1.output"}


@pytest.mark.parametrize("parent", [None, "agent"])
async def test_call_that_is_asked_about_is_shown(cli: Cli, parent: str | None) -> None:
    await cli.background("call", "b1")
    await agent(cli)
    assert await cli.call("poll", "Read", parent=parent, **POLLED) == []
    [started] = cli.translator.ask_for("poll", "Read", POLLED)
    assert isinstance(started, ToolStarted)
    assert (started.tool_call_id, started.parent_id) == ("poll", parent)
    assert cli.translator.ask_for("poll", "Read", POLLED) == []
    assert cli.translator.caller("poll")[0] == parent
    [allowed] = cli.translator.allowed("poll")
    file = {"filePath": POLLED["file_path"], "content": "b\n", "startLine": 1}
    shown, ended = await cli.result("poll", "1\tb", {"type": "text", "file": file})
    assert shown == ToolProgressed("call", (TextPart("```\nb\n```"),), Output("b\n"))
    assert isinstance(allowed, ToolProgressed)
    assert isinstance(ended, ToolEnded)
    assert (ended.tool_call_id, ended.status) == ("poll", "completed")
    assert await cli.over() == [ToolEnded("agent", "failed", reason=UNANSWERED)]


async def test_refused_stop_that_was_shown_is_shown_once(cli: Cli) -> None:
    await cli.background("call", "b1")
    await cli.call("stop", "TaskStop", task_id="b1")
    cli.translator.ask_for("stop", "TaskStop", {"task_id": "b1"})
    [refused] = await cli.result("stop", "not allowed", "Error", error=True)
    assert isinstance(refused, ToolEnded)
    assert (refused.tool_call_id, refused.status) == ("stop", "failed")


@pytest.mark.parametrize("asked", [True, False])
async def test_stop_without_an_answer_has_stopped_nothing(cli: Cli, *, asked: bool) -> None:
    await cli.background("call", "b1")
    await cli.call("stop", "TaskStop", task_id="b1")
    if asked:
        cli.translator.ask_for("stop", "TaskStop", {"task_id": "b1"})
    ended = [ToolEnded("stop", "failed", reason=UNANSWERED)] if asked else []
    assert await cli.over() == ended
    [failed] = await cli.ended("call", "b1", "failed", "No space left.")
    assert failed == ToolEnded(
        "call", "failed", reason="It failed. No space left.", background=True
    )


async def test_background_subagents_polls_go_on_behind_turn(cli: Cli) -> None:
    await cli.background("call", "b1")
    await agent(cli)
    await cli.result("agent", "launched", {"isAsync": True, "agentId": "a1"})
    await cli.call("poll", "Read", parent="agent", **POLLED)
    await cli.over()
    file = {"filePath": POLLED["file_path"], "content": "b\n", "startLine": 1}
    [shown] = await cli.result("poll", "1\tb", {"type": "text", "file": file})
    assert shown == ToolProgressed("call", (TextPart("```\nb\n```"),), Output("b\n"))


async def test_other_files_are_read_as_ever(cli: Cli) -> None:
    await cli.background("call", "b1")
    await cli.call("read", "Read", file_path="/work/other.output")
    await cli.call("stop", "TaskStop", task_id="b9")
    assert call_of(cli.events) == ["call", "read", "stop"]


async def test_task_stopped_by_user_says_who_did(cli: Cli) -> None:
    await cli.background("call", "b1")
    with cli.translator.long.stopped("call", "Stopped by the user."):
        [ended] = await cli.ended("call", "b1", "stopped", "Count")
    assert ended == ToolEnded("call", "failed", reason="Stopped by the user.")


async def test_stop_by_user_comes_before_claudes(cli: Cli) -> None:
    await cli.background("call", "b1")
    with cli.translator.long.stopped("call", "Stopped by the user."):
        await cli.call("stop", "TaskStop", task_id="b1")
        await cli.result("stop", "It does not run.", "Error", error=True)
        [ended] = await cli.ended("call", "b1", "stopped", "Count")
    assert ended == ToolEnded("call", "failed", reason="Stopped by the user.")


async def agent(cli: Cli, **fields: Any) -> None:
    await cli.call("agent", "Agent", description="Look", subagent_type="Explore")
    started = {"description": "Look", "task_type": "local_agent", "subagent_type": "Explore"}
    await cli.system("task_started", task_id="a1", tool_use_id="agent", **started, **fields)


async def test_a_background_subagent_runs_until_its_report(cli: Cli) -> None:
    await agent(cli, is_backgrounded=True)
    metadata = [{"type": "text", "text": "Async agent launched. agentId: a1 (internal)"}]
    details = {"isAsync": True, "status": "async_launched", "agentId": "a1"}
    assert await cli.result("agent", metadata, details) == []
    assert await cli.over() == []
    thought = {"type": "thinking", "thinking": "Hm.\nSo.", "signature": "x"}
    assert await cli.assistant(thought, parent="agent") == []
    await cli.assistant({"type": "text", "text": "I look."}, parent="agent")
    [inner] = await cli.call("inner", "Read", parent="agent", file_path="/work/a.txt")
    assert cli.translator.caller("inner") == ("agent", "Explore")
    assert cli.translator.caller("agent") == cli.translator.caller("unknown") == (None, None)
    assert isinstance(inner, ToolStarted)
    assert (inner.parent_id, inner.title) == ("agent", "Explore: Read a.txt")
    used = {"total_tokens": 1234, "tool_uses": 1, "duration_ms": 65000}
    await cli.system(
        "task_progress", task_id="a1", tool_use_id="agent", description="Reading a.txt", usage=used
    )
    said = (TextPart("> Hm.\n> So.", thought=True), TextPart("I look."))
    assert progress(cli.translator.long.known.calls["agent"]).content == (
        *said,
        TextPart("Reading a.txt · 1 tool call, 1,234 tokens", beside=True),
    )
    await cli.result("inner", "1\ta")
    await cli.assistant({"type": "text", "text": "**Done.**"}, parent="agent")
    [ended] = await cli.ended("agent", "a1", "completed", "**Done.**", usage=used)
    line = TextPart("1 tool call, 1,234 tokens, 1 min 5 s", beside=True)
    report = (*said, TextPart("**Done.**"), line)
    assert ended == ToolEnded("agent", "completed", report, background=True)


async def skill(cli: Cli) -> None:
    await cli.call("skill", "Skill", skill="look")
    started = {"description": "/look", "task_type": "local_agent", "subagent_type": "Explore"}
    await cli.system("task_started", task_id="a1", tool_use_id="skill", **started)


def forked(result: str, *, success: bool) -> dict[str, Any]:
    told = {"commandName": "look", "status": "forked", "agentId": "a1"}
    return {**told, "success": success, "result": result}


async def test_users_own_skill_is_no_parent(cli: Cli) -> None:
    [inner] = await cli.call("inner", "Read", parent="forked-command-look", file_path="/work/a.txt")
    assert isinstance(inner, ToolStarted)
    assert (inner.parent_id, cli.translator.caller("inner")) == (None, (None, None))


async def test_skill_that_runs_as_subagent_shows_its_work(cli: Cli) -> None:
    await skill(cli)
    await cli.assistant({"type": "text", "text": "I look."}, parent="skill")
    [inner] = await cli.call("inner", "Read", parent="skill", file_path="/work/a.txt")
    assert isinstance(inner, ToolStarted)
    assert (inner.parent_id, inner.title) == ("skill", "Explore: Read a.txt")
    await cli.result("inner", "1\ta")
    details = forked("It is **fine**.", success=True)
    [ended] = await cli.result("skill", 'Skill "look" completed (forked execution).', details)
    parts = TextPart("I look."), TextPart("It is **fine**.")
    assert ended == ToolEnded("skill", "completed", parts)


async def test_skill_that_fails_as_subagent_has_failed(cli: Cli) -> None:
    """The CLI does not call it an error."""
    await skill(cli)
    details = forked("It **broke**.", success=False)
    [ended] = await cli.result("skill", 'Skill "look" completed (forked execution).', details)
    assert ended == ToolEnded("skill", "failed", (TextPart("It **broke**."),))


@pytest.mark.parametrize(
    ("command", "result", "code"),
    [
        ("pytest -q", "ok", 0),
        ("git-lfs version", "ok", 0),
        ("ls | grep x", "(Bash completed with no output)", None),
        ("[ -e a ]", "(Bash completed with no output)", None),
        ("sleep 9 &", "Command running in background with ID: b1", None),
    ],
)
async def test_a_subagents_command_has_its_exit_code(
    cli: Cli, command: str, result: str, code: int | None
) -> None:
    """Which the CLI does not tell: it takes 1 of `grep` and its kind for success."""
    await agent(cli, is_backgrounded=True)
    await cli.call("inner", parent="agent", command=command)
    [ended] = await cli.result("inner", result)
    assert isinstance(ended, ToolEnded)
    assert (ended.status, ended.exit_code) == ("completed", code)


async def test_exit_code_in_report_is_not_the_subagents(cli: Cli) -> None:
    await agent(cli, is_backgrounded=True)
    await cli.result("agent", "launched", {"isAsync": True, "agentId": "a1"})
    report = "The tests failed with exit code 1."
    [ended] = await cli.ended("agent", "a1", "completed", report)
    assert ended == ToolEnded("agent", "completed", (TextPart(report),), background=True)


async def waiting_agent(cli: Cli) -> None:
    """A subagent that has stopped until a command of its own ends."""
    await agent(cli, is_backgrounded=True)
    await cli.result("agent", "launched", {"isAsync": True, "agentId": "a1"})
    await cli.call("inner", parent="agent", command="make", run_in_background=True)
    await cli.started("inner", "b1")
    await cli.result("inner", "running with ID: b1", {"stdout": "", "backgroundTaskId": "b1"})
    assert await cli.over() == []
    cli.turn = cli.prompted = None
    await cli.assistant({"type": "text", "text": "I wait."}, parent="agent")
    assert await cli.ended("agent", "a1", "completed", "I wait.") == []


async def test_waiting_subagent_ends_with_its_last_report(cli: Cli) -> None:
    await waiting_agent(cli)
    cli.turn = "own"
    await cli.system("status", status="requesting")
    assert "> The background agent “Look” waits for background work of its own." in said(
        await cli.assistant({"type": "text", "text": "It waits."})
    )
    await cli.over()
    cli.turn = None
    [inner] = await cli.ended("inner", "b1", "completed", "Background command (exit code 0)")
    assert inner == ToolEnded("inner", "completed", exit_code=0, background=True)
    await cli.started("agent", "a1", "local_agent")
    await cli.assistant({"type": "text", "text": "It is made."}, parent="agent")
    [ended] = await cli.ended("agent", "a1", "completed", "It is made.")
    report = (TextPart("I wait."), TextPart("It is made."))
    assert ended == ToolEnded("agent", "completed", report, background=True)


async def test_failing_subagent_leaves_its_background_commands(cli: Cli) -> None:
    await waiting_agent(cli)
    await cli.started("agent", "a1", "local_agent")
    [ended] = await cli.ended("agent", "a1", "killed", "Look")
    assert isinstance(ended, ToolEnded)
    assert (ended.tool_call_id, ended.status) == ("agent", "failed")
    [inner] = await cli.ended("inner", "b1", "completed", "Background command (exit code 0)")
    assert inner == ToolEnded("inner", "completed", exit_code=0, background=True)


async def test_subagent_ends_before_one_of_its_own(cli: Cli) -> None:
    """To whose end Claude answers, not the subagent that began it."""
    await agent(cli, is_backgrounded=True)
    await cli.result("agent", "launched", {"isAsync": True, "agentId": "a1"})
    await cli.call("deep", "Agent", parent="agent", description="Deep", subagent_type="Explore")
    await cli.started("deep", "a2", "local_agent")
    await cli.result("deep", "launched", {"isAsync": True, "agentId": "a2"})
    [ended] = await cli.ended("agent", "a1", "completed", "It looks.")
    report = (TextPart("It looks."),)
    assert ended == ToolEnded("agent", "completed", report, background=True)
    assert await cli.over() == []
    [ended] = await cli.ended("deep", "a2", "completed", "Done.")
    assert ended == ToolEnded("deep", "completed", (TextPart("Done."),), background=True)


async def test_stopped_subagent_ends_though_it_waited(cli: Cli) -> None:
    """The CLI tells its end, and that of its command, without a notification of its own."""
    await waiting_agent(cli)
    cli.translator.long.known.calls["agent"].stopped = "Stopped by the user."
    await cli.system("task_updated", task_id="a1", patch={"status": "killed", "end_time": 1})
    shown = (TextPart("I wait."),)
    assert cli.noted == [ToolEnded("agent", "failed", shown, reason="Stopped by the user.")]
    [inner] = await cli.ended("inner", "b1", "stopped", "Count")
    assert inner == ToolEnded("inner", "failed", reason="It was stopped.")
    await cli.system("task_updated", task_id="a1", patch={"status": "killed", "end_time": 1})
    assert len(cli.noted) == 1


async def test_subagent_stopped_after_waiting_ends_once(cli: Cli) -> None:
    await waiting_agent(cli)
    await cli.ended("inner", "b1", "completed", "Background command (exit code 0)")
    await cli.started("agent", "a1", "local_agent")
    cli.work.interrupted()
    await cli.system("task_updated", task_id="a1", patch={"status": "killed", "end_time": 1})
    assert cli.noted == []
    [ended] = await cli.ended("agent", "a1", "killed", "Look")
    assert isinstance(ended, ToolEnded)
    assert ended.reason == "Stopped, as its turn was cancelled."


async def stopped_agent(cli: Cli) -> ToolEnded:
    """The end of a subagent that is stopped while it works, as the CLI tells it."""
    used = {"total_tokens": 6902, "tool_uses": 1, "duration_ms": 118}
    await cli.system("task_progress", task_id="a1", description="Running List files", usage=used)
    now = TextPart("Running: List files · 1 tool call, 6,902 tokens", beside=True)
    assert progress(cli.translator.long.known.calls["agent"]).content[-1] == now
    [ended] = await cli.ended("agent", "a1", "stopped", "Look")
    assert isinstance(ended, ToolEnded)
    await cli.over()
    cli.turn, cli.prompted = "own", None
    return ended


async def agent_that_works(cli: Cli) -> None:
    await cli.call("agent", "Agent", description="Look", subagent_type="Explore")
    await cli.started("agent", "a1", "local_agent")
    await cli.result("agent", "launched", {"isAsync": True, "agentId": "a1"})


async def test_turn_after_stopped_subagent_says_why(cli: Cli) -> None:
    await agent_that_works(cli)
    with cli.translator.long.stopped("agent", "Stopped by the user."):
        ended = await stopped_agent(cli)
    least = (TextPart("at least 1 tool call, 6,902 tokens", beside=True),)
    by_user = "Stopped by the user."
    assert ended == ToolEnded("agent", "failed", least, reason=by_user, background=True)
    [why] = await cli.speaks()
    assert isinstance(why, Text)
    assert why.text == "\n\n> The background agent “Look”: Stopped by the user.\n\n"
    assert why.calls == ("agent",)


async def test_interrupted_subagent_is_no_reason_later(cli: Cli) -> None:
    await agent_that_works(cli)
    cli.translator.long.known.calls["agent"].stopped = "Stopped by the user."
    assert not (await stopped_agent(cli)).background
    [why] = await cli.speaks()
    assert isinstance(why, Text)
    assert why.calls == ()


async def test_only_tasks_that_go_on_are_stopped(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def control(_client: object, body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body["task_id"])
        return {}

    monkeypatch.setattr(sdk_private, "control", control)
    requests = TaskRequests(cli.translator.long, Interrupts())

    async def stop(call: str) -> str | None:
        frame = StopTask(epoch=1, request=1, tool_call_id=call)
        return (await requests.carry_out(cast("ClaudeSDKClient", object()), frame)).error

    await cli.call("over", command="ls")
    await cli.result("over", "a.txt")
    await waiting_agent(cli)
    with capture_logs() as logs:
        assert [await stop(one) for one in ("over", "none")] == [NO_TASK, NO_TASK]
    assert [one["error"] for one in logs] == [NO_TASK, NO_TASK]
    assert [await stop(one) for one in ("inner", "agent")] == [None, None]
    await cli.system("task_updated", task_id="a1", patch={"status": "killed", "end_time": 1})
    await cli.ended("inner", "b1", "stopped", "Count")
    assert [await stop(one) for one in ("inner", "agent")] == [NO_TASK, NO_TASK]
    assert asked == ["b1", "a1"]


async def test_what_runs_is_known_after_many_calls(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MOST", 3)
    await agent(cli, is_backgrounded=True)
    await cli.background("server", "b1")
    for one in range(9):
        await cli.call(f"ls{one}", command="ls")
        await cli.result(f"ls{one}", "a.txt")
        await cli.background(f"make{one}", f"m{one}")
        await cli.ended(f"make{one}", f"m{one}", "completed", "(exit code 0)")
    known = cli.translator.long.known
    assert known.calls["server"].runs
    assert known.of("b1") is known.calls["server"]
    assert [one.call for one in known.subagents()] == ["agent"]
    assert len(known.calls) == 3


async def message(cli: Cli, call: str) -> list[Event]:
    """Claude sends the subagent on."""
    told = await cli.call(call, "SendMessage", to="looker", summary="more", message="Look again.")
    await cli.started(call, "a1", "local_agent")
    return told + await cli.result(call, '{"success":true}', {"resumedAgentId": "a1"})


async def test_message_to_subagent_shows_its_answer(cli: Cli) -> None:
    await agent(cli, is_backgrounded=True)
    await cli.result("agent", "launched", {"isAsync": True, "agentId": "a1"})
    await cli.ended("agent", "a1", "completed", "First.")
    [sent] = await message(cli, "sent")
    assert isinstance(sent, ToolStarted)
    assert (sent.title, sent.tool_kind) == ("Message to looker: more", "think")
    assert sent.content == (TextPart("Look again.", beside=True),)
    await cli.assistant({"type": "text", "text": "I go on."}, parent="agent")
    [inner] = await cli.call("inner", parent="agent", command="ls")
    assert isinstance(inner, ToolStarted)
    assert (inner.parent_id, inner.title) == ("sent", "Explore: ls")
    assert await cli.over() == []
    [listed] = await cli.result("inner", "a.txt")
    assert isinstance(listed, ToolEnded)
    assert listed.status == "completed"
    [ended] = await cli.ended("sent", "a1", "completed", "Second.")
    report = (TextPart("I go on."), TextPart("Second."))
    assert ended == ToolEnded("sent", "completed", report, background=True)
    cli.turn, cli.prompted = "own", None
    await cli.system("status", status="requesting")
    assert "> The background agent “Look” has ended." in said(
        await cli.assistant({"type": "text", "text": "I see."})
    )


async def test_message_to_waiting_subagent_ends_its_call(cli: Cli) -> None:
    await waiting_agent(cli)
    sent, ended = await message(cli, "sent")
    assert isinstance(sent, ToolStarted)
    assert ended == ToolEnded("agent", "completed", (TextPart("I wait."),), background=True)
    assert await cli.ended("sent", "a1", "completed", "I still wait.") == []
    await cli.ended("inner", "b1", "completed", "Background command (exit code 0)")
    [ended] = await cli.ended(None, "a1", "completed", "It is made.")
    assert ended == ToolEnded("sent", "completed", (TextPart("It is made."),), background=True)


async def test_message_that_waited_is_a_call(cli: Cli) -> None:
    """The CLI hands it on when the subagent has ended, in the name of the ended call."""
    await agent(cli, is_backgrounded=True)
    await cli.result("agent", "launched", {"isAsync": True, "agentId": "a1"})
    await cli.call("sent", "SendMessage", to="looker", summary="more", message="Look again.")
    [sent] = await cli.result("sent", '{"success":true}', {"success": True, "message": "Queued"})
    assert sent == ToolEnded("sent", "completed")
    await cli.ended("agent", "a1", "completed", "First.")
    fields = {"description": "Look", "is_backgrounded": True, "prompt": "Look again."}
    await cli.system("task_started", task_id="a1", tool_use_id="agent", **fields)
    begun = cli.events[-1]
    assert isinstance(begun, ToolStarted)
    assert (begun.title, begun.content) == (
        "Message to the agent: Look",
        (TextPart("Look again.", beside=True),),
    )
    assert begun.continues == "agent"
    [inner] = await cli.call("inner", parent="agent", command="ls")
    assert isinstance(inner, ToolStarted)
    assert inner.parent_id == begun.tool_call_id
    assert await cli.over() == []
    await cli.result("inner", "a.txt")
    [ended] = await cli.ended("agent", "a1", "completed", "Second.")
    parts = (TextPart("Second."),)
    assert ended == ToolEnded(begun.tool_call_id, "completed", parts, background=True)


async def test_message_that_reaches_nobody_has_failed(cli: Cli) -> None:
    [sent] = await cli.call("sent", "SendMessage", to="nobody", summary="more", message="Look.")
    assert isinstance(sent, ToolStarted)
    assert sent.title == "Message to nobody: more"
    told = {"success": False, "message": "No agent named 'nobody' is reachable."}
    [ended] = await cli.result("sent", [{"type": "text", "text": json.dumps(told)}], told)
    assert ended == ToolEnded("sent", "failed", (TextPart(f"```\n{told['message']}\n```"),))


async def test_waiting_subagent_goes_on_in_its_newest_call(cli: Cli) -> None:
    """The CLI names the first call again when the subagent goes on after work of its own."""
    await agent(cli, is_backgrounded=True)
    await cli.result("agent", "launched", {"isAsync": True, "agentId": "a1"})
    await cli.ended("agent", "a1", "completed", "First.")
    fields = {"description": "Look", "is_backgrounded": True}
    of = {"task_id": "a1", "tool_use_id": "agent"}
    await cli.system("task_started", **of, **fields, prompt="Look again.")
    begun = cli.events[-1]
    assert isinstance(begun, ToolStarted)
    await cli.call("inner", parent="agent", command="make", run_in_background=True)
    await cli.started("inner", "b1")
    await cli.result("inner", "running with ID: b1", {"stdout": "", "backgroundTaskId": "b1"})
    assert await cli.ended("agent", "a1", "completed", "I wait.") == []
    await cli.ended("inner", "b1", "completed", "Background command (exit code 0)")
    known = len(cli.events)
    await cli.system("task_started", **of, **fields)
    assert cli.events[known:] == []
    [ended] = await cli.ended("agent", "a1", "completed", "It is made.")
    assert isinstance(ended, ToolEnded)
    assert ended.tool_call_id == begun.tool_call_id


async def test_failed_subagents_calls_end_with_it(cli: Cli) -> None:
    await agent(cli, is_backgrounded=True)
    await cli.result("agent", "launched", {"isAsync": True, "agentId": "a1"})
    await cli.call("inner", parent="agent", command="sleep 9")
    await cli.system("task_updated", task_id="a1", patch={"status": "failed", "error": "API 400"})
    told = await cli.ended("agent", "a1", "failed", "Look")
    assert told == [
        ToolEnded("inner", "failed", reason="The subagent that called it has ended."),
        ToolEnded("agent", "failed", reason="It failed: API 400", background=True),
    ]


async def test_agent_failed_by_service_omits_gateway(cli: Cli) -> None:
    await agent(cli, is_backgrounded=True)
    await cli.result("agent", "launched", {"isAsync": True, "agentId": "a1"})
    error = (
        "Agent terminated early due to an API error: API Error: 500 Api. This is a server-side issue, usually temporary"
        " — try again in a moment. If it persists, check your inference gateway (127.0.0.1:36693). (error type"
        " server_error, HTTP 500, request id req_1, model sent to the API: claude-opus-5-5)"
    )
    await cli.system("task_updated", task_id="a1", patch={"status": "failed", "error": error})
    why = "The agent ended early because of an error of Claude's service: Api."
    assert await cli.ended("agent", "a1", "failed", "Look") == [
        ToolEnded("agent", "failed", reason=why, background=True)
    ]


async def test_an_interrupt_says_why_subagents_ended(cli: Cli) -> None:
    await agent(cli, is_backgrounded=True)
    await cli.result("agent", "launched", {"isAsync": True, "agentId": "a1"})
    cli.work.interrupted()
    [ended] = await cli.ended("agent", "a1", "killed", "Look")
    assert ended == ToolEnded(
        "agent", "failed", reason="Stopped, as its turn was cancelled.", background=True
    )


async def test_foreground_subagent_shows_report_without_frame(cli: Cli) -> None:
    await agent(cli, is_backgrounded=False)
    await cli.assistant({"type": "text", "text": "I look."}, parent="agent")
    assert await cli.ended("agent", "a1", "completed", "The report.") == []
    content = [{"type": "text", "text": "[Subagent hand-back] The text below …\n  The report."}]
    details = {
        "status": "completed",
        "content": [
            {"type": "text", "text": "<tools-used-before-summary>Read</tools-used…>"},
            {"type": "text", "text": "The report."},
        ],
        "totalTokens": 10,
        "totalToolUseCount": 2,
        "totalDurationMs": 1600,
    }
    [ended] = await cli.result("agent", content, details)
    used = TextPart("2 tool calls, 10 tokens, 2 s", beside=True)
    parts = (TextPart("I look."), TextPart("The report."), used)
    assert ended == ToolEnded("agent", "completed", parts)


async def test_cut_off_subagent_runs_nothing_more(cli: Cli) -> None:
    await agent(cli, is_backgrounded=False)
    used = {"total_tokens": 7, "tool_uses": 1, "duration_ms": 118}
    await cli.system("task_progress", task_id="a1", description="Running ls", usage=used)
    [ended] = cli.translator.end_these(["agent"])
    assert isinstance(ended, ToolEnded)
    assert ended.content == (TextPart("at least 1 tool call, 7 tokens", beside=True),)


async def test_claudes_own_turn_says_why_and_stands_apart(cli: Cli) -> None:
    await cli.background("call", "b1", "npm test")
    await cli.over()
    cli.turn = cli.prompted = None
    await cli.ended("call", "b1", "completed", "(exit code 0)")
    cli.turn = "own"
    [why] = await cli.speaks()
    assert why == Text(
        "own-why",
        "\n\n> The background command `npm test` has ended (exit code 0).\n\n",
        note=True,
        calls=("call",),
    )
    [said] = await cli.assistant({"type": "text", "text": "done"})
    assert isinstance(said, Text)
    assert await cli.over() == [Text(said.message_id, "\n\n")]


async def test_own_turn_without_words_adds_none(cli: Cli) -> None:
    await cli.background("call", "b1", "make")
    await cli.assistant({"type": "text", "text": "It runs."})
    await cli.over()
    cli.turn = cli.prompted = None
    await cli.ended("call", "b1", "completed", "(exit code 0)")
    cli.turn = "own"
    await cli.speaks()
    assert await cli.over(is_error=True) == []


async def test_task_ended_during_request_is_told_later(cli: Cli) -> None:
    await cli.background("call", "b1")
    await cli.system("status", status="requesting")
    await cli.ended("call", "b1", "completed", "(exit code 0)")
    start = {"type": "message_start", "message": {"id": "m2"}}
    assert await cli.say(type="stream_event", event=start) == []
    await cli.over()
    cli.turn, cli.prompted = "own", None
    [why] = await cli.speaks()
    assert isinstance(why, Text)
    assert "has ended" in why.text
    assert why.calls == ("call",)


async def test_tasks_heard_of_in_turn_need_no_line(cli: Cli) -> None:
    await cli.background("call", "b1")
    await cli.ended("call", "b1", "failed", "failed with exit code 3")
    await cli.say(type="user", message={"content": "prompt"}, uuid="turn")
    assert await cli.speaks() == []
    await cli.over()
    cli.turn, cli.prompted = "own", None
    [why] = await cli.speaks()
    assert isinstance(why, Text)
    assert why.text == "\n\n> Claude goes on by itself.\n\n"


async def test_claudes_own_turn_before_prompt_is_told_apart(cli: Cli) -> None:
    await cli.background("call", "b1", "make")
    await cli.over()
    cli.turn = cli.prompted = None
    await cli.ended("call", "b1", "failed", "failed with exit code 3")
    cli.turn = cli.prompted = "next"  # the prompt was given, and the CLI has not taken it up
    [why] = await cli.speaks()
    assert isinstance(why, Text)
    assert "`make` has failed (exit code 3)" in why.text
    await cli.assistant({"type": "text", "text": "done"})
    assert [type(one) for one in cli.work.end("next")] == [Text]
    await cli.say(type="user", message={"content": "prompt"}, uuid="next")
    assert await cli.speaks() == []


async def test_monitors_news_do_not_end_it(cli: Cli) -> None:
    await cli.call("call", "Monitor", command="tail -f log", description="Watch the log")
    await cli.started("call", "b1")
    details = {"taskId": "b1", "timeoutMs": 60000, "persistent": False}
    assert await cli.result("call", "Monitor started (task b1 …)", details) == []
    assert await cli.over() == []
    cli.turn, cli.prompted = "own", None
    [why] = await cli.speaks()
    assert isinstance(why, Text)
    assert why.text == "\n\n> Claude has news of the monitor “Watch the log”.\n\n"
    await cli.over()
    told = await cli.ended("call", "b1", "completed", 'Monitor "Watch the log" stream ended')
    assert told == [ToolEnded("call", "completed", background=True)]
    cli.turn = "next"
    [why] = await cli.speaks()
    assert isinstance(why, Text)
    assert why.text == "\n\n> The monitor “Watch the log” has ended.\n\n"


async def test_a_stale_notice_after_a_resume_says_nothing(cli: Cli) -> None:
    cli.turn = cli.prompted = None
    told = await cli.ended(None, "b1", "stopped", "x didn't finish")
    cli.turn = "own"
    told += await cli.system("init")
    assert told + await cli.over(num_turns=0) == []
