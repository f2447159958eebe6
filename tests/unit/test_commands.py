from __future__ import annotations

import io
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from docs import manual
from pykoclaw_acp import terminal
from pykoclaw_acp.__main__ import COMPLETION
from pykoclaw_acp.cli import cli
from pykoclaw_acp.commands import (
    completion,
    daemon,
    logs,
    mcp,
    prompt,
    rewind,
    sessions,
    show,
    status,
    stopping,
)
from pykoclaw_acp.commands.markdown import markdown
from pykoclaw_acp.commands.transcript import TranscriptPrinter
from pykoclaw_acp.doctor.report import Finding
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning
from pykoclaw_acp.front import call as front
from pykoclaw_acp.front import resuming
from pykoclaw_acp.link.places import Places
from tests.waiting import eventually_sync


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What is asked of the daemon, which answers from `answers`."""
    seen: list[tuple[str, dict[str, Any]]] = []

    def call(places: Places, method: str, params: dict[str, Any], **_: Any) -> Any:
        name = method.removeprefix("_pykoclaw.dev/")
        seen.append((name, params))
        answer = ANSWERS.get(name, []) if name == "questions/list" else ANSWERS[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(front, "call", call)
    yield seen
    ANSWERS.clear()


ANSWERS: dict[str, Any] = {}


def run(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="pykoclaw-acp", input=given)


def summary(**fields: Any) -> dict[str, Any]:
    known = {
        "id": "5e55",
        "conversation": "acp-5e55",
        "title": "The parser",
        "busy": False,
        "cwd": "/w",
    }
    times = {"createdAt": 0, "updatedAt": 0, "promptedAt": 0, "closedAt": None, "prunedAt": None}
    return {**known, **times, "client": None, "auxiliary": False, **fields}


# --- words


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (50 * 1024**2, "50 MiB"),
        (3 * 1024**4, "3.0 TiB"),
    ],
)
def test_sizes_have_readable_units(size: int | None, words: str) -> None:
    assert show.size(size) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (90000, "25 h"), (200000, "2 d")],
)
def test_times_are_relative_and_short(
    seconds: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    assert show.since(int((time.time() - seconds) * 1000) - 1) == words


def test_piped_table_is_uncut_and_ignores_markup(capsys: pytest.CaptureFixture[str]) -> None:
    title = "[bold]x[/bold] " + "long " * 60
    terminal.table(("id", "title"), [("1", title), ("22", "two\nlines\x1b[31m")], right=("id",))
    out = capsys.readouterr().out
    assert title.strip() in out
    assert r"two\nlines\x1b[31m" in out


def narrow(monkeypatch: pytest.MonkeyPatch, columns: int) -> io.StringIO:
    screen = io.StringIO()
    made = terminal.console(screen, force_terminal=True, width=columns, no_color=True)
    monkeypatch.setattr(terminal, "console", lambda **_: made)
    return screen


def plain(screen: io.StringIO) -> str:
    return click.unstyle(screen.getvalue())


def test_rules_are_readable_on_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any]
) -> None:
    rule = {
        "path": "/home/somebody/work/projects/one",
        "session": "89dbeee9-6e2f-4287-936a-93f2f2000000",
        "rule": "Bash(npm run test:*)",
        "by": "cli",
        "at": 1_795_000_000_000,
    }
    ANSWERS["rules/list"] = [rule, {**rule, "session": None}]
    screen = narrow(monkeypatch, 80)
    assert run("rules", "list").exit_code == 0
    *_, one, other = plain(screen).splitlines()
    assert all("Bash(npm run test:*)" in line and "ts/one" in line for line in (one, other))
    assert "session 89dbeee9" in one


def test_options_of_scripted_model_are_completed() -> None:
    shell = ShellComplete(cli, {}, completion.PROGRAM, completion.VARIABLE)
    names = {one.value for one in shell.get_completions(["scripted-model"], "--")}
    assert {"--help", "--port", "--record", "--exit-with-stdin", "--environment"} == names
    (one,) = shell.get_completions(["scripted-model"], "--rec")
    assert (one.value, "JSON line" in (one.help or "")) == ("--record", True)


@pytest.mark.parametrize(
    "line",
    ["prompt", "attach", "workers stop", "workers stop-task", "rules remove --session"],
)
def test_ids_of_sessions_are_completed(asked: list[Any], line: str) -> None:
    ANSWERS["sessions/list"] = {"sessions": [summary(id="ab-1"), summary(id="b-1")], "more": False}
    shell = ShellComplete(cli, {}, completion.PROGRAM, completion.VARIABLE)
    assert [one.value for one in shell.get_completions(line.split(), "a")] == ["ab-1"]


@pytest.mark.parametrize("columns", [30, 60, 80])
def test_ids_and_states_survive_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any], columns: int
) -> None:
    long = summary(
        id="0123456789", title="A title " * 20, promptedAt=1, cwd="/a/long/directory" * 9
    )
    giant = summary(
        id="abcdefabcdef", title="x" * 1_000_000, promptedAt=1, cwd="/" + "y" * 1_000_000
    )
    ANSWERS["sessions/list"] = {"sessions": [long, giant], "more": False}
    screen = narrow(monkeypatch, columns)
    assert run("sessions", "list").exit_code == 0
    lines = plain(screen).splitlines()
    assert all(len(line) <= columns for line in lines)
    assert [line.split()[0] for line in lines[-2:]] == ["01234567", "abcdefab"]
    assert all("idle" in line and "…" in line for line in lines[-2:])
    assert ("used" in lines[0]) is (columns > 30)


def test_task_has_id_and_state_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any]
) -> None:
    task = {
        "id": "0123456789",
        "conversation": "wa-somebody-120363000000000000@g.us",
        "running": False,
        "status": "completed",
        "nextRun": "2026-01-02T03:04:05+00:00",
        "scheduleType": "cron",
        "scheduleValue": "*/5 8-17 * * 1-5",
        "prompt": "Tell me what is new. " * 50_000,
    }
    scheduler = {"state": "on", "other": None}
    ANSWERS["tasks/list"] = {"tasks": [task], "more": False, "scheduler": scheduler}
    screen = narrow(monkeypatch, 80)
    assert run("tasks", "list").exit_code == 0
    row = plain(screen).splitlines()[-1]
    assert row.startswith("01234567")
    assert "completed" in row
    assert "Tell me" in row


def chunk(message: str, text: str, **meta: str) -> dict[str, Any]:
    update = {
        "sessionUpdate": "agent_message_chunk",
        "messageId": message,
        "content": {"type": "text", "text": text},
        "_meta": meta,
    }
    return {"method": "_pykoclaw.dev/event", "params": {"seq": 1, "turnId": "t", "update": update}}


def test_a_pipe_gets_claudes_words_as_they_come(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def stream(*_: Any, **__: Any) -> Generator[dict[str, Any], None, dict[str, Any]]:
        for message in (
            chunk("m1", "I look "),
            chunk("m1", "around.\n"),
            chunk("t-plugins", "\n\nA plugin failed.\n\n", **{"pykoclaw.dev/note": "note"}),
            chunk("m2", "Done.\n"),
            chunk("t-failure", "\n\nNo more.\n\n", **{"pykoclaw.dev/note": "failure"}),
        ):
            yield message
            seen.append(capsys.readouterr().out)
        error = {"kind": "k", "message": "No more."}
        return {"state": "failed", "text": "unused", "error": error}

    monkeypatch.setattr(prompt, "stream", stream)
    assert prompt.main("s", "Hi", detach=False, key=None, as_json=False) == 1
    assert seen == ["I look ", "around.", "", "\n\n\nDone.", ""]
    assert capsys.readouterr().out == "\n"


# --- transcripts


def said(kind: str, message: str, text: str) -> dict[str, Any]:
    return {"sessionUpdate": kind, "messageId": message, "content": {"type": "text", "text": text}}


CALL = {
    "sessionUpdate": "tool_call",
    "toolCallId": "t",
    "title": "Edit a.py",
    "kind": "edit",
    "status": "pending",
}
DIFF = {"type": "diff", "path": "a.py", "oldText": "x = 1\n", "newText": "x = 2\n"}
DONE = {
    "sessionUpdate": "tool_call_update",
    "toolCallId": "t",
    "status": "completed",
    "content": [DIFF],
}
HISTORY = [
    said("user_message_chunk", "u1", "Change "),
    said("user_message_chunk", "u1", "it."),
    said("agent_thought_chunk", "a1", "Hm."),
    said("agent_message_chunk", "a1", "I will"),
    said("agent_message_chunk", "a1", ".\n"),
    CALL,
    {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress"},
    DONE,
    {"sessionUpdate": "usage_update", "used": 1, "size": 2},
    said("agent_message_chunk", "a2", "Done."),
]


def printed(updates: list[dict[str, Any]], *, live: bool) -> str:
    written: list[str] = []
    page = TranscriptPrinter(written.append, live=live)
    for update in updates:
        page.show(update)
    page.end()
    return click.unstyle("".join(written))


@pytest.mark.parametrize("live", [True, False])
def test_terminal_joins_messages_and_shows_tool_ends(live: bool) -> None:
    begun = "• Edit a.py\n" if live else ""
    assert printed(HISTORY, live=live) == (
        f"You:\nChange it.\nClaude, thinking:\nHm.\nClaude:\nI will.\n{begun}✓ Edit a.py\nClaude:\nDone.\n"
    )


def begun(call: str, title: str, name: str = "Bash", *texts: str) -> dict[str, Any]:
    return {
        "sessionUpdate": "tool_call", "toolCallId": call, "title": title, "name": name, "status": "in_progress",
        "content": [{"type": "content", "content": {"type": "text", "text": text}} for text in texts],
    }  # fmt: skip


def ended(call: str, status: str, *texts: str, **more: Any) -> dict[str, Any]:
    content = begun(call, "", "", *texts)["content"]
    return {
        "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status, "content": content, **more,
    }  # fmt: skip


def with_outputs(*updates: dict[str, Any]) -> list[str]:
    written: list[str] = []
    page = TranscriptPrinter(written.append, outputs=True)
    for update in updates:
        page.show(update)
    page.end()
    return click.unstyle("".join(written)).splitlines()


def test_attached_terminal_shows_output_of_commands() -> None:
    command = {**begun("t", "Run ls"), "kind": "execute"}
    shown = with_outputs(command, ended("t", "completed", "```\na\x1b[2J\nb\n```"))
    assert shown == ["• Run ls", "✓ Run ls", r"  │ a\x1b[2J", "  │ b"]
    assert with_outputs(command, ended("t", "completed", "one")) == ["• Run ls", "✓ Run ls — one"]
    failed = with_outputs(command, ended("t", "failed", "a\nb", "Exit code 2"))
    assert failed == ["• Run ls", "✗ Run ls — Exit code 2", "  │ a", "  │ b"]
    read = {**begun("t", "Read a.py"), "kind": "read"}
    assert with_outputs(read, ended("t", "completed", "a\nb")) == ["• Read a.py", "✓ Read a.py"]


def test_long_output_is_cut_and_says_so() -> None:
    command = {**begun("t", "Run seq"), "kind": "execute"}
    lines = [str(number) for number in range(3000)]
    lines[1] = "x" * 5000
    shown = with_outputs(command, ended("t", "completed", "\n".join(lines)))
    assert len(shown) == 63
    assert shown[2] == "  │ 0"
    assert "4,000 characters are left out here" in shown[3]
    assert shown[32].startswith(
        "  │ … (2,940 lines are left out here; `pykoclaw-acp sessions export`"
    )
    assert shown[-1] == "  │ 2999"


def test_attached_terminal_shows_diffs_of_edits() -> None:
    shown = with_outputs(CALL, DONE)
    assert shown == ["• Edit a.py", "✓ Edit a.py", "  a.py", "  │ -x = 1", "  │ +x = 2"]
    assert with_outputs(CALL, ended("t", "failed", "No such file")) == [
        "• Edit a.py", "✗ Edit a.py — No such file",
    ]  # fmt: skip


def test_content_of_written_file_is_no_outcome() -> None:
    """As long as it is not known what has changed, an edit shows what it writes."""
    content = "```\nsecret = 1\n```"
    write = {**begun("t", "Write a", "Write", content), "kind": "edit"}
    why = "Stopped, as its turn was cancelled."
    for update, line, below in (
        (ended("t", "failed", content, why), f"✗ Write a — {why}", ["  │ secret = 1"]),
        (ended("t", "failed", "```\nNo space left\n```"), "✗ Write a — No space left", []),
        (ended("t", "completed"), "✓ Write a", ["  │ secret = 1"]),
        (ended("t", "completed", "```\na\nb\n```"), "✓ Write a", ["  │ a", "  │ b"]),
        (ended("t", "completed", "(Unchanged.)"), "✓ Write a — (Unchanged.)", []),
    ):
        assert printed([write, update], live=False) == f"{line}\n"
        assert with_outputs(write, update) == ["• Write a", line, *below]


def test_refused_edit_shows_what_was_refused() -> None:
    edit = {**begun("t", "Edit a", "Edit"), "kind": "edit"}
    change = {"type": "diff", "path": "/w/a", "oldText": "x\n", "newText": "y\n"}
    end = ended("t", "failed", "Refused.")
    end["content"].insert(0, change)
    assert with_outputs(edit, end)[-4:] == [
        "✗ Edit a — Refused.", "  /w/a", "  │ -x", "  │ +y"
    ]  # fmt: skip


def test_a_call_ends_under_its_last_title() -> None:
    updates = [
        begun("t", "Compacting"),
        ended("t", "completed", title="Compacted: 9 tokens before, 2 after"),
    ]
    assert printed(updates, live=True) == "• Compacting\n✓ Compacted: 9 tokens before, 2 after\n"


def test_uninterrupted_calls_of_history_take_one_line_each() -> None:
    updates = [
        begun("a", "Run a"),
        begun("b", "Run b"),
        ended("b", "completed"),
        said("agent_message_chunk", "m", "Meanwhile."),
        ended("a", "completed"),
        begun("c", "Run c"),
    ]
    assert (
        printed(updates, live=False) == "✓ Run b\n• Run a\nClaude:\nMeanwhile.\n✓ Run a\n• Run c\n"
    )


@pytest.mark.parametrize(
    ("status", "texts", "line"),
    [
        ("completed", ["```console\n/w\n```"], "✓ Run it — /w"),
        ("completed", ["one\ntwo"], "✓ Run it"),
        ("failed", [], "✗ Run it"),
        ("failed", ["Exit code 2"], "✗ Run it — Exit code 2"),
        ("failed", ["```\nno such file\n```", "Exit code 2"], "✗ Run it — Exit code 2: no such file"),
        ("failed", ["one\ntwo", "Exit code 2"], "✗ Run it — Exit code 2"),
        ("failed", ["1 tool call", "Stopped by the user."], "✗ Run it — Stopped by the user: 1 tool call"),
        ("failed", ["File not found.\x1b[31m"], "✗ Run it — File not found."),
        ("failed", ["x" * 500], f"✗ Run it — {'x' * 99}…"),
    ],
)  # fmt: skip
def test_call_is_followed_by_its_output_shortened(status: str, texts: list[str], line: str) -> None:
    shown = printed([begun("t", "Run it"), ended("t", status, *texts)], live=False)
    assert shown.startswith(line)
    assert (shown.count("\n"), "\x1b" in shown) == (1, False)


@pytest.mark.parametrize("live", [True, False])
def test_plan_and_answers_to_question_are_shown(live: bool) -> None:
    updates = [
        begun("p", "Plan: Cache", "ExitPlanMode", "# Cache\n\n1. Write"),
        ended("p", "failed", "# Cache\n\n1. Write", "Refused: Shorter."),
        begun("q", "Ask: Which?", "AskUserQuestion", "**Which?**\n- Red"),
        ended("q", "completed", "**Which?**\nRed"),
    ]
    asks = "• Ask: Which?\n" if live else ""
    assert printed(updates, live=live) == (
        "• Plan: Cache\n  │ # Cache\n  │ \n  │ 1. Write\n✗ Plan: Cache — Refused: Shorter.\n"
        f"{asks}✓ Ask: Which?\n  │ **Which?**\n  │ Red\n"
    )


def test_task_lists_show_at_turns_end_and_live() -> None:
    def tasks(first: str, second: str) -> dict[str, Any]:
        entries = [{"content": "Test", "status": first}, {"content": "Write", "status": second}]
        return {"sessionUpdate": "plan", "entries": entries}

    updates = [
        tasks("pending", "pending"),
        tasks("in_progress", "pending"),
        said("agent_message_chunk", "a", "First."),
        tasks("completed", "completed"),
        tasks("completed", "in_progress"),
        said("user_message_chunk", "u", "And?"),
    ]
    assert printed(updates, live=False) == (
        "Claude:\nFirst.\nClaude's tasks:\n- [x] Test\n- [>] Write\nYou:\nAnd?\n"
    )
    assert printed(updates, live=True) == (
        "Claude's tasks:\n- [>] Test\n- [ ] Write\nClaude:\nFirst.\n"
        "Claude's tasks:\n- [x] Test\n- [>] Write\nYou:\nAnd?\n"
    )


@pytest.mark.parametrize(
    ("origin", "speaker"),
    [
        ("scheduler", "Scheduled task"),
        ("terminal", "Terminal"),
        ("whatsapp", "WhatsApp"),
        ("bot", "bot"),
    ],
)
def test_a_prompt_says_through_what_it_came(origin: str, speaker: str) -> None:
    update = said("user_message_chunk", "1", "Hello.") | {"_meta": {"pykoclaw.dev/origin": origin}}
    pieces: list[str] = []
    TranscriptPrinter(lambda text: pieces.append(click.unstyle(text))).show(update)
    assert "".join(pieces).startswith(f"{speaker}:\nHello.")
    assert f"## {speaker}\n\nHello." in "".join(markdown({"summary": summary()}, [update]))


@pytest.mark.parametrize("note", ["note", "failure"])
def test_what_this_program_says_is_not_claudes(note: str) -> None:
    text = "\n\n**It** failed.\n\n"
    update = said("agent_message_chunk", "n", text) | {"_meta": {"pykoclaw.dev/note": note}}
    written: list[str] = []
    page = TranscriptPrinter(written.append)
    page.show(said("agent_message_chunk", "n", "Hm."))
    page.show(update)
    page.end()
    assert click.unstyle("".join(written)) == "Claude:\nHm.\npykoclaw-acp:\nIt failed.\n"


# --- commands


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "sessions",
        "sessions delete",
        "attach",
        "approve",
        "workers",
        "workers stop",
        "doctor",
        "logs",
    ],
)
def test_each_command_has_help(command: str) -> None:
    result = run(*command.split(), "--help")
    assert (result.exit_code, len(result.stdout.splitlines()) > 5) == (0, True)


def test_a_rename_says_what_it_did(asked: list[Any]) -> None:
    ANSWERS["sessions/rename"] = {}
    ANSWERS["sessions/show"] = {"summary": summary(title="New")}
    assert run("sessions", "rename", "5e55", "New").stdout == "Renamed session 5e55 to “New”.\n"


def test_daemon_refusals_are_shown_in_its_words(asked: list[Any]) -> None:
    ANSWERS["sessions/rename"] = front.CallFailed(-32602, "`title`: must not be empty.", None)
    result = run("sessions", "rename", "5e55", " ")
    assert (result.exit_code, result.stderr) == (1, "pykoclaw-acp: `title`: must not be empty.\n")
    ANSWERS["sessions/show"] = front.CallFailed(
        -32002, "No session has this id.", {"sessionId": "5e55"}
    )
    result = run("sessions", "show", "5e55")
    assert (result.exit_code, "No session has the id or the name 5e55." in result.stderr) == (
        1,
        True,
    )


def test_a_session_is_deleted_only_after_a_yes(asked: list[Any]) -> None:
    ANSWERS.update({"sessions/show": {"summary": summary(busy=True)}, "sessions/delete": {}})
    refused = run("sessions", "delete", "5e", given="n\n")
    assert (refused.exit_code, [name for name, _ in asked]) == (1, ["sessions/show"])
    assert "will be cancelled" in refused.stdout
    done = run("sessions", "delete", "5e", given="y\n")
    assert (done.exit_code, "transcript stays" in done.stdout) == (0, True)
    assert asked[-1] == ("sessions/delete", {"session": "5e55"})
    ANSWERS["sessions/delete"] = {"transcriptDeleted": True}
    assert "transcript is deleted, too" in run("sessions", "delete", "5e", given="y\n").stdout
    ANSWERS["sessions/delete"] = {"transcriptDeleted": None}
    assert "There was no transcript" in run("sessions", "delete", "5e", given="y\n").stdout
    left = ["/a/5e55.jsonl", "/a/\x1b5e55"]
    ANSWERS["sessions/delete"] = {"transcriptDeleted": False, "undeleted": left}
    said = run("sessions", "delete", "5e", given="y\n").stdout
    assert "could not be deleted: /a/5e55.jsonl" in said
    assert "\x1b" not in said


def test_an_answer_needs_a_question_and_a_decision(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    assert run("approve", "--allow").exit_code == 2
    ANSWERS["questions/answer"] = {}
    assert run("approve", "q1", "--always").exit_code == 0
    ((method, params),) = asked
    assert (method, params.pop("environment")["ANTHROPIC_API_KEY"]) == ("questions/answer", "sk-1")
    assert params == {"question": "q1", "decision": "allow_always"}


def test_what_a_session_is_called_is_neutral(asked: list[Any]) -> None:
    hostile = {"title": "a\x1b]0;b\x07", "cwd": "/w/\u200bx", "client": "Zed\nFake: yes"}
    details = {
        "summary": summary(**hostile), "additionalDirectories": ["/\u202e"], "mode": None, "model": "m\x9b",
        "awayPolicy": None, "claudeSession": None, "events": 1, "turnCount": 0, "turns": [], "worker": None,
    }  # fmt: skip
    ANSWERS.update(
        {
            "sessions/list": {"sessions": [summary(**hostile)], "more": False},
            "sessions/show": details,
        }
    )
    shown = run("sessions", "list").stdout + run("sessions", "show", "5e55").stdout
    assert not set(shown) & set("\x1b\x07\u200b\u202e\x9b")
    for words in (r"a\x1b]0;b\x07", r"/w/\u200bx", r"by Zed\nFake: yes", r"/\u202e", r"m\x9b"):
        assert words in shown
    told = run("sessions", "show", "5e55", "--json").stdout
    assert (json.loads(told), set(told) & set("\u200b\u202e\x9b")) == (details, set())


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"otherTurns": 2}, "1 event, 0 turns, and 2 turns that other programs have run"),
        ({"otherTurns": 0}, "1 event, 0 turns"),
        ({}, "1 event, 0 turns"),  # as an earlier daemon says it
    ],
)
def test_turns_of_other_programs_are_named(
    asked: list[Any], more: dict[str, int], shown: str
) -> None:
    ANSWERS["sessions/show"] = {
        "summary": summary(), "additionalDirectories": [], "mode": None, "model": None, "awayPolicy": None,
        "claudeSession": None, "events": 1, "turnCount": 0, "turns": [], "worker": None, **more,
    }  # fmt: skip
    out = run("sessions", "show", "5e55").stdout
    assert f"history       {shown}\n" in out


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({"claudeSession": None}, "nothing yet"),
        ({"claudeSession": "c1", "account": ""}, "claude --resume c1"),
        ({"claudeSession": "c1", "account": "work"},
         "claude --resume c1, with the configuration of the account work"),
    ],
)  # fmt: skip
def test_session_says_how_to_go_on_in_terminals(
    asked: list[Any], more: dict[str, Any], shown: str
) -> None:
    ANSWERS["sessions/show"] = {
        "summary": summary(), "additionalDirectories": [], "mode": None, "model": None, "awayPolicy": None,
        "events": 1, "turnCount": 0, "turns": [], "worker": None, **more,
    }  # fmt: skip
    assert f"terminal      {shown}\n" in run("sessions", "show", "5e55").stdout


def test_only_turns_that_began_have_a_begin(asked: list[Any]) -> None:
    def turn(name: str, state: str, **times: int) -> dict[str, Any]:
        known = {"createdAt": 10_000, "startedAt": None, "endedAt": None}
        return {"id": name, "state": state, "error": None, "stopReason": None, **known, **times}

    ANSWERS["sessions/show"] = {
        "summary": summary(), "additionalDirectories": [], "mode": None, "model": None, "awayPolicy": None,
        "claudeSession": None, "events": 1, "turnCount": 3, "worker": None,
        "turns": [
            turn("waits", "queued"),
            turn("stopped", "cancelled", endedAt=20_000),
            turn("ran", "done", startedAt=15_000, endedAt=20_000),
        ],
    }  # fmt: skip
    rows = {
        words[0]: words[1:]
        for line in run("sessions", "show", "5e55").stdout.splitlines()
        if (words := line.split()) and words[0] in ("waits", "stopped", "ran")
    }
    ended = show.when(20_000).split()
    assert rows["waits"] == ["queued"]
    assert rows["stopped"] == ["cancelled", *ended]
    assert rows["ran"] == [*show.when(15_000).split(), "done", *ended]


def test_the_list_says_when_there_is_more(asked: list[Any]) -> None:
    ANSWERS["sessions/list"] = {"sessions": [summary(closedAt=1)], "more": True}
    shown = run("sessions", "list", "--limit", "1").stdout
    assert "The parser" in shown
    assert "closed" in shown
    assert "There are more" in shown
    assert asked[0] == ("sessions/list", {"all": False, "limit": 1})


def test_without_daemon_its_workers_in_proc_are_stopped(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ANSWERS["workers/stop"] = front.DaemonAbsent("No daemon runs.")
    found = [f"{Places.find().hash}:s1:1", f"{Places.find().hash}:s1:1", "other:s2:1"]
    ended: list[bool] = []

    def end_now(belongs: Any, grace: float) -> None:
        ended.extend(belongs(cookie) for cookie in found)

    monkeypatch.setattr("pykoclaw_acp.system.reaper.end_now", end_now)
    assert run("workers", "stop").stdout == "Ended 1 worker.\n"
    assert ended == [True, True, False]
    assert run("workers", "stop", "s1").exit_code == 3


def test_stop_names_live_daemon_it_cannot_reach(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ANSWERS["status"] = front.DaemonAbsent("It has no socket that can be reached.")
    pid = os.getpid()
    monkeypatch.setattr("pykoclaw_acp.link.places.lock_holder", lambda data: (pid, "/s"))
    monkeypatch.setattr("pykoclaw_acp.commands.stopping.GONE_WAIT", 0)
    stopped = run("stop")
    assert stopped.exit_code == 3
    assert f"It has no socket that can be reached. `kill {pid}` ends it;" in stopped.stderr
    assert "starts it" not in stopped.stderr
    listed = run("status")
    assert (listed.exit_code, "starts it" in listed.stderr) == (3, False)


def test_stop_names_daemon_that_has_no_place(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ANSWERS["status"] = front.CallFailed(-32012, "It has no place.", {"retryable": True})
    pid = os.getpid()
    monkeypatch.setattr("pykoclaw_acp.link.places.lock_holder", lambda data: (pid, "/s"))
    monkeypatch.setattr("pykoclaw_acp.commands.stopping.GONE_WAIT", 0)
    stopped = run("stop")
    assert stopped.exit_code == 1
    assert f"It has no place. `kill {pid}` ends it;" in stopped.stderr
    listed = run("status", "--json")
    assert (listed.exit_code, listed.stdout) == (1, "")


def test_commands_say_how_to_start_missing_daemon(asked: list[Any]) -> None:
    ANSWERS["status"] = front.NoDaemon("No daemon runs.")
    for command in ("stop", "status"):
        said = run(command)
        assert (said.exit_code, said.stderr) == (
            3,
            "pykoclaw-acp: No daemon runs. A client starts it, or `pykoclaw-acp serve`.\n",
        )


def test_status_names_database_that_lets_none_start(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ANSWERS["status"] = front.NoDaemon("No daemon runs.")
    monkeypatch.setenv("PYKOCLAW_DATA", str(tmp_path))
    (tmp_path / "pykoclaw.db").write_bytes(os.urandom(20_000))
    said = run("status")
    assert said.exit_code == 3
    assert said.stderr.startswith("pykoclaw-acp: No daemon runs, and none can start. The database ")
    assert "is damaged" in said.stderr
    assert "client starts it" not in said.stderr
    as_json = run("status", "--json")
    assert (as_json.exit_code, json.loads(as_json.stdout)) == (3, {"daemon": None})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (["s1:1"], "1 worker goes on without it: `pykoclaw-acp workers stop` ends it."),
        (
            ["s1:1", "s1:1", "s2:4"],
            "2 workers go on without it: `pykoclaw-acp workers stop` ends them.",
        ),
    ],
)
def test_stop_without_daemon_names_workers_left(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, found: list[str], said: str
) -> None:
    ANSWERS["status"] = front.NoDaemon("No daemon runs.")
    cookies = [*(f"{Places.find().hash}:{one}" for one in found), "other:s3:1"]

    def find(belongs: Any) -> None:
        for cookie in cookies:
            belongs(cookie)

    monkeypatch.setattr("pykoclaw_acp.system.reaper.find", find)
    stopped = run("stop")
    assert stopped.exit_code == 3
    assert said in stopped.stderr


def test_following_goes_on_after_the_daemon_came_back(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def follow(session: str, **params: Any) -> Iterator[dict[str, Any]]:
        calls.append(params)
        yield {"method": "_pykoclaw.dev/event", "params": {"seq": len(calls)}}
        if len(calls) < 3:
            raise DaemonNotRunning("gone")

    monkeypatch.setattr(daemon, "follow", follow)
    monkeypatch.setattr(resuming, "PAUSE", 0)
    assert [one["params"]["seq"] for one in daemon.follow_live("s", 2)] == [1, 2, 3]
    assert [(one.get("turns"), one.get("after")) for one in calls] == [
        (2, None),
        (None, 1),
        (None, 2),
    ]


# --- shells and terminals


def test_shells_complete_commands_and_sessions(
    asked: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ANSWERS["sessions/list"] = {
        "sessions": [{"id": "ab1", "title": "One"}, {"id": "cd2", "title": "Two"}],
        "more": False,
    }
    for words, number, expected in (
        ("pykoclaw-acp sta", 1, "plain,status\n"),
        ("pykoclaw-acp sessions show a", 3, "plain,ab1\n"),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(number))
        monkeypatch.setenv(COMPLETION, "bash_complete")
        result = CliRunner().invoke(cli, prog_name="pykoclaw-acp", complete_var=COMPLETION)
        assert result.stdout == expected
    assert asked
    ANSWERS["sessions/list"] = DaemonNotRunning("no daemon")
    assert (
        CliRunner().invoke(cli, prog_name="pykoclaw-acp", complete_var=COMPLETION).stdout.strip()
        == ""
    )


SHELLS = ("bash", "zsh", "fish")
# What each shell tells the program of the word to complete, and how its script reads the answer.
ASKING = {
    "bash": ("3", "plain,ab1\n"),
    "zsh": ("3", "plain\nab1\nOne: or,\\ntwo\n"),
    "fish": ("a", "plain,ab1\tOne: or,\\ntwo\n"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_is_answered_as_it_reads(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    """A line break of a title is no end of the answer."""
    one = {"id": "ab1", "title": "One: or,\ntwo"}
    ANSWERS["sessions/list"] = {"sessions": [one], "more": False}
    number, expected = ASKING[shell]
    monkeypatch.setenv("COMP_WORDS", "pykoclaw-acp sessions show a")
    monkeypatch.setenv("COMP_CWORD", number)
    monkeypatch.setenv(COMPLETION, f"{shell}_complete")
    result = CliRunner().invoke(cli, prog_name="pykoclaw-acp", complete_var=COMPLETION)
    assert result.stdout == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_asks_and_registers(shell: str) -> None:
    script = run("completion", shell).stdout
    assert f"{COMPLETION}={shell}_complete" in script
    assert completion.VARIABLE == COMPLETION
    registers = {
        "bash": "complete -o nosort -F _pykoclaw_acp_completion pykoclaw-acp",
        "zsh": "compdef _pykoclaw_acp_completion pykoclaw-acp",
        "fish": "complete --no-files --command pykoclaw-acp",
    }
    assert registers[shell] in script


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_is_correct_for_shell(tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    (tmp_path / "script").write_text(run("completion", shell).stdout)
    read = subprocess.run(
        [program, "-n", tmp_path / "script"], capture_output=True, text=True, check=False
    )
    assert (read.returncode, read.stdout, read.stderr) == (0, "", "")


def test_paragraphs_are_indented_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert terminal.wrapped("one two three", 4) == "    one two three\n"
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "12")
    assert terminal.wrapped("one two three", 4) == "    one two\n    three\n"
    assert terminal.wrapped("one two three", 4, first=4) == "one two\n    three\n"


def test_long_facts_go_on_below_their_beginning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    show.facts([("data", "/here"), ("database", "one two three four")])
    assert capsys.readouterr().out == ("data      /here\ndatabase  one two\n          three four\n")


def terminal_of(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))


def test_settings_are_explained_in_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal_of(monkeypatch, 60)
    lines = run("config").stdout.splitlines()
    explained = [line for line in lines if line.startswith(" ")]
    assert all(line.startswith("    ") and line[4] != " " for line in explained)
    assert all(len(line) <= 60 for line in explained)
    assert len(explained) > len([line for line in lines if line.startswith("PYKOCLAW_")])


def test_findings_are_columns_of_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        Finding("one", "ok", "Found well. " * 9, ""),
        Finding("another", "problem", "Found ill. " * 9, "Do this. " * 9),
    ]
    monkeypatch.setattr("pykoclaw_acp.doctor.checks.examine", lambda context, checks: found)
    terminal_of(monkeypatch, 60)
    result = run("doctor")
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert all(len(line) <= 60 for line in lines)
    first = [at for at, line in enumerate(lines) if not line.startswith(" ")]
    assert [lines[at][:11] for at in first] == ["✓ one      ", "✗ another  ", "1 problem"]
    advice = next(at for at, line in enumerate(lines) if line.startswith(" " * 11 + "→ Do this."))
    found_ill = lines[first[1] : advice]
    assert all(line[11:].startswith(("Found", "ill.")) for line in found_ill)
    assert len(found_ill) > 1
    advised = lines[advice + 1 : -1]
    assert advised
    assert all(line.startswith(" " * 13) and line[13] != " " for line in advised)


@pytest.mark.parametrize(
    ("levels", "said", "status"),
    [
        (["ok", "ok"], "Everything is fine.", 0),
        (["ok", "warning", "warning"], "2 warnings", 0),
        (["warning", "problem", "warning"], "1 problem, 2 warnings", 1),
    ],
)
def test_doctor_ends_with_count_of_findings(
    monkeypatch: pytest.MonkeyPatch, levels: list[Any], said: str, status: int
) -> None:
    found = [Finding("one", level, "Found.") for level in levels]
    monkeypatch.setattr("pykoclaw_acp.doctor.checks.examine", lambda context, checks: found)
    result = run("doctor")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (status, said)
    assert len(json.loads(run("doctor", "--json").stdout)) == len(levels)


def test_the_manual_page_is_of_this_version() -> None:
    """`make man` writes it."""
    assert manual.PAGE.read_text() == manual.page()


def test_the_manual_page_has_variables_of_config() -> None:
    headings = re.findall(r"^\\fB(PYKOCLAW_\w+)\\fR$", manual.page(), re.MULTILINE)
    listed = [line["env"] for line in json.loads(run("config", "--json").stdout)]
    assert sorted(headings) == sorted(listed)


# --- logs


def log_file() -> Path:
    path = Path(Places.find().log)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def entry(event: str, **more: Any) -> str:
    known = {
        "timestamp": "2026-01-01T00:00:00Z",
        "level": "info",
        "event": event,
        "logger": "x",
        "action": "y",
    }
    return json.dumps({**known, **more})


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.delenv("TZ")
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_log_is_shown_rendered_or_raw() -> None:
    assert "There is no log yet" in run("logs").stderr
    log_file().touch()
    assert "The log is empty" in run("logs").stderr
    log_file().write_text(
        "\n".join([entry("Zero"), "Traceback\x1b[2J", entry("One", session="s"), ""])
    )
    assert (
        run("logs", "-n", "2").stdout
        == "Traceback\\x1b[2J\n01-01 01:00:00 info    One  session=s\n"
    )
    assert run("logs", "-n", "1", "--json").stdout == entry("One", session="s") + "\n"
    (log_file().parent / "workers.log").write_text("a worker\n")
    assert run("logs", "--workers").stdout == "a worker\n"


def test_a_name_from_outside_forges_no_line() -> None:
    name = "Zed\n2026-01-01T00:00:00Z error   Forged  session=a\x1b[2J\u202e\x9b2J"
    failed = entry("One", exception="Traceback\nValueError: x\n2026-01-01 Forged")
    log_file().write_text("\n".join([entry("Client", client=name), failed, ""]))
    client, *others = run("logs").stdout.splitlines()
    assert client.endswith(
        r'client="Zed\n2026-01-01T00:00:00Z error   Forged  session=a\u001b[2J\u202e\x9b2J"'
    )
    first, *traceback = others
    assert re.match(r"\d\d-\d\d \d\d:\d\d:\d\d info    One$", first)
    assert traceback == [
        f"    {one}" for one in ("Traceback", "ValueError: x", "2026-01-01 Forged")
    ]
    written = run("logs", "--json").stdout
    assert json.loads(written.splitlines()[0])["client"] == name
    assert not set(written) & set("\x1b\x9b\u202e")


def test_warnings_in_the_log_are_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = logs.readable(entry("Slow", level="warning"))
    assert "\x1b[33mwarning\x1b[0m" in line
    monkeypatch.setenv("NO_COLOR", "1")
    (line,) = logs.readable(entry("Slow", level="warning"))
    assert "\x1b" not in line


USER_MANAGER = "0::/user.slice/user@1000.service/app.slice"


def runs_in(group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon runs, in this control group."""
    monkeypatch.setattr(logs, "lock_holder", lambda data: (4, "/s"))
    monkeypatch.setattr(logs, "PROC", tmp_path)
    (tmp_path / "4").mkdir()
    (tmp_path / "4/cgroup").write_text(group + "\n")


def test_what_journalctl_writes_is_neutral_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "journalctl"
    program.write_text("#!/bin/sh\nprintf 'Jan 1 %s \\302\\2332J\\n' \"$*\"\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    runs_in(f"{USER_MANAGER}/pykoclaw-acp.service", tmp_path, monkeypatch)
    words = "--user --no-pager --output=cat --unit=pykoclaw-acp.service --lines=3 --follow"
    assert run("logs", "-n", "3", "-f").stdout == rf"Jan 1 {words} \x9b2J" + "\n"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{entry('Server ready')}\nEND\n")
    assert re.match(r"\d\d-\d\d \d\d:\d\d:\d\d info    Server ready$", run("logs").stdout)
    program.write_text("#!/bin/sh\nexit 3\n")
    assert "status 3" in run("logs").stderr


def test_following_log_survives_its_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAUSE", 0.001)
    path = log_file().with_name("workers.log")
    path.write_text("one\n")
    seen: list[str] = []

    def tell(line: str) -> None:
        seen.append(line.rstrip())
        if seen[-1] == "end":
            raise KeyboardInterrupt

    monkeypatch.setattr(terminal, "json_text", tell)
    reader = threading.Thread(target=logs.main, args=(10, True, True, True), daemon=True)
    reader.start()
    try:
        eventually_sync(lambda: seen == ["one"])
        with path.open("a") as file:
            file.write("two, in tw")
            file.flush()
            file.write("o pieces\n")
        eventually_sync(lambda: seen == ["one", "two, in two pieces"])
        path.write_text("new\n")
        eventually_sync(lambda: seen[2:] == ["new"])
    finally:
        with path.open("a") as file:
            file.write("end\n")
        reader.join(30)
    assert not reader.is_alive()


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (f"{USER_MANAGER}/pykoclaw-acp.service", "--user --no-pager"),
        ("0::/system.slice/pykoclaw-acp.service", "--no-pager"),
        (f"{USER_MANAGER}/pykoclaw-acp-0123-4.scope", None),
        ("0::/user.slice/session-1.scope", None),
    ],
)
def test_under_systemd_the_log_is_the_journals(
    group: str, words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "journalctl"
    program.write_text('#!/bin/sh\necho "$*"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    log_file().write_text("of the file\n")
    runs_in(group, tmp_path, monkeypatch)
    more = "--output=cat --unit=pykoclaw-acp.service --lines=9"
    expected = "of the file" if words is None else f"{words} {more}"
    assert run("logs", "-n", "9").stdout == expected + "\n"


@pytest.mark.parametrize(
    ("socket", "user", "own"),
    [("here", "", True), ("/elsewhere", "", False), ("/elsewhere", "me", True)],
)
def test_log_of_service_that_failed_is_the_journals(
    socket: str, user: str, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Places.find().socket if socket == "here" else socket
    name = pwd.getpwuid(os.getuid()).pw_name if user else ""
    shown = f"LoadState=loaded\nUser={name}\nEnvironment=PATH=/bin PYKOCLAW_SOCKET={path}"
    for name, script in (
        ("systemctl", f"[ $1 = --user ] && echo '{shown}'"),
        ("journalctl", f"cat <<'END'\n{entry('A setting is wrong')}\nEND"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    log_file().write_text(entry("Long ago") + "\n")
    result = run("logs")
    assert ("A setting is wrong" in result.stdout, "Long ago" in result.stdout) == (own, not own)
    assert ("journal of pykoclaw-acp.service" in result.stderr) == own


def test_absent_session_message_does_not_hide_other_errors(asked: list[Any]) -> None:
    ANSWERS["sessions/show"] = front.CallFailed(
        -32603, "The answer is longer than a line may be.", None
    )
    assert "is longer than" in run("sessions", "show", "5e55").stderr


# --- sessions, status, rewind


def test_directorys_end_stays_in_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any]
) -> None:
    one = summary(title="A title " * 20, cwd="/home/somebody/very/deep/below/projects/the-one")
    ANSWERS["sessions/list"] = {"sessions": [one], "more": False}
    screen = narrow(monkeypatch, 80)
    assert run("sessions", "list").exit_code == 0
    line = plain(screen).splitlines()[-1]
    assert re.search(r"A title A title A [^/]*…   …\S+/projects/the-one$", line.rstrip())


@pytest.mark.parametrize(
    ("state", "other", "tasks", "told"),
    [
        ("off", None, [], False),
        ("off", None, [{}], True),
        ("off", 12, [], True),
        ("on", None, [], True),
        ("stands_by", 12, [], True),
    ],
)
def test_status_tells_of_tasks_if_any_matter(
    asked: list[Any], state: str, other: int | None, tasks: list[Any], told: bool
) -> None:
    ANSWERS["tasks/list"] = {"tasks": tasks, "more": False, "scheduler": None}
    facts = status.facts_of_scheduler({"state": state, "other": other, "running": 0})
    assert bool(facts) is told


@pytest.mark.parametrize(
    "error",
    [
        front.CallFailed(-32011, "It is damaged.", None),
        front.DaemonAbsent("The daemon ended before it had answered.", 0.1),
    ],
)
def test_status_shows_the_rest_without_tasks(asked: list[Any], error: Exception) -> None:
    ANSWERS["tasks/list"] = error
    facts = status.facts_of_scheduler({"state": "off", "other": None, "running": 0})
    assert facts == [("tasks", "cannot be read now")]


def plan(files: list[str], error: str | None = None) -> dict[str, Any]:
    """What a rewind of one turn changes."""
    lines = {"insertions": 1, "deletions": 2} if files else {"insertions": None, "deletions": None}
    return {"turnId": "t", "turns": 1, "files": files, "filesError": error, **lines}


@pytest.mark.parametrize(
    ("files", "options", "told"),
    [
        (
            ["/w/a"],
            [],
            "Rewound. 1 file changed; what did not exist then is deleted.",
        ),
        (
            ["/w/a"],
            [],
            "1 file will be as it was before (+1 -2 lines), or deleted if it did not exist then.",
        ),
        (
            ["/w/a", "/w/b"],
            [],
            "Rewound. 2 files changed; what did not exist then is deleted.",
        ),
        (
            ["/w/a", "/w/b"],
            [],
            "2 files will be as they were before (+1 -2 lines), or deleted if they did not exist",
        ),
        ([], [], "Rewound. No file was changed"),
        ([], ["--no-files"], "Rewound. Files were left as they are."),
    ],
)
def test_rewind_says_what_it_did_and_what_stays(
    asked: list[Any], files: list[str], options: list[str], told: str
) -> None:
    ANSWERS["sessions/show"] = {"summary": summary(title="A title"), "turns": []}
    ANSWERS["rewind"] = plan(files)
    out = run("rewind", "5e55", "--yes", *options).stdout
    assert told in out
    assert "Changes made by commands stay, as do mode, model" in out


@pytest.mark.parametrize(
    ("deleted", "told"),
    [
        ([], "Rewound. 2 files were put back. Changes"),
        (["/w/b"], "1 file was put back; 1 file that did not exist then was deleted."),
        (["/w/b"], " Deleted: /w/b. Changes made"),
        (
            ["/w/a", "/w/b"],
            "Rewound. 2 files that did not exist then were deleted. Deleted: /w/a, /w/b.",
        ),
    ],
)
def test_rewind_says_which_files_are_deleted(
    asked: list[Any], deleted: list[str], told: str
) -> None:
    ANSWERS["sessions/show"] = {"summary": summary(), "turns": []}
    ANSWERS["rewind"] = plan(["/w/a", "/w/b"]) | {"deleted": deleted}
    assert told in run("rewind", "5e55", "--yes").stdout


def test_rewind_takes_beginning_of_turns_id(asked: list[Any]) -> None:
    """What is no turn's goes to the daemon as it is."""
    ids = ["0a1b2c3d-1", "0a1b2c3d-2", "fork/99887766-1"]
    ANSWERS["sessions/show"] = {"summary": summary(), "turns": [{"id": one} for one in ids]}
    ANSWERS["rewind"] = plan([])
    for word in ("99887766", "message", ids[0]):
        assert run("rewind", "5e55", word, "--dry-run").exit_code == 0
    told = [params["message"] for name, params in asked if name == "rewind"]
    assert told == [ids[2], "message", ids[0]]
    several = run("rewind", "5e55", "0a1b2c3d", "--dry-run")
    assert (several.exit_code, "Several turns begin with" in several.stderr) == (1, True)


def test_rewind_names_prompt_that_it_goes_back_to(asked: list[Any]) -> None:
    turns = [{"id": "later", "prompt": "Later."}, {"id": "t", "prompt": "Look\x1b."}]
    running = [{"id": "toolu_1", "title": "Agent: look"}]
    ANSWERS["sessions/show"] = {"summary": summary(), "turns": turns, "running": running}
    ANSWERS["rewind"] = plan([])
    assert "in the background is stopped." in run("rewind", "5e55", "--dry-run").stdout
    assert r", from “Look\x1b.” on;" in run("rewind", "5e55", "--dry-run").stdout


def test_show_names_running_calls_and_prompts(asked: list[Any]) -> None:
    turn = {"id": "t" * 36, "state": "done", "error": None, "stopReason": "end_turn"}
    ANSWERS["sessions/show"] = {
        "summary": summary(promptedAt=1, background=True), "additionalDirectories": [], "mode": None, "model": None,
        "awayPolicy": None, "claudeSession": None, "events": 1, "turnCount": 1, "worker": None,
        "turns": [turn | {"createdAt": 0, "startedAt": None, "endedAt": None, "prompt": "Look\x1b."}],
        "running": [{"id": "toolu_1", "title": "Agent: look\x1b"}],
    }  # fmt: skip
    rewound = ANSWERS["sessions/show"]["turns"][0] | {"id": "r" * 36, "rewoundAt": 1}
    ANSWERS["sessions/show"]["turns"].insert(0, rewound)
    shown = run("sessions", "show", "5e55").stdout
    assert "state         background\n" in shown
    assert shown.splitlines()[-2].split()[:3] == ["rrrrrrrr", "done,", "rewound"]
    assert r"Agent: look\x1b (toolu_1)" in shown
    assert "`pykoclaw-acp workers stop-task 5e55 ID`" in shown
    assert shown.splitlines()[-1].split() == ["tttttttt", "done", "end_turn", r"Look\x1b."]


def test_rewind_shows_what_it_changes_and_asks(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"ANTHROPIC_API_KEY": "sk-of-the-shell"}
    monkeypatch.setattr(rewind, "given_environment", lambda: given)
    ANSWERS["sessions/show"] = {"summary": summary(title="A title"), "turns": []}
    ANSWERS["rewind"] = plan([f"/w/{number}\x1b" for number in range(60)])
    refused = run("rewind", "5e", "m", given="n\n")
    shown = refused.stdout.splitlines()
    assert shown[0].startswith("A rewind makes Claude forget 1 turn of “A title”;")
    assert [line for line in shown if line.startswith("  /w/")] == [
        rf"  /w/{number}\x1b" for number in range(50)
    ]
    assert (
        "60 files will be as they were before (+1 -2 lines), or deleted if they did not exist then."
    ) in shown
    assert (refused.exit_code, "Rewind?" in refused.stdout) == (1, True)
    dry = run("rewind", "5e", "--dry-run", "--no-files")
    assert dry.exit_code == 0
    assert "/w/1" in dry.stdout
    assert "Rewind" not in dry.stdout
    chosen = {"session": "5e55", "message": "m", "files": True, "environment": given}
    assert [params for name, params in asked if name == "rewind"] == [
        chosen | {"dryRun": True},
        chosen | {"dryRun": True, "message": None, "files": False},
    ]
    del asked[:]
    done = run("rewind", "5e", given="y\n")
    assert (done.exit_code, "Rewound. 60 files" in done.stdout) == (0, True)
    assert [params for name, params in asked if name == "rewind"] == [
        chosen | {"dryRun": True, "message": None},
        chosen | {"message": "t"},
    ], "to the turn that was shown"


def test_rewind_without_files_needs_explicit_word(asked: list[Any]) -> None:
    ANSWERS["sessions/show"] = {"summary": summary(), "turns": []}
    ANSWERS["rewind"] = plan([], "There is no copy.")
    refused = run("rewind", "5e", "--yes")
    assert refused.exit_code == 1
    assert "There is no copy. With --no-files only Claude's memory" in refused.stderr
    ANSWERS["rewind"] = plan([])
    assert "No file changes." in run("rewind", "5e", "--dry-run").stdout
    assert all(params.get("dryRun") for name, params in asked if name == "rewind")


# --- workers and stop


WORKER: dict[str, Any] = {
    "session": "0123456789",
    "state": "waiting_for_permission",
    "pid": 4194304,
    "epoch": 123,
    "startedAt": 0,
    "memory": 1023 * 1024**2,
    "title": "A title " * 20,
}


def taking_text(group: click.Group) -> Iterator[click.Parameter]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from taking_text(command)
        yield from (one for one in command.params if one.type.name in ("text", "path"))


def test_empty_value_never_counts_for_none(asked: list[Any]) -> None:
    """As of a variable of a script that is not set."""
    context = click.Context(cli)
    harmless = {"text", "title", "reason", "answers", "email", "appended"}
    found = [one for one in taking_text(cli) if one.name not in harmless]
    assert {"key", "session", "question", "task", "rule"} <= {one.name for one in found}
    for one in found:
        with pytest.raises(click.BadParameter, match=r"empty|'' does not exist"):
            one.process_value(context, "")
    refused = run("prompt", "--new", "--key", "", "deploy")
    assert (refused.exit_code, asked) == (2, [])
    assert "'--key': It is empty. Is the variable" in refused.output
    assert run("approve", "", "--allow").exit_code == 2


@pytest.mark.parametrize("columns", [40, 50, 60, 72])
def test_turns_have_id_and_state_when_narrow(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any], columns: int
) -> None:
    turn = {
        "id": "0123456789", "state": "cancelled", "error": {"kind": "authentication_missing"},
        "stopReason": None, "startedAt": 15_000, "endedAt": 20_000, "rewoundAt": 30_000,
        "prompt": "Tell me what is new. " * 9,
    }  # fmt: skip
    ANSWERS["sessions/show"] = {
        "summary": summary(), "additionalDirectories": [], "mode": None, "model": None, "awayPolicy": None,
        "claudeSession": None, "events": 1, "turnCount": 1, "worker": None, "turns": [turn],
    }  # fmt: skip
    screen = narrow(monkeypatch, columns)
    assert run("sessions", "show", "5e55").exit_code == 0
    lines = plain(screen).splitlines()
    assert all(len(line) <= columns for line in lines)
    assert lines[-1].startswith("01234567 ")
    assert "cancelled, rewound " in lines[-1]
    assert ("Tell me" in lines[-1]) or columns < 50


def test_workers_have_id_state_pid_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any]
) -> None:
    ANSWERS["workers/list"] = [WORKER]
    screen = narrow(monkeypatch, 80)
    assert run("workers").exit_code == 0
    lines = plain(screen).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[-1].startswith("01234567 ")
    assert {"waiting_for_permission", "4194304"} <= set(lines[-1].split())


def test_workers_as_json(asked: list[Any]) -> None:
    ANSWERS["workers/list"] = [WORKER]
    for arguments in (("workers", "--json"), ("workers", "list", "--json")):
        assert json.loads(run(*arguments).stdout) == [WORKER]
    assert run("workers", "--json", "list").exit_code == 2
    ANSWERS["workers/list"] = []
    assert run("workers", "--json").stdout == "[]\n"
    assert run("workers").stdout == "No worker runs.\n"


def test_stop_ends_daemon_that_had_no_lock(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question waits for one that is starting (tests/integration/test_front_call.py)."""
    ended: list[int] = []
    monkeypatch.setattr("pykoclaw_acp.link.places.lock_holder", lambda data: None)
    monkeypatch.setattr(stopping, "end", ended.append)
    ANSWERS.update(
        {"status": {"daemon": {"pid": 7}, "database": {}}, "workers/stop": {"workers": 0}}
    )
    result = run("stop")
    assert (result.exit_code, ended) == (0, [7])
    assert "The daemon (pid 7) has ended." in result.stdout


@pytest.fixture
def exited() -> Iterator[int]:
    """Pid of a process that has ended, and that its parent has not looked at yet."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield process.pid
    process.wait()


@pytest.mark.parametrize("answers", [0, 1, 2])
@pytest.mark.parametrize("held", [0, 1])
def test_stop_succeeds_while_another_stop_does(
    monkeypatch: pytest.MonkeyPatch, exited: int, answers: int, held: int
) -> None:
    """The daemon gives so many answers and goes away; so many looks later its lock is free."""
    left = [answers, held]

    def call(places: Places, method: str, params: dict[str, Any], **_: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise front.DaemonAbsent("The daemon ended before it had answered. Try again.")
        return {"daemon": {"pid": exited}, "database": {}, "workers": 0}

    def holder(data: str) -> tuple[int, str] | None:
        left[1] -= left[0] < (answers == 2)  # nothing is asked after these
        return (exited, "socket") if left[1] >= 0 else None

    monkeypatch.setattr(front, "call", call)
    monkeypatch.setattr("pykoclaw_acp.link.places.lock_holder", holder)
    result = run("stop")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"The daemon (pid {exited}) has ended." in result.stdout


def test_stop_says_that_another_daemon_runs(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, exited: int
) -> None:
    """The one that it was to end was ended and followed by another one meanwhile."""
    holders = iter([(exited, "socket")])
    monkeypatch.setattr(
        "pykoclaw_acp.link.places.lock_holder", lambda data: next(holders, (1, "socket"))
    )
    ANSWERS["status"] = front.DaemonAbsent("The daemon ended before it had answered. Try again.")
    result = run("stop")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Another daemon has taken over just now." in result.stderr


@pytest.mark.parametrize(
    ("done", "told"),
    [
        ({"changed": True}, "Paused af20.\n"),
        ({}, "Paused af20.\n"),  # an earlier daemon
        ({"changed": False}, "af20 was paused already.\n"),
    ],
)
def test_pause_says_if_it_was_paused_already(
    asked: list[Any], done: dict[str, Any], told: str
) -> None:
    ANSWERS["tasks/pause"] = {"id": "af20", **done}
    assert run("tasks", "pause", "af").stdout == told


@pytest.mark.parametrize(
    ("done", "told"),
    [
        (
            {"cancelled": 2},
            "Archived. 2 turns that ran or waited ended as cancelled. `sessions list",
        ),
        ({"cancelled": 0}, "Archived. `sessions list"),
        ({}, "Archived. `sessions list"),  # an earlier daemon
        ({"cancelled": 0, "changed": False}, "The session was archived already. `sessions list"),
    ],
)
def test_archive_says_what_it_stopped(asked: list[Any], done: dict[str, int], told: str) -> None:
    ANSWERS["sessions/archive"] = done
    out = run("sessions", "archive", "5e55").stdout
    assert out.startswith(told)
    assert "until `sessions unarchive`" in out


@pytest.mark.parametrize("command", [("archive",), ("delete", "--yes")])
def test_end_of_turns_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """A Claude that hangs is killed only after a while, which is no daemon that hangs."""
    waits: dict[str, float] = {}

    def call(places: Places, method: str, params: Any, *, timeout: float, **_: Any) -> Any:
        waits[method] = timeout
        return {"summary": summary()}

    monkeypatch.setattr(front, "call", call)
    assert run("sessions", *command, "5e55").exit_code == 0
    assert waits[f"_pykoclaw.dev/sessions/{command[0]}"] == sessions.END_WAIT


@pytest.mark.parametrize(
    ("done", "told"),
    [
        ({"changed": True}, "Unarchived: lists show the session again."),
        ({"changed": False}, "The session was not archived; nothing was changed."),
        ({}, "Unarchived: lists show the session again."),  # an earlier daemon
    ],
)
def test_unarchive_says_whether_it_was_archived(
    asked: list[Any], done: dict[str, bool], told: str
) -> None:
    ANSWERS["sessions/unarchive"] = done
    assert run("sessions", "unarchive", "5e55").stdout == f"{told}\n"


def test_place_beyond_the_history_is_an_error(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any]
) -> None:
    ANSWERS["sessions/show"] = {"summary": summary(), "turns": []}
    monkeypatch.setattr(sessions, "follow", lambda *_, **__: iter(()))
    done = run("sessions", "show", "5e55", "--seq", "9999")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "There is nothing at 9999" in done.stderr


@pytest.mark.parametrize("place", [7, 9])
def test_other_place_of_the_history_is_named(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any], place: int
) -> None:
    """As of a message that is one row, or where a row was removed."""
    message = {"params": {"seq": place, "update": {"sessionUpdate": "plan"}}}
    ANSWERS["sessions/show"] = {"summary": summary(), "turns": []}
    monkeypatch.setattr(sessions, "follow", lambda *_, **__: iter([message]))
    done = run("sessions", "show", "5e55", "--seq", "7", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"sessionUpdate": "plan"})
    assert done.stderr == (
        ""
        if place == 7
        else "The history has nothing at 7 alone. This is at 9: what comes next, or the rest of a message.\n"
    )


@pytest.mark.parametrize(
    ("error", "certain"),
    [
        (front.CallFailed(-32012, "No.", None), True),
        (front.CallFailed(-32011, "No.", {"errorKind": "store_blocked"}), True),
        (front.CallFailed(-32011, "No.", {"errorKind": "store_uncertain"}), False),
        (front.CallFailed(-32603, "No.", None), False),
    ],
)
def test_refusal_says_whether_it_is_certain(
    asked: list[Any], error: front.CallFailed, certain: bool
) -> None:
    ANSWERS["status"] = error
    with pytest.raises(CommandFailed) as failed:
        daemon.ask("status")
    assert failed.value.certain is certain
    assert failed.value.kind == (error.data or {"errorKind": "internal"})["errorKind"]


@pytest.mark.parametrize("arguments", [[], ["--new", "5e55", "text"]])
def test_prompt_takes_either_session_or_new_one(asked: list[Any], arguments: list[str]) -> None:
    assert run("prompt", *arguments).exit_code == 2
    assert asked == []


# --- MCP servers


@pytest.mark.parametrize("command", ["login", "logout"])
def test_each_account_signs_in_at_its_place(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    places: list[str | None] = []

    async def work(*_: object) -> bool:
        places.append(os.environ.get("CLAUDE_CONFIG_DIR"))
        return True

    monkeypatch.setattr(mcp, f"_{command}", work)
    given = {"name": "web", "config": {}}
    servers = [given | {"claudeConfigDir": place} for place in ("/work", None)]
    ANSWERS["mcp/find"] = {"servers": servers, "claudeConfigDir": None}
    for answer in (ANSWERS["mcp/find"], DaemonNotRunning("none")):
        ANSWERS["mcp/find"] = answer
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/of/the/shell")
        assert run("mcp", command, "web").exit_code == 0
    assert places == ["/work", None, "/of/the/shell"]


@pytest.mark.parametrize("command", ["login", "logout"])
def test_server_of_settings_is_of_the_account(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    """One that a client has given is of its session's account, unless another one is asked for."""
    work = tmp_path / "data/accounts/work"
    work.mkdir(parents=True)
    monkeypatch.setenv("PYKOCLAW_DATA", str(tmp_path / "data"))
    places: list[str | None] = []

    async def sign(*_: object) -> bool:
        places.append(os.environ.get("CLAUDE_CONFIG_DIR"))
        return True

    monkeypatch.setattr(mcp, f"_{command}", sign)
    given: dict[str, Any] = {"name": "web", "config": {}, "claudeConfigDir": None}
    for servers in ([], [given]):
        ANSWERS["mcp/find"] = {"servers": servers, "claudeConfigDir": None}
        for chosen in ([], ["--account", "work"], ["--account", "default"]):
            assert run("mcp", command, "web", *chosen).exit_code == 0
    assert places == [None, str(work), None, None, str(work), None]
    monkeypatch.setenv("PYKOCLAW_ACCOUNT", "work")
    ANSWERS["mcp/find"] = {"servers": [], "claudeConfigDir": None}
    assert run("mcp", command, "web").exit_code == 0
    assert places[-1] == str(work)
    assert "no account gone" in run("mcp", command, "web", "--account", "gone").stderr


@pytest.mark.parametrize("command", ["login", "logout"])
def test_given_server_needs_no_account_here(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setenv("PYKOCLAW_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PYKOCLAW_ACCOUNT", "gone")

    async def known(*_: object) -> bool:
        return True

    monkeypatch.setattr(mcp, f"_{command}", known)
    given: dict[str, Any] = {"name": "web", "config": {}, "claudeConfigDir": "/work"}
    ANSWERS["mcp/find"] = {"servers": [given], "claudeConfigDir": None}
    assert run("mcp", command, "web").exit_code == 0
    for chosen, servers in ([], []), (["--account", "gone"], [given]):
        ANSWERS["mcp/find"] = {"servers": servers, "claudeConfigDir": None}
        assert "no account gone" in run("mcp", command, "web", *chosen).stderr


@pytest.mark.parametrize("command", ["login", "logout"])
def test_server_of_another_account_is_not_denied(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("PYKOCLAW_CLI_PATH", "/bin/false")

    async def unknown(*_: object) -> bool:
        return False

    monkeypatch.setattr(mcp, f"_{command}", unknown)
    given: dict[str, Any] = {"name": "web", "config": {}, "claudeConfigDir": "/work"}
    ANSWERS["mcp/find"] = {"servers": [given], "claudeConfigDir": None}
    ANSWERS["trust/show"] = {"found": [], "trusted": False}
    said = run("mcp", command, "web", "--account", "default").stderr
    assert "not in account default" in said
    assert "only to sessions of another account" in said
    assert "There is no MCP server" not in said


@pytest.mark.parametrize("command", ["login", "logout"])
def test_daemon_gets_no_accounts_configuration(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """One that is started to say what is trusted serves everybody."""
    seen: list[tuple[str, str | None]] = []

    async def unknown(*_: object) -> bool:
        seen.append(("Claude", os.environ.get("CLAUDE_CONFIG_DIR")))
        return False

    def answer(method: str, **_: object) -> Any:
        seen.append((method, os.environ.get("CLAUDE_CONFIG_DIR")))
        return ANSWERS[method]

    monkeypatch.setattr(mcp, f"_{command}", unknown)
    monkeypatch.setattr(mcp, "ask", answer)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/mine")
    given: dict[str, Any] = {"name": "web", "config": {}, "claudeConfigDir": "/work"}
    ANSWERS["mcp/find"] = {"servers": [given], "claudeConfigDir": None}
    ANSWERS["trust/show"] = {"found": ["a hook"], "trusted": False}
    assert run("mcp", command, "web").exit_code == 1
    assert seen == [("mcp/find", "/mine"), ("Claude", "/work"), ("trust/show", "/mine")]
    assert os.environ["CLAUDE_CONFIG_DIR"] == "/mine"


@pytest.mark.parametrize("command", ["login", "logout"])
def test_cli_signs_in_to_servers_of_directory(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    cli, calls = tmp_path / "claude", tmp_path / "calls"
    cli.write_text(
        f'#!/bin/sh\necho "$PWD $*" >> {calls}\ncase "$*" in *-x) exit 1;; "mcp log"*bad) exit 3;; esac\n'
    )
    cli.chmod(0o755)
    monkeypatch.setenv("PYKOCLAW_CLI_PATH", str(cli))
    monkeypatch.chdir(tmp_path)

    async def unknown(*_: object) -> bool:
        return False

    monkeypatch.setattr(mcp, f"_{command}", unknown)
    ANSWERS["mcp/find"] = {"servers": [], "claudeConfigDir": None}
    ANSWERS["trust/show"] = {"found": [".mcp.json: MCP server web"], "trusted": False}
    assert "not trusted" in run("mcp", command, "web").stderr
    assert not calls.exists(), "to know a server, the CLI starts it"
    assert asked[-1] == ("trust/show", {"path": str(tmp_path), "allSources": True})
    ANSWERS["trust/show"]["trusted"] = True
    assert run("mcp", command, "web").exit_code == 0
    assert calls.read_text().splitlines() == [
        f"{tmp_path} mcp get -- web",
        f"{tmp_path} mcp {command} -- web",
    ]
    assert "status 3" in run("mcp", command, "bad").stderr
    refused = run("mcp", command, "--", "-x")
    assert refused.exit_code == 1
    assert "There is no MCP server -x" in refused.stderr
    assert "by name in this directory" in refused.stderr
