"""What a user sees beside Claude's answer, with the real CLI: live, and when the session is opened
again.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
from typing import Any

import pytest

from pykoclaw_acp.store.sqlite import sqlite3
from tests.e2e import commands
from tests.e2e.harness import Client, RpcError, Stack, script, text
from tests.e2e.harness.seen import seen, seen_again

SUBSCRIPTION = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-scripted"}
REPORT = "## Context Usage"
WAITS = "SELECT * FROM acp_limit_waits"


def calls(client: Client, session: str, beginning: str) -> list[dict[str, Any]]:
    """Tool calls whose id begins so, as they are in the end."""
    shown = seen(client.of(session))
    return [one for one in shown if one.get("toolCallId", "").startswith(beginning)]


def without_failures(shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a client is shown live that shows errors."""
    return [one for one in shown if one.get("_meta", {}).get("pykoclaw.dev/note") != "failure"]


def options(client: Client, session: str) -> list[tuple[str, str]]:
    """The config options of the newest update."""
    told = client.of(session, "config_option_update")[-1:]
    return [(one["id"], one["currentValue"]) for update in told for one in update["configOptions"]]


async def test_compaction_clear_and_commands(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    logins = ("/login", "/logout")
    elsewhere = ("/rewind", "/export", "/resume", "/status", "/permissions", "/add-dir ..")
    commands = ("/context", "/compact", "/cost", "/usage", *logins, *elsewhere, "/rename My Name")
    for prompt in (text("One."), text("Two."), *commands):
        await client.prompt(session, prompt)
    assert client.text(session).count(REPORT) == 1
    (compaction,) = calls(client, session, "compaction-")
    assert compaction["status"] == "completed"
    assert "tokens before" in compaction["title"]
    assert client.text(session).count("```\nEstimated cost:        $") == 1
    assert "## Usage\n\n### This session\n\nEstimated cost: $" in client.text(session)
    assert "| model | Input | Output | Cache read | Cache write |" in client.text(session)
    for command in ("login", "logout"):
        assert f"Run `pykoclaw-acp {command} --account default`" in client.text(session)
    assert f"Run `pykoclaw-acp rewind {session[:8]}`" in client.text(session)
    assert "isn't available" not in client.text(session)
    named = [one.get("title") for one in client.of(session, "session_info_update")]
    assert named[-1:] == ["My Name"]
    assert named.count("My Name") == 1
    await client.prompt(session, "/clear")
    assert "memory of this conversation is cleared" in client.text(session)
    assert client.of(session, "usage_update")[-1]["used"] == 0
    await client.prompt(session, text("Anew."))
    assert stack.asked()[-1]["user_texts"] == [text("Anew.")]
    again = await seen_again(stack, client, session)
    assert again.text(session).count(REPORT) == again.text(session).count("## Usage") == 1


@pytest.mark.long
async def test_waits_are_counted_and_errors_are_told_once(stack: Stack) -> None:
    client = await stack.spawn(CLAUDE_CODE_MAX_RETRIES="2")
    named = {"clientInfo": {"name": "zed", "version": "1"}}
    await client.initialize(**named)
    session = await client.new(stack.work)
    await client.prompt(session, script("error 529 times=2", "text There."))
    (wait,) = calls(client, session, "retry-")
    assert wait["status"] == "completed"
    assert wait["title"].endswith("(2 retries)")
    counted = [
        one["title"] for one in client.of(session) if "title" in one and "asking" in one["title"]
    ]
    assert [one.rpartition("(")[2] for one in counted] == ["1 of 2)", "2 of 2)"]
    kinds = [row["kind"] for row in stack.log(session)]
    assert "tool_progressed" not in kinds
    with pytest.raises(RpcError) as error:
        await client.prompt(
            session, script("error 529 the gateway http://127.0.0.1:4135/v1 is full")
        )
    assert (error.value.kind, error.value.data["retryable"]) == ("overloaded", True)
    assert "127.0.0.1" not in str(error.value)
    assert "413" not in str(error.value)
    assert "ended with an error" not in client.text(session)
    with pytest.raises(RpcError) as unknown:
        await client.prompt(session, script("error 404 model: claude-opus"))
    assert unknown.value.kind == "model_not_found"
    assert "The model `claude-" in unknown.value.message
    with pytest.raises(RpcError) as heavy:
        await client.prompt(session, script("error 413 Request exceeds the maximum size"))
    assert heavy.value.kind == "context_too_large"
    assert heavy.value.message.startswith("The request is larger than Claude's service takes")
    assert "ttachments" not in heavy.value.message
    await client.prompt(session, "/model sonnet")
    assert ("model", "sonnet") in options(client, session)
    await client.prompt(session, "/model default")
    assert ("model", "default") in options(client, session)
    live = seen(client.of(session))
    await client.close()
    again = await stack.spawn()
    await again.initialize(**named)
    loaded = await again.load(session, stack.work)
    kept = [(one["id"], one["currentValue"]) for one in loaded["configOptions"]]
    assert ("model", "default") in kept
    failures = [
        one["content"]["text"]
        for one in again.of(session, "agent_message_chunk")
        if one["_meta"].get("pykoclaw.dev/note") == "failure"
    ]
    told = [one.value for one in (error, unknown, heavy)]
    assert [one.code for one in told] == [-32010] * 3
    assert len(failures) == 3
    assert all(one.message in words for one, words in zip(told, failures, strict=True))
    assert without_failures(seen(again.of(session))) == live


async def test_wait_is_told_live_with_services_seconds(stack: Stack) -> None:
    client = await stack.start(CLAUDE_CODE_MAX_RETRIES="1")
    session = await client.new(stack.work)
    with pytest.raises(RpcError) as error:
        await client.prompt(session, script("error 429 retry-after=1 Slow down"))
    assert (error.value.kind, error.value.data["retryable"]) == ("rate_limit", True)
    assert error.value.data["retryAfter"] in (1, 2)  # Claude waits a little longer than it is told
    asked = len(stack.asked())
    waiting = client.prompting(session, script("error 429 retry-after=50 times=1", "text No."))
    told = r"Claude's rate limit is reached; asking again in (\d+) s \(1 of 1\)"
    (seconds,) = await client.until(
        lambda: re.findall(told, calls(client, session, "retry-")[-1]["title"])
    )
    assert int(seconds) >= 50
    assert len(stack.asked()) == asked + 1, "told before it is asked again"
    assert not waiting.done()
    client.notify("session/cancel", sessionId=session)
    assert (await client.answer(waiting))["stopReason"] == "cancelled"
    (first, last) = calls(client, session, "retry-")
    failed = r"Claude's rate limit was reached; no answer after \d+ s \(1 retry\)"
    assert re.fullmatch(failed, first["title"])
    assert last["title"] == "Claude's rate limit was reached; stopped before a retry"


@pytest.mark.long
async def test_service_nobody_runs_is_no_lost_connection(stack: Stack) -> None:
    client = await stack.spawn(ANTHROPIC_BASE_URL="http://127.0.0.1:1", CLAUDE_CODE_MAX_RETRIES="1")
    await client.initialize()
    session = await client.new(stack.work)
    with pytest.raises(RpcError) as error:
        await client.prompt(session, "Is anybody there?")
    assert (error.value.kind, error.value.data["retryable"]) == ("service_unreachable", True)
    assert "nothing takes the connection at `127.0.0.1`" in error.value.message
    (wait,) = calls(client, session, "retry-")
    assert wait["title"].startswith("Claude's service could not be reached; no answer after")
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_fallback_model_lost_connection_and_compaction_are_shown(stack: Stack) -> None:
    """The model falls back, the connection breaks off in the middle of the answer, and the context
    is too full before the next one.
    """
    (stack.home / ".claude").mkdir(exist_ok=True)
    (stack.home / ".claude/settings.json").write_text(json.dumps({"fallbackModel": ["haiku"]}))
    client = await stack.start(CLAUDE_AUTOCOMPACT_PCT_OVERRIDE="1", CLAUDE_CODE_MAX_RETRIES="3")
    session = await client.new(stack.work)
    words = "words 300ms ``` This far it goes, and some more."
    await client.prompt(
        session, script("error 529 times=3", words, "cut times=1", "text ```\\n\\nNow it goes on.")
    )
    said = client.text(session)
    assert re.search(r"Claude goes on with `claude-haiku-\S+`\*\* instead of `claude-opus", said)
    assert said.count("**Cut off here.**") == 1
    assert said.count("This far it goes") == 2
    assert said.count("Now it goes on.") == 1
    overloaded, lost = calls(client, session, "retry-")
    assert "overloaded; it answered after" in overloaded["title"]
    assert "The connection to Claude was lost; it answered after" in lost["title"]
    await client.prompt(session, script("bash echo hi", "text Two."))
    failed, done = calls(client, session, "compaction-")
    assert [failed["status"], done["status"]] == ["failed", "completed"]
    assert "tokens before" in done["title"]
    assert "is being continued from a previous conversation" not in client.text(session)
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_rich_clients_get_notices_and_compaction_updates(stack: Stack) -> None:
    client = await stack.spawn(PYKOCLAW_THINKING="hide")
    rich: dict[str, Any] = {"clientCapabilities": {"session": {"notices": {}, "compaction": {}}}}
    await client.initialize(**rich)
    session = await client.new(stack.work)
    await client.prompt(session, script("error 529 times=1", "thinking Hm.", "text One."))
    await client.prompt(session, text("Two."))
    await client.prompt(session, "/compact")
    assert [one["severity"] for one in client.of(session, "notice")] == ["warning", "info"]
    states = [one["status"] for one in client.of(session, "compaction_update")]
    assert states == ["in_progress", "completed"]
    assert not client.of(session, "tool_call")
    assert not client.of(session, "agent_thought_chunk")
    await client.close()
    again = await stack.spawn(PYKOCLAW_THINKING="hide")
    await again.initialize(**rich)
    await again.load(session, stack.work)
    assert not again.of(session, "notice")
    assert not again.of(session, "agent_thought_chunk")
    assert [one["status"] for one in again.of(session, "compaction_update")] == states
    assert "thinking" in [row["kind"] for row in stack.log(session)]


@pytest.mark.long
async def test_compaction_that_failed_says_why_once(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, "/context")
    await client.prompt(session, "/compact")
    (compaction,) = calls(client, session, "compaction-")
    assert compaction["status"] == "failed"
    assert compaction["title"].startswith("The conversation was not compacted: Not enough messages")
    assert "Not enough messages" not in client.text(session)
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_limits_and_hooks_are_one_line_each(stack: Stack) -> None:
    hooks = {"PreToolUse": "echo no echoes >&2; exit 2", "PostToolUse": "exit 1"}
    configured = {
        event: [{"matcher": "Bash" if event == "PreToolUse" else "", "hooks": [
            {"type": "command", "command": f"sh -c {shlex.quote(command)}"}
        ]}]
        for event, command in hooks.items()
    }  # fmt: skip
    (stack.home / ".claude").mkdir(exist_ok=True)
    (stack.home / ".claude/settings.json").write_text(json.dumps({"hooks": configured}))
    (stack.work / "a").write_text("x")
    client = await stack.start(**SUBSCRIPTION, TZ="Europe/Berlin")
    session = await client.new(stack.work)
    await client.prompt(
        session,
        script("limit allowed_warning used=92", "bash echo one", "read a", "read a", "text Hi."),
    )
    for told in ("used=93", "seven_day used=95"):
        await client.prompt(session, script(f"limit allowed_warning {told}", "text Hi."))
    said = client.text(session)
    assert said.count("92 % of Claude's 5-hour limit is used") == 1
    assert "93 %" not in said
    assert said.count("95 % of Claude's weekly limit is used") == 1
    assert "A hook blocked this" not in said
    (blocked,) = [one for one in calls(client, session, "") if one.get("status") == "failed"]
    assert "no echoes" in json.dumps(blocked)
    assert said.count("A hook failed** (`PostToolUse:Read`, exit status 1)") == 1
    with pytest.raises(RpcError) as error:
        await client.prompt(session, script("limit rejected resets=3000", "text Never."))
    assert (error.value.kind, error.value.data["retryable"]) == ("usage_limit", True)
    assert "5-hour limit is reached. It resets at" in error.value.message
    assert " CET" in error.value.message
    assert error.value.data["resetsAt"].endswith("+00:00")
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_hooks_stopping_more_than_calls_say_so(stack: Stack) -> None:
    objection = json.dumps({"decision": "block", "reason": "not read well"})
    commands = {
        "UserPromptSubmit": 'grep -q forbidden && { echo "no such words" >&2; exit 2; }; exit 0',
        "PostToolUse": f"echo {shlex.quote(objection)}",
    }
    hooks = {
        event: [
            {"hooks": [{"type": "command", "command": f"sh -c {shlex.quote(command)}"}]},
        ]
        for event, command in commands.items()
    }
    (stack.home / ".claude").mkdir(exist_ok=True)
    (stack.home / ".claude/settings.json").write_text(json.dumps({"hooks": hooks}))
    (stack.work / "a").write_text("x")
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, script("thinking Hm.", "read a", "text Read."))
    await client.prompt(session, script("text forbidden"))
    assert client.text(session, "agent_thought_chunk") == "Hm."
    said = client.text(session)
    assert said.count("**A hook objected** (`PostToolUse:Read`): not read well") == 1
    blocked = "**A hook blocked this** (`UserPromptSubmit`): no such words. Claude was not given the prompt"
    assert said.count(blocked) == 1
    assert len(stack.asked()) == 2
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_goal_that_sends_claude_on_says_so(stack: Stack) -> None:
    client = await stack.start(CLAUDE_CODE_STOP_HOOK_BLOCK_CAP="2")
    session = await client.new(stack.work)
    await client.prompt(session, "/goal make tests pass")
    note = "\n\n**A hook made Claude continue** (`Stop`): [make tests pass]: "
    assert client.text(session).count(note) >= 2
    assert "Goal set: make tests pass\n\n" in client.text(session)
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_settings_claude_leaves_out_are_named_until_corrected(
    stack: Stack,
) -> None:
    path = stack.home / ".claude/settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"model": "haiku",')
    client = await stack.start()
    session = await client.new(stack.work)
    for answer in ("One.", "Two."):
        await client.prompt(session, text(answer))
    assert client.text(session).count("**Your Claude settings are ignored: `") == 1
    again = await seen_again(stack, client, session)
    path.write_text("{}")
    await again.prompt(session, text("Three."))
    assert again.text(session).count("**Your Claude settings are ignored: `") == 1


@pytest.mark.long
async def test_limit_wait_outlives_killed_daemons_and_ends_once(stack: Stack) -> None:
    """The prompt that was stopped never reaches Claude again; a session that is cancelled by a
    client of the next daemon does not go on.
    """
    settings: dict[str, Any] = {**SUBSCRIPTION, "PYKOCLAW_USAGE_LIMIT": "wait"}
    client = await stack.front(**settings)
    goes_on, cancelled = await client.new(stack.work), await client.new(stack.work)
    stopped = script("limit rejected resets=3000 times=1", "text Never.")
    for session in (goes_on, cancelled):
        with pytest.raises(RpcError) as error:
            await client.prompt(session, f"{stopped} {session}")
        assert "resumes by itself then" in error.value.message
    await client.close()
    await stack.end_daemon(signal.SIGKILL)

    client = await stack.front(**settings)
    await client.load(cancelled, stack.work)
    client.notify("session/cancel", sessionId=cancelled)
    await client.until(lambda: "no longer waits" in client.text(cancelled))
    assert [row["acp_session_id"] for row in stack.rows(WAITS)] == [goes_on]
    await client.close()
    await stack.end_daemon(signal.SIGKILL)

    with sqlite3.connect(stack.data / "pykoclaw.db") as database:  # the time has come
        database.execute("UPDATE acp_limit_waits SET due = 1")
    database.close()
    client = await stack.front(**settings)
    await client.load(goes_on, stack.work)
    await client.until(lambda: states(stack, goes_on) == ["failed", "done"])
    await client.until(lambda: "The usage limit that stopped you" in client.text(goes_on))
    assert states(stack, cancelled) == ["failed"]
    assert not stack.rows(WAITS)
    served = [one for one in stack.asked() if one["outcome"] == "served"]
    assert [one["user_texts"][0] for one in served] == [f"{stopped} {goes_on}"]
    assert len(served[0]["user_texts"]) == 2


@pytest.mark.long
async def test_waiting_session_can_be_told_not_to(stack: Stack) -> None:
    settings: dict[str, Any] = {**SUBSCRIPTION, "PYKOCLAW_USAGE_LIMIT": "wait"}
    await stack.daemon(**settings)
    client = await stack.front(**settings)
    session = await client.new(stack.work)
    limited = script("limit rejected resets=3000", "text Never.")

    async def wait() -> None:
        with pytest.raises(RpcError):
            await client.prompt(session, limited)
        assert len(stack.rows(WAITS)) == 1

    await wait()
    (told,) = (await commands.done(stack, "status", "--json")).json["limitWaits"]
    assert told["session"] == session
    assert f"session {session} resumes by itself" in (await commands.done(stack, "status")).out
    client.notify("session/cancel", sessionId=session)
    await client.until(lambda: "no longer waits" in client.text(session))
    assert not stack.rows(WAITS)
    await wait()
    done = await commands.done(stack, "sessions", "stop-waiting", session)
    assert done.out.startswith("The session no longer resumes by itself.")
    assert not stack.rows(WAITS)
    await wait()
    await client.prompt(session, text("I go on."))
    assert not stack.rows(WAITS)
    again = await commands.done(stack, "sessions", "stop-waiting", session)
    assert "does not wait" in again.out


def states(stack: Stack, session: str) -> list[str]:
    """Of the session's turns."""
    query = "SELECT state FROM acp_turns WHERE acp_session_id = ? ORDER BY position"
    return [row["state"] for row in stack.rows(query, session)]
