"""Mitto shows what a turn does: tool calls, usage, commands, plan, in lines and JSON types that it
can read.

mitto_helpers.py lists what the numbers and letters in the names of the tests stand for.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import commands
from tests.e2e.harness import Stack, text
from tests.e2e.mcp_web import serving
from tests.e2e.mitto import Conversation, Mitto, wrapping
from tests.e2e.mitto_helpers import fold, play, wire_of
from tests.waiting import eventually


def _values(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield f"{path}.{key}", one
            yield from _values(one, f"{path}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from _values(one, path)


@pytest.mark.long
async def test_5_no_line_is_too_long(web: Mitto) -> None:
    """A file of quotation marks, each of which takes two bytes in JSON, and its replay."""
    conversation = Conversation()
    await web.open(conversation)
    file = {"type": "text", "text": "=== File: log.bin ===\n" + '"' * 3_000_000}
    await web.prompt(
        conversation, play("text Read."), file
    )  # more than a model can take; the log has it
    await web.shutdown()
    web.methods = ["load"]
    await web.open(conversation)
    assert conversation.methods == ["new", "load"]
    assert len(wire_of(web).text(conversation.session or "", "user_message_chunk")) > 3_000_000


@pytest.mark.long
async def test_10_tool_titles_are_final_from_the_start(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    (shared.work / "a.txt").write_text("old\n")
    steps = ("bash ls", "read a.txt", "edit a.txt <<< old => new", "bash false", "text Done.")
    await web.prompt(conversation, play(*steps))
    titles = [title for title, *_ in conversation.tools.values()]
    assert titles == [
        "Run a scripted command: ls",
        "Read a.txt",
        "Edit a.txt",
        "Run a scripted command: false",
    ]
    assert [f"[{title}]" for title in titles] == [
        line for line in conversation.screen if line.startswith("[")
    ]
    for update in wire_of(web).of(conversation.session or "", "tool_call_update"):
        assert "title" not in update


async def test_10_ends_of_waits_and_compactions_are_text(shared: Stack) -> None:
    """As a title, they would not be seen. A helper's answer has no text of ours."""
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, "/context")
    await web.prompt(conversation, "/compact")
    assert conversation.text.count("was not compacted: Not enough messages") == 1
    overloaded = play("error 529 times=1", "text There.")
    await web.prompt(conversation, overloaded)
    await web.prompt(conversation, "/compact")
    statuses = [history[-1] for _, *history in conversation.tools.values()]
    assert statuses == ["failed", "completed", "completed"]
    assert conversation.text.count("Claude was overloaded; it answered after") == 1
    assert conversation.text.count("Compacted the conversation in 1 s: ") == 1
    helper, told = web.auxiliary[0], list(wire_of(web).besides)
    await web.help_itself(helper, f"{wrapping.TITLE} {overloaded}")
    assert fold(wire_of(web), helper).strip() == "There."
    assert wire_of(web).besides == told


@pytest.mark.long
async def test_15_json_has_the_types_go_expects(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("bash ls", "text Done."))
    wire = wire_of(web)
    asked = {message["id"] for message in wire.sent if "method" in message and "id" in message}
    answered = {frame["id"] for frame in wire.received if "method" not in frame}
    assert answered == asked
    assert all(isinstance(number, int) for number in answered)
    for path, value in itertools.chain.from_iterable(map(_values, wire.received)):
        assert not isinstance(value, float) or path.endswith(".cost.amount"), path
        if path.endswith("._meta"):
            assert isinstance(value, dict), path
    (usage,) = [
        frame["result"]["usage"] for frame in wire.received if "usage" in frame.get("result", {})
    ]
    assert (
        usage["totalTokens"]
        == usage["inputTokens"] + usage["outputTokens"] + usage["cachedWriteTokens"]
    )


@pytest.mark.long
async def test_17_mittos_http_server_is_in_users_configuration(stack: Stack, web: Mitto) -> None:
    """As `claude mcp add --scope user` writes it, for every workspace, helper sessions included."""
    async with serving() as mitto:
        server = {"type": "http", "url": f"{mitto.url}/mcp"}
        configured = stack.home / ".claude/.claude.json"
        configured.parent.mkdir(exist_ok=True)
        configured.write_text(json.dumps({"mcpServers": {"mitto": server}}))
        conversation = Conversation()
        await web.open(conversation)
        await web.prompt(conversation, play('tool mcp__mitto__greet {"name": "Ada"}', "text Done."))
        (shown,) = conversation.tools.values()
        assert shown[-1] == "completed"
    helper = web.auxiliary[0]  # the server is gone, which Mitto must not take for its title
    await web.help_itself(helper, f"{wrapping.TITLE} {text('A title.')}")
    rows = stack.rows(
        "SELECT payload FROM acp_log JOIN acp_sessions USING (log_key) WHERE acp_session_id = ?",
        helper,
    )
    said = str([dict(row) for row in rows])
    assert "A title." in said
    assert "MCP server" not in said


@pytest.mark.long
async def test_17_mcp_servers_come_from_user_settings(stack: Stack, web: Mitto) -> None:
    """There are none in `session/new`."""
    install_mitto_tools(stack)
    conversation = Conversation()
    await web.open(conversation)
    await commands.done(stack, "trust", "add", str(stack.work))
    await web.prompt(conversation, play("tool mcp__mitto__mitto_get_current {}", "text Done."))
    (shown,) = conversation.tools.values()
    assert shown[-1] == "completed"


@pytest.mark.long
async def test_g_each_tool_status_is_sent_once(shared: Stack) -> None:
    """And each call has an end."""
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(
        conversation, play("bash ls", "& bash false", "read nothing.txt", "text Done.")
    )
    statuses = [list(history) for _, *history in conversation.tools.values()]
    assert [history[-1] for history in statuses] == ["completed", "failed", "failed"]
    for history in statuses:
        assert len(history) == len(set(history)), "the same status twice"


@pytest.mark.long
async def test_g_tool_input_is_shown_before_the_call(stack: Stack, web: Mitto) -> None:
    """For a tool of Mitto's own."""
    install_mitto_tools(stack)
    conversation = Conversation()
    await web.open(conversation)
    await commands.done(stack, "trust", "add", str(stack.work))
    seen: list[tuple[dict[str, Any], bool]] = []

    def look(session: str, update: dict[str, Any]) -> None:
        if update["sessionUpdate"] == "tool_call":
            seen.append((update, (stack.work / "called").exists()))

    wire_of(web).show = look
    await web.prompt(
        conversation,
        play('tool mcp__mitto__mitto_get_current {"self_id": "@mitto:self"}', "text Done."),
    )
    ((shown, called),) = seen
    assert "mitto_" in shown["title"]
    assert shown["rawInput"]["self_id"] == "@mitto:self"
    assert not called
    assert (stack.work / "called").exists()


@pytest.mark.long
async def test_h_first_prompt_brings_usage_and_commands(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text Yes."))
    assert conversation.usage is not None
    used, size = conversation.usage
    assert 0 < used < size
    await eventually(lambda: "compact" in conversation.commands)  # they are told beside the turn


async def test_h_the_plan_is_kept_current(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    make = 'tool TaskCreate {"subject": "%s", "description": "%s", "activeForm": "%s"}'
    steps = (
        make % ("Look around", "Look", "Looking"),
        make % ("Write it down", "Write", "Writing"),
        'tool TaskUpdate {"taskId": "1", "status": "completed"}',
        'tool TaskUpdate {"taskId": "2", "status": "in_progress"}',
        "text Done.",
    )
    await web.prompt(conversation, play(*steps))
    open_plan = [("Look around", "completed"), ("Write it down", "in_progress")]
    assert _plan(conversation) == open_plan
    for words in ("I go on.", "I go on again."):  # else it may be taken for one that is sent again
        await web.prompt(conversation, play(f"text {words}"))
        assert _plan(conversation) == open_plan, "each prompt clears it"
        await web.shutdown()
    last = 'tool TaskUpdate {"taskId": "2", "status": "completed"}'
    await web.prompt(conversation, play(last, "text Done."))
    assert [status for _, status in _plan(conversation)] == ["completed"] * 2
    await web.prompt(conversation, play("text Yes."))
    assert _plan(conversation) == [], "it is done"


def _plan(conversation: Conversation) -> list[tuple[str, str]]:
    return [(entry["content"], entry["status"]) for entry in conversation.plan]


def install_mitto_tools(stack: Stack) -> None:
    """As Mitto's installer does: its MCP server in the workspace's own settings, its
    tools allowed.
    """
    script = stack.root / "mitto_mcp.py"
    script.write_text(
        (Path(__file__).parent / "mcp_server.py")
        .read_text()
        .replace("whisper", "mitto_get_current")
        .replace(
            '    if method == "tools/call":\n',
            '    if method == "tools/call":\n        open("called", "w").close()\n',
        )
    )
    server = {"command": sys.executable, "args": [str(script)], "env": {"SECRET": "x"}}
    (stack.work / ".mcp.json").write_text(json.dumps({"mcpServers": {"mitto": server}}))
    settings = stack.work / ".claude/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(
        json.dumps({"enableAllProjectMcpServers": True, "permissions": {"allow": ["mcp__mitto"]}})
    )
