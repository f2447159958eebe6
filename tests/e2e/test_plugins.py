"""pykoclaw's tools and plugins in a session, with the real CLI."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.store.sqlite import sqlite3
from tests import plugins
from tests.double import installed
from tests.e2e.commands import run
from tests.e2e.harness import Stack, files, script

SERVER = Path(__file__).with_name("mcp_server.py")
SECRET = "sk-that-nobody-sees"


def call(tool: str, **given: Any) -> str:
    return f"tool {tool} {json.dumps(given)}"


def allow(_: dict[str, Any]) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}


@pytest.mark.long
async def test_task_tools_ask_write_rows_and_outlive_daemon(stack: Stack) -> None:
    client = await stack.front()
    asked: list[str] = []

    def refuse(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["toolCall"]["title"])
        return {"outcome": {"outcome": "selected", "optionId": "reject_once"}}

    client.permit = refuse
    session = await client.new(stack.work)
    await client.prompt(
        session,
        script(
            call("mcp__pykoclaw__list_tasks", all=True),
            call("mcp__pykoclaw__pause_task", task_id="12345678"),
            call("mcp__pykoclaw__cancel_task", task_id="12345678"),
            "text Done.",
        ),
    )
    assert answers(stack)[0] == "No tasks scheduled anywhere."
    assert asked == ["pykoclaw: Pause task", "pykoclaw: Cancel task"]

    client.permit = allow
    given = {"prompt": "Look at the mail.", "schedule_type": "cron", "schedule_value": "0 9 * * *"}
    await client.prompt(
        session,
        script(
            call("mcp__pykoclaw__schedule_task", **given),
            call("mcp__pykoclaw__list_tasks"),
            call("mcp__pykoclaw__schedule_task", **{**given, "schedule_value": "junk"}),
            "text Done.",
        ),
    )
    (row,) = stack.rows("SELECT * FROM scheduled_tasks")
    (name,) = stack.rows("SELECT conversation_name FROM acp_sessions")
    assert re.fullmatch("[0-9a-f]{8}", row["id"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT09:00:00\+00:00", row["next_run"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00", row["created_at"])
    assert row | {"id": 0, "next_run": 0, "created_at": 0} == {
        "id": 0,
        "conversation": name["conversation_name"],
        "prompt": "Look at the mail.",
        "schedule_type": "cron",
        "schedule_value": "0 9 * * *",
        "context_mode": "group",
        "target_conversation": None,
        "next_run": 0,
        "last_run": None,
        "last_result": None,
        "status": "active",
        "created_at": 0,
    }
    results = answers(stack)[-3:]
    confirmed, warned = results[0].splitlines()
    assert confirmed == f"Task {row['id']} scheduled. Next run: {row['next_run']}"
    assert "PYKOCLAW_SCHEDULER=on" in warned
    assert results[1].splitlines() == [
        "Tasks:",
        f"  {row['id']}: Look at the mail. (active, next: {row['next_run']})",
    ]
    assert "columns has to be specified" in results[2]

    # The worker outlives its daemon; its tools wait for the next one.
    worker = stack.worker(session).pid
    await stack.end_daemon()
    await client.prompt(session, script(call("mcp__pykoclaw__list_tasks"), "text Done."))
    assert answers(stack)[-1] == results[1]
    assert stack.worker(session).pid == worker


def answers(stack: Stack) -> list[str]:
    """What the tools answered, as the model got it."""
    messages = stack.asked()[-1]["messages"]
    return [one["text"] for message in messages for one in message["tool_results"]]


@pytest.mark.long
async def test_a_plugins_tool_works_beside_a_clients_server(stack: Stack) -> None:
    plugins.install(stack.root / "plugins", "hello", plugins.GREETER)
    client = await stack.start(**plugins.path(stack.root / "plugins"))
    client.permit = allow
    offered = {
        "name": "secretary",
        "command": sys.executable,
        "args": [str(SERVER)],
        "env": [{"name": "SECRET", "value": SECRET}],
    }
    session = await client.new(stack.work, mcpServers=[offered])
    lines = f"bash tr '\\\\0' ' ' < /proc/$PPID/cmdline > {stack.root}/cmdline"
    await client.prompt(
        session,
        script(
            call("mcp__hello__greet", name="Ann"),
            call("mcp__hello__greet", name="Ann"),
            call("mcp__secretary__whisper"),
            call("mcp__pykoclaw__list_tasks"),
            lines,
            "text Done.",
        ),
    )
    (name,) = stack.rows("SELECT conversation_name FROM acp_sessions")
    assert answers(stack)[:4] == [
        f"Hello Ann of {name['conversation_name']}, 1.",
        f"Hello Ann of {name['conversation_name']}, 2.",
        f"backwards: {SECRET[::-1]}",
        "No tasks scheduled for this conversation.",
    ]
    assert stack.rows("SELECT * FROM hello_greeted") == [{"name": "Ann", "times": 2}]
    assert client.text(session) == "Done."
    command = (stack.root / "cmdline").read_text()
    assert "hello" in command
    assert SECRET not in command
    assert [one for one in stack.processes() if SECRET in one.command] == []
    assert files.below(stack.data)
    assert files.holding(stack.data, SECRET) == []


async def test_plugins_that_import_pykoclaw_work(stack: Stack) -> None:
    """It is installed beside us; its handle is not what they get."""
    site = installed.install(stack.root / "installed", ["hello", "uses"])
    client = await stack.start(**installed.environment(site, stack.environment))
    client.permit = allow
    session = await client.new(stack.work)
    await client.prompt(
        session,
        script(
            call("mcp__hello__greet", name="Ann"),
            call("mcp__hello__count"),
            call("mcp__uses__where"),
            "text Done.",
        ),
    )
    (name,) = stack.rows("SELECT conversation_name FROM acp_sessions")
    assert answers(stack) == [
        f"Hello Ann in {name['conversation_name']}.",
        "1 calls",
        f"{stack.data}, 0 pending, their own handle: False",
    ]
    assert client.text(session) == "Done."


BROKEN = {
    "raises": ("raise RuntimeError('no such luck')", "no such luck"),
    "exits": ("import sys; sys.exit('enough')", "SystemExit: enough"),
    "hangs": ("import time; time.sleep(3600)", "did not load within"),
    "leaves": ("import os; os._exit(3)", "ends its process when it is loaded (status 3)"),
    "holds": ("import ctypes; ctypes.PyDLL(None).pause()", "did not load within"),
    "prints": (plugins.GREETER + "\n    print('{}')\n", "prints to standard output"),
    "lacks": ("import no_such_module\n", "no_such_module"),
    "refuses": (
        """
        class Plugin:
            def get_mcp_servers(self, db, conversation):
                raise LookupError("no servers")
        """,
        "no servers",
    ),
    "waits": (
        """
        import time
        class Plugin:
            def get_mcp_servers(self, db, conversation): time.sleep(3600)
        """,
        "did not",
    ),
    "migrates": (
        """
        class Plugin:
            def get_db_migrations(self): return ["CREATE TABLE acp_mine (a)", "CREATE TABLE IF NOT EXISTS mine (a)"]
        """,
        "acp_mine",
    ),
}


@pytest.mark.long
async def test_broken_plugins_cost_a_named_line_each(stack: Stack) -> None:
    for name, (code, _) in BROKEN.items():
        plugins.install(stack.root / "plugins", name, code)
    plugins.install(stack.root / "plugins", "hello", plugins.GREETER)
    client = await stack.start(**plugins.path(stack.root / "plugins"))
    client.permit = allow
    session = await client.new(stack.work)
    greet = script(call("mcp__hello__greet", name="Ann"), "text Done.")
    await client.prompt(session, greet)
    said = client.text(session)
    assert said.startswith("Done.")
    for name, (_, words) in BROKEN.items():
        (line,) = [line for line in said.splitlines() if f"`{name}`" in line]
        assert words in line
        logged = [line for line in workers_log(stack) if line.get("plugin") == name]
        assert [line["action"] for line in logged] == ["plugin_failed"]
    assert answers(stack)[0].startswith("Hello Ann")
    assert stack.rows("SELECT name FROM sqlite_master WHERE name LIKE '%mine'") == [
        {"name": "mine"}
    ]
    await client.prompt(session, greet)
    assert client.text(session).count("`raises`") == 1
    # The session's next worker does not say it again.
    stack.worker(session).kill()
    await stack.no_worker()
    await client.prompt(session, greet)
    assert client.text(session).count("`raises`") == 1


def workers_log(stack: Stack) -> list[dict[str, Any]]:
    """The log lines of workers."""
    (log,) = (stack.home / ".local/state/pykoclaw").glob("*/workers.log")
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


@pytest.mark.long
async def test_a_restricted_session_has_pykoclaws_server(stack: Stack) -> None:
    (stack.work / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"theirs": {"command": "false"}}})
    )
    client = await stack.start()
    client.permit = lambda request: {
        "outcome": {"outcome": "selected", "optionId": request["options"][0]["optionId"]}
    }
    session = await client.new(stack.work)
    await client.prompt(session, script(call("mcp__pykoclaw__list_tasks"), "text Done."))
    assert answers(stack) == ["No tasks scheduled for this conversation."]


@pytest.mark.long
async def test_clients_server_of_that_name_renames_pykoclaws(stack: Stack) -> None:
    secret = [{"name": "SECRET", "value": "theirs"}]
    theirs = {
        "name": "pykoclaw", "command": sys.executable, "args": [str(SERVER)], "env": secret,
    }  # fmt: skip
    client = await stack.start()
    asked: list[str] = []

    def permit(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["toolCall"]["title"])
        return allow(request)

    client.permit = permit
    session = await client.new(stack.work, mcpServers=[theirs])
    await client.prompt(
        session,
        script(call("mcp__pykoclaw__whisper"), call("mcp__pykoclaw-acp__list_tasks"), "text Done."),
    )
    assert answers(stack)[-1] == "No tasks scheduled for this conversation."
    assert len(asked) == 1, "pykoclaw's list needs no permission under its other name, either"
    assert answers(stack)[0].startswith("backwards")


OPENER = """
    import os, sqlite3
    from claude_agent_sdk import create_sdk_mcp_server, tool

    class Plugin:
        def get_mcp_servers(self, db, conversation):
            path = os.path.expanduser("~/.local/share/pykoclaw/pykoclaw.db")
            own = sqlite3.connect(path, check_same_thread=False)
            @tool("count", "Counts.", {})
            async def count(given):
                (n,) = own.execute("SELECT count(*) FROM conversations").fetchone()
                return {"content": [{"type": "text", "text": f"{n} in {own.__class__.__module__}"}]}
            return {"opener": create_sdk_mcp_server("opener", tools=[count])}
"""


@pytest.mark.long
async def test_plugin_that_opens_file_itself_is_named(stack: Stack) -> None:
    plugins.install(stack.root / "plugins", "opener", OPENER)
    stack.environment |= plugins.path(stack.root / "plugins")
    client = await stack.front()
    client.permit = allow
    session = await client.new(stack.work)
    await client.prompt(session, script(call("mcp__opener__count"), "text Done."))
    (said,) = answers(stack)
    assert said == f"1 in {sqlite3.Connection.__module__}"
    result = await run(stack, "doctor", "--json")
    found = next(one for one in result.json if one["check"] == "other programs")
    assert f"pid {stack.worker(session).pid} (pykoclaw-worker: a plugin" in found["found"]
