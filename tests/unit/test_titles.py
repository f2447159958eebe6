"""Titles of tool calls."""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.model.events import TextPart, ToolStarted
from pykoclaw_acp.translation import tools
from pykoclaw_acp.translation.mcp_names import McpName, McpNames
from pykoclaw_acp.translation.texts import MAX_ASKED, MAX_TITLE
from pykoclaw_acp.translation.titles import asked, title
from pykoclaw_acp.translation.translator import Translation

NB = "/work/a.ipynb"


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("Bash", {"command": "pytest -q\n  tests"}, "pytest -q ⏎ tests"),
        ("Bash", {"command": "pytest -q", "description": "Run the tests"}, "Run the tests: pytest -q"),
        ("Bash", {"command": "ls", "description": "ls"}, "ls"),
        ("Bash", {}, "Bash"),
        ("Read", {"file_path": "src/a.py"}, "Read src/a.py"),
        ("Read", {"file_path": "/etc/hosts"}, "Read /etc/hosts"),
        ("Read", {"file_path": "a.py", "offset": 12, "limit": 29}, "Read a.py (12–40)"),
        ("Read", {"file_path": "a.py", "offset": 12, "limit": 1}, "Read a.py (12)"),
        ("Read", {"file_path": "a.py", "offset": 12}, "Read a.py (from line 12)"),
        ("Read", {"file_path": "a.py", "limit": 9}, "Read a.py (1–9)"),
        ("Read", {"file_path": "a.pdf", "pages": "1-3"}, "Read a.pdf (pages 1-3)"),
        ("Read", {"file_path": 7, "offset": "x"}, "Read"),
        ("Edit", {"file_path": "/work/src/a.py"}, "Edit src/a.py"),
        ("Edit", {"file_path": "a.py", "replace_all": True}, "Edit a.py (each match)"),
        ("MultiEdit", {"file_path": "a.py", "edits": [{}, {}]}, "Edit a.py (2 changes)"),
        ("Write", {"file_path": "a.py"}, "Write a.py"),
        ("NotebookEdit", {"notebook_path": NB, "cell_id": "c1"}, "Edit a.ipynb (cell c1)"),
        ("NotebookEdit", {"notebook_path": NB, "edit_mode": "insert"}, "Add a cell to a.ipynb"),
        ("NotebookEdit", {"notebook_path": NB, "cell_id": "c1", "edit_mode": "delete"},
         "Delete cell c1 of a.ipynb"),
        ("Glob", {"pattern": "**/*.py", "path": "/work/src"}, "Find **/*.py in src"),
        ("Grep", {"pattern": "needle", "path": "/work"}, "Search for needle"),
        ("Grep", {"pattern": "needle", "path": "src", "glob": "*.py"}, "Search for needle in src (*.py)"),
        ("LS", {"path": "/work/src"}, "List src"),
        ("ToolSearch", {"query": "select:WebFetch,TaskStop"}, "Load tools: WebFetch, TaskStop"),
        ("ToolSearch", {"query": "slack send"}, "Search for tools: slack send"),
        ("WebFetch", {"url": "https://example.org/docs/?q=1"}, "Fetch example.org/docs?…"),
        ("WebFetch", {"url": "https://good.org@evil.org/x"}, "Fetch evil.org/x"),
        ("WebFetch", {"url": "http://[x/"}, "Fetch http://[x/"),
        ("WebSearch", {"query": "weather"}, "Search the web for weather"),
        ("Agent", {"description": "look around", "subagent_type": "Explore"}, "Agent: look around (Explore)"),
        ("Agent", {"description": "look around"}, "Agent: look around"),
        ("SendMessage", {"to": "looker", "summary": "hurry"}, "Message to looker: hurry"),
        ("SendMessage", {"to": "afe1ebc5d31bf481b", "summary": "hurry"}, "Message to the agent: hurry"),
        ("SendMessage", {"to": "looker"}, "Message to looker"),
        ("Skill", {"skill": "greet"}, "Use skill greet"),
        ("TaskStop", {"task_id": "b1"}, "Stop task b1"),
        ("TaskUpdate", {"taskId": "3", "status": "in_progress"}, "Task 3: in progress"),
        ("AskUserQuestion", {"questions": [{"question": "Which one?"}]}, "Ask: Which one?"),
        ("EnterPlanMode", {}, "Begin to plan"),
        ("ExitPlanMode", {}, "Leave plan mode without a plan"),
        ("ExitPlanMode", {"plan": " "}, "Leave plan mode without a plan"),
        ("ListMcpResourcesTool", {}, "List the resources of MCP servers"),
        ("ListMcpResourcesTool", {"server": "a b"}, "List the resources of a b"),
        ("ReadMcpResourceTool", {"server": "s", "uri": "note://one"}, "Read note://one from s"),
        ("ReadMcpResourceTool", {"server": "s"}, "Read mcp resource: s"),
        ("ReadMcpResourceDirTool", {"server": "s", "uri": "note://"}, "List note:// of s"),
        ("RefreshMcpTools", {}, "Look for new tools of MCP servers"),
        ("EnterWorktree", {"name": "fix"}, "Work in the worktree fix"),
        ("EnterWorktree", {"path": "/work/w/fix"}, "Work in the worktree w/fix"),
        ("EnterWorktree", {}, "Work in a new worktree"),
        ("ExitWorktree", {"action": "keep"}, "Leave the worktree"),
        ("ExitWorktree", {"action": "remove"}, "Remove the worktree"),
        ("ReportFindings", {"findings": [{}, {}]}, "Report 2 findings"),
        ("ReportFindings", {"findings": [{}]}, "Report 1 finding"),
        ("ReportFindings", {"findings": []}, "Report that nothing was found"),
        ("Workflow", {"name": "deep-research"}, "Run workflow deep-research"),
        ("Workflow", {"scriptPath": "/work/a.js"}, "Run workflow a.js"),
        ("Workflow", {"script": "export const meta = {}"}, "Run a workflow"),
        ("CronCreate", {"cron": "0 9 * * *"}, "Schedule a prompt (0 9 * * *)"),
        ("CronDelete", {"id": "j1"}, "Delete schedule j1"),
        ("CronList", {}, "List the schedules"),
        ("ScheduleWakeup", {"delaySeconds": 90}, "Go on in 90 s"),
        ("ScheduleWakeup", {"stop": True}, "End the loop"),
        ("ReadNotifications", {}, "Read notifications"),
        ("SendUserFile", {"path": "a.txt"}, "Send user file: a.txt"),
        ("LSP", {}, "LSP"),
        ("my_tool", {}, "My tool"),
        ("mcp__files__list_all", {}, "files: List all"),
        ("mcp__files__list_all", {"path": "/data"}, "files: List all (/data)"),
        ("mcp__mitto__mitto_list", {}, "mitto: mitto_list"),
    ],
)  # fmt: skip
def test_titles_say_what_is_done_to_what(name: str, arguments: dict[str, Any], words: str) -> None:
    assert title(name, arguments, "/work") == words


def test_mcp_title_names_server_and_readable_tool() -> None:
    human = ("mcp__sec__structured", "Give it"), ("mcp__sec__list_files", "List Files")
    told = [
        title(name, {"path": "/d"}, "/w", McpNames({}, {"c": words}).called("c", name))
        for name, words in human
    ]
    assert told == ["sec: Give it (structured, /d)", "sec: List files (/d)"]
    assert (
        title("mcp__sec__list_files", {}, "/w", McpName("sec", "list_files", "List Files"))
        == "sec: List files"
    )
    mitto = McpName("mitto", "mitto_list", "List them")
    assert title("mcp__mitto__mitto_list", {}, "/w", mitto) == "mitto: mitto_list"


def test_mcp_title_has_server_as_user_named_it() -> None:
    names = McpNames()
    names.connected([{"name": "my srv.1"}, {"name": "x\n\u202ey"}, {"name": 1}, "z"])
    for part, server in (("my_srv_1", "my srv.1"), ("other", "other"), ("x__y", r"x ⏎ \u202ey")):
        name = f"mcp__{part}__add_it"
        assert title(name, {}, "/w", names.called("c", name)) == f"{server}: Add it"


def test_question_has_title_of_its_servers_call() -> None:
    calls, name = Translation("/w"), "mcp__sec__whisper"
    calls.mcp.tools["t1"] = "Whisper a secret"
    (started,) = calls.start_tool("t1", name, {"path": "/d"})
    assert isinstance(started, ToolStarted)
    assert started.title == "sec: Whisper a secret (whisper, /d)"
    assert calls.title_of_question("t1", name, {"path": "/d"}) == started.title
    calls.start_tool("t2", "Bash", {"command": "rm x", "description": "Look"})
    assert calls.title_of_question("t2", "Bash", {"command": "rm x"}) == "rm x"


def test_question_names_command_not_claudes_description() -> None:
    call = {"command": "rm -r build", "description": "Look around"}
    assert asked("Bash", call, "/w") == "rm -r build"
    long = "curl https://example.org/" + "a" * 400
    assert asked("Bash", {"command": long}, "/w") == long
    assert "[cut: 5005 characters" in asked("Bash", {"command": "echo " + "a" * 5000}, "/w")
    assert len(asked("Bash", {"command": "echo " + "a" * 5000}, "/w")) == MAX_ASKED
    url = "https://example.org/a?token=1"
    assert asked("WebFetch", {"url": url}, "/w") == f"Fetch {url}"


def test_a_title_is_one_short_line() -> None:
    found = title("Bash", {"command": "x\n" * 500}, "/work")
    assert len(found) == MAX_TITLE
    assert found.endswith("… [cut: 501 lines, 1000 characters in all]")


def test_description_leaves_room_for_the_command() -> None:
    found = title("Bash", {"command": "rm -r build", "description": "so " * 100}, "/work")
    assert found.endswith("…: rm -r build")


def test_a_title_hides_no_line_and_no_character() -> None:
    spaced = {"command": "ls" + " " * 300 + "\ncurl x | sh"}
    assert title("Bash", spaced, "/work") == "ls ⏎ curl x | sh"
    hidden = {"command": "a\rb\u202ec\u200bd\x1b[2K"}
    assert title("Bash", hidden, "/w") == r"a\rb\u202ec\u200bd\x1b[2K"
    long = title("Bash", {"command": "echo " + "x" * 5000}, "/work")
    assert (len(long), long.endswith("characters in all]")) == (MAX_TITLE, True)


def test_what_another_model_is_asked_is_shown() -> None:
    for name in ("WebFetch", "Agent"):
        (part,) = tools.content(name, {"prompt": "What is it?"}, "/w")
        assert part == TextPart("What is it?", beside=True)


def test_command_too_long_for_title_is_shown_whole() -> None:
    assert tools.content("Bash", {"command": "ls", "description": "Look"}, "/w") == ()
    for given in ("echo " + "x" * 300, "ls\nid"):
        parts = tools.content("Bash", {"command": given, "description": "Look"}, "/w")
        (part,) = tools.command(parts)
        assert part.text == f"```sh\n{given}\n```"


@pytest.mark.parametrize(
    ("plan", "shown"),
    [
        ("# Plan: Cache it", "Plan: Cache it"),
        ("## Plan\n\n1. Cache it", "Plan: 1. Cache it"),
        ("# Planning ahead", "Plan: Planning ahead"),
        ("# Plan", "Plan"),
    ],
)
def test_plan_is_called_so_once(plan: str, shown: str) -> None:
    assert title("ExitPlanMode", {"plan": plan}, "/w") == shown
