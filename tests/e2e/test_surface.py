"""Modes, models, slash commands and titles, with the real CLI."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.harness.client import RpcError
from tests.e2e.other_programs import terminal
from tests.waiting import eventually

WRAPPED = (
    "[Session Context]\nSession: 20261120-1 (x)\nAgent: pykoclaw\n---\n<user_request>\n{}\n</user_request>---\n"
    "[Mitto MCP Tools Check]\nSome tools.\n"
)


def current(client: Client, session: str) -> list[str]:
    """The modes that were told, in order."""
    return [one["currentModeId"] for one in client.of(session, "current_mode_update")]


def config(client: Client, session: str) -> dict[str, Any]:
    """The options' values as they were told last."""
    last = client.of(session, "config_option_update")[-1]
    return {one["id"]: one["currentValue"] for one in last["configOptions"]}


async def opened(client: Client, stack: Stack) -> tuple[str, dict[str, Any]]:
    """A new session and what its answer says."""
    answer = await client.call("session/new", cwd=str(stack.work), mcpServers=[])
    return answer["sessionId"], answer


@pytest.mark.long
async def test_terminals_model_is_shown_where_session_continues(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, text("One."))
    await terminal(stack, session, text("Two."), "--model", "haiku")
    await client.prompt(session, text("Three."))
    assert "haiku" in stack.asked()[-1]["model"]
    assert config(client, session)["model"] == "haiku"
    await client.call(
        "session/set_config_option", sessionId=session, configId="model", value="default"
    )
    await client.prompt(session, text("Four."))
    first, *_, fourth = [asked["model"] for asked in stack.asked()]
    assert first == fourth


@pytest.mark.long
async def test_model_change_applies_from_next_prompt_despite_restart(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, text("One."))
    assert await client.call("session/set_model", sessionId=session, modelId="haiku") == {}
    await client.prompt(session, text("Two."))
    assert client.text(session) == "One.Two.", "what the CLI writes about the change is no answer"
    assert config(client, session)["model"] == "haiku"
    await client.close()

    client = await stack.start()
    assert (await client.load(session, stack.work))["models"]["currentModelId"] == "haiku"
    assert client.text(session) == "One.Two."
    await client.prompt(session, text("Three."))
    await client.call(
        "session/set_config_option", sessionId=session, configId="model", value="default"
    )
    await client.prompt(session, text("Four."))
    first, second, third, fourth = [asked["model"] for asked in stack.asked()]
    assert "haiku" in second
    assert second == third
    assert first == fourth != second


async def test_mode_set_during_turn_applies_at_once(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    waits = "bash touch begun; until [ -e go ]; do sleep 0.05; done"
    running = client.prompting(session, script(waits, "write made.txt <<< x", "text Done."))
    await eventually((shared.work / "begun").exists)
    assert await client.call("session/set_mode", sessionId=session, modeId="acceptEdits") == {}
    (shared.work / "go").touch()
    assert (await client.answer(running))["stopReason"] == "end_turn"
    assert len(client.questions) == 1, "about the command only"
    assert (shared.work / "made.txt").read_text() == "x"
    assert current(client, session) == ["acceptEdits"]

    await client.call("session/set_mode", sessionId=session, modeId="dontAsk")
    await client.prompt(session, script("bash mkdir other", "text Denied."))
    assert len(client.questions) == 1
    assert not (shared.work / "other").exists()
    assert current(client, session) == ["acceptEdits", "dontAsk"]


@pytest.mark.long
async def test_effort_and_fast_mode_work_and_survive_restart(
    stack: Stack,
) -> None:
    async def choose(option: str, value: str | bool) -> None:
        params = {"sessionId": session, "configId": option, "value": value}
        if isinstance(value, bool):
            params["type"] = "boolean"
        listed = (await client.call("session/set_config_option", **params))["configOptions"]
        assert {one["id"]: one["currentValue"] for one in listed}[option] == value

    def sent() -> list[tuple[str | None, str | None]]:
        return [(one["effort"], one["speed"]) for one in stack.asked()]

    client = await stack.spawn()
    await client.initialize(clientInfo={"name": "an editor", "version": "1"})
    session, answer = await opened(client, stack)
    assert [one["id"] for one in answer["configOptions"]] == ["mode", "model", "effort"]
    await choose("effort", "max")  # known only once Claude has started, and this is its first time
    await choose("effort", "high")
    waits = "bash touch begun; until [ -e go ]; do sleep 0.05; done"
    running = client.prompting(session, script(waits, "text Done."))
    await eventually((stack.work / "begun").exists)
    await choose("effort", "max")
    await choose("fast", "on")
    (stack.work / "go").touch()
    await client.answer(running)
    await client.prompt(session, text("Next."))
    assert sent() == [("high", None), ("high", None), ("max", "fast")], "from the next turn on"
    await client.prompt(session, "/effort low")
    assert config(client, session)["effort"] == "low"
    await choose("mode", "auto")
    await client.close()

    client = await stack.spawn()
    switches: dict[str, Any] = {"session": {"configOptions": {"boolean": {}}}}
    await client.initialize(clientCapabilities=switches)
    loaded = await client.load(session, stack.work)
    values = {one["id"]: one["currentValue"] for one in loaded["configOptions"]}
    assert values == {"mode": "auto", "model": "default", "effort": "low", "fast": True}
    assert config(client, session)["fast"] is True, "in the history, too"
    await client.prompt(session, text("Again."))
    assert sent()[-1] == ("low", "fast")
    await choose("effort", "default")
    await choose("fast", False)
    await client.prompt(session, text("Slow."))
    assert sent()[-1] == ("medium", None), "though Claude was started with it"
    await client.prompt(session, "/fast on")
    assert "Fast mode ON" in client.text(session)
    assert config(client, session)["fast"] is True
    await client.prompt(session, text("Fast."))
    assert sent()[-1] == ("medium", "fast")
    await client.prompt(session, "/fast off")
    assert config(client, session)["fast"] is False
    await choose("model", "sonnet")
    await client.prompt(session, text("Plain."))
    assert sent()[-1] == ("medium", None)
    assert "fast" not in config(client, session)
    before = len(client.of(session, "config_option_update"))
    await client.prompt(session, "/fast")
    assert "Fast mode ON" in client.text(session).rpartition("Plain.")[2]
    assert len(client.of(session, "config_option_update")) == before + 1
    assert (config(client, session)["model"], config(client, session)["fast"]) == ("opus", True)
    await client.prompt(session, text("Fast again."))
    assert ("opus" in stack.asked()[-1]["model"], sent()[-1][1]) == (True, "fast")


@pytest.mark.long
async def test_clients_claude_options_work_also_after_restart(stack: Stack) -> None:
    chosen, prompt = str(uuid4()), "Answer like a pelican."
    asked = {
        "disallowedTools": ["WebFetch"],
        "allowedTools": ["Bash(mkdir *)"],
        "maxTurns": 1,
        "env": {"GIT_AUTHOR_NAME": "Pelican"},
    }
    meta = {
        "claudeCode": {"options": asked},
        "systemPrompt": {"append": prompt},
        "pykoclaw.dev/sessionId": chosen,
        "pykoclaw.dev/model": "claude-nonsense-9",
    }
    client = await stack.start()
    assert await client.new(stack.work, _meta=meta) == chosen
    with pytest.raises(RpcError, match="session/load"):
        await client.new(stack.work, _meta={"pykoclaw.dev/sessionId": chosen})
    command = "bash mkdir made-$GIT_AUTHOR_NAME; tr '\\0' ' ' < /proc/$PPID/cmdline > cmdline"
    ended = await client.prompt(chosen, script(command, "text Never said."))
    assert ended["stopReason"] == "max_turn_requests"
    assert "Claude has no model `claude-nonsense-9` here" in client.text(chosen)
    assert config(client, chosen)["model"] == "default"
    assert "nonsense" not in stack.asked()[0]["model"]
    assert (stack.work / "made-Pelican").is_dir()
    assert prompt not in (stack.work / "cmdline").read_text()
    assert stack.transcript(chosen)
    await client.close()

    client = await stack.start()
    await client.load(chosen, stack.work)
    await client.prompt(chosen, text("Again."))
    for request in stack.asked():
        assert prompt in request["system"]
        assert "Bash" in request["tools"]
        assert "WebFetch" not in request["tools"]
    assert prompt not in json.dumps(client.received)
    only = {"systemPrompt": "You are a pelican.", "claudeCode": {"options": {"tools": ["Read"]}}}
    session = await client.new(stack.work, _meta=only)
    await client.prompt(session, text("Croak."))
    request = stack.asked()[-1]
    assert request["system"].endswith("You are a pelican.")
    assert "Read" in request["tools"]
    assert "Bash" not in request["tools"]


@pytest.mark.long
async def test_models_that_claude_does_not_list_run(stack: Stack) -> None:
    client = await stack.start()
    await client.prompt(await client.new(stack.work), text("It has said what it offers."))
    for model in ("claude-opus-4-5", "best", "claude-nonsense-9"):
        session = await client.new(stack.work, _meta={"pykoclaw.dev/model": model})
        await client.prompt(session, text("Hello."))
        assert client.text(session).endswith("Hello.")
        assert ("has no model" in client.text(session)) == ("nonsense" in model)
        assert (stack.asked()[-1]["model"] == model) == ("opus" in model)


@pytest.mark.long
async def test_account_lacking_fast_mode_is_told_in_words(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, text("One."))
    params = {"sessionId": session, "configId": "fast", "value": "on"}
    await client.call("session/set_config_option", **params)
    await client.close()

    client = await stack.start(CLAUDE_CODE_DISABLE_FAST_MODE="1")
    await client.load(session, stack.work)
    await client.prompt(session, text("Two."))
    assert "Claude does not offer fast mode here" in client.text(session)
    assert stack.asked()[-1]["speed"] is None
    assert "fast" not in config(client, session)


@pytest.mark.long
async def test_claude_leaving_plan_mode_is_reported_and_kept(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    await client.call("session/set_mode", sessionId=session, modeId="plan")
    await client.prompt(session, script('tool ExitPlanMode {"plan": "Do it."}', "text Now I work."))
    await client.until(lambda: current(client, session) == ["plan", "default"])
    assert config(client, session)["mode"] == "default"
    assert (await client.load(session, shared.work))["modes"]["currentModeId"] == "default"


@pytest.mark.long
@pytest.mark.parametrize("sandbox", [True, False])
async def test_bypass_permissions_only_where_claude_allows_it(
    stack: Stack, *, sandbox: bool
) -> None:
    client = await stack.start(**({"IS_SANDBOX": "1"} if sandbox else {}))
    session, answer = await opened(client, stack)
    offered = [one["id"] for one in answer["modes"]["availableModes"]]
    assert ("bypassPermissions" in offered) == sandbox
    if not sandbox:
        with pytest.raises(RpcError, match="acceptEdits"):
            await client.call("session/set_mode", sessionId=session, modeId="bypassPermissions")
        return
    await client.prompt(session, text("Ready."))
    await client.call("session/set_mode", sessionId=session, modeId="bypassPermissions")
    await client.prompt(session, script("bash mkdir made", "text Done."))
    assert client.questions == []
    assert (stack.work / "made").is_dir()


@pytest.mark.long
async def test_claude_commands_and_models_known_before_next_worker(stack: Stack) -> None:
    commands = stack.work / ".claude/commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text(
        "---\ndescription: Say hello\nargument-hint: <name>\n---\nHello $ARGUMENTS"
    )
    mine = stack.home / ".claude/commands/mine.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("Say hello (project)")
    client = await stack.start()
    session, answer = await opened(client, stack)
    assert [one["modelId"] for one in answer["models"]["availableModels"]] == [
        "default",
        "opus",
        "sonnet",
        "haiku",
    ]
    await client.prompt(session, text("One."))
    await client.until(lambda: client.commands.get(session))
    by_name = {one["name"]: one for one in client.commands[session]}
    assert by_name["greet"]["input"]["hint"] == "<name>"
    assert {"compact", "init"} <= set(by_name)
    assert {"clear", "rename"} <= by_name.keys()
    assert not {"login", "logout"} & set(by_name)
    await client.close()

    client = await stack.start()
    session, answer = await opened(client, stack)
    assert {"default", "opus", "haiku"} < {
        one["modelId"] for one in answer["models"]["availableModels"]
    }
    await client.until(lambda: client.commands.get(session))
    assert {one["name"] for one in client.commands[session]} == set(by_name)
    elsewhere = stack.root / "elsewhere"
    elsewhere.mkdir()
    session = await client.new(elsewhere)
    await client.until(lambda: client.commands.get(session))
    early = {one["name"] for one in client.commands[session]}
    assert early == set(by_name) - {"greet"}
    assert stack.claude(session) is None
    await client.prompt(session, text("Two."))
    assert {one["name"] for one in client.commands[session]} == early, "each of them is there"


@pytest.mark.long
async def test_a_slash_command_works_inside_of_mittos_wrapping(shared: Stack) -> None:
    commands = shared.work / ".claude/commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text("Please greet $ARGUMENTS.")
    client = await shared.start()
    session = await client.new(shared.work)
    await client.prompt(session, WRAPPED.format("/greet [[script text Hello. ]]"))
    assert client.text(session) == "Hello."
    assert "Please greet" in shared.asked()[-1]["user_texts"][-1]
    [named] = client.of(session, "session_info_update")
    assert named["title"] == "/greet [[script text Hello. ]]"


async def test_titles_and_history_are_the_users_own_words(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    wanted = "Say something nice.\n" + text("One.")
    await client.prompt(session, WRAPPED.format(wanted))
    history = "[CONVERSATION HISTORY - This is a resumed session. Previous context:]\n\n--- Turn 1 ---\nUSER: x\n\n"
    history += "[END OF HISTORY - Continue the conversation:]\n\n"
    await client.prompt(session, history + text("Two."))
    (title,) = client.of(session, "session_info_update")
    assert title["title"].startswith("Say something nice. [[script")
    assert "\n" not in title["title"]
    first, second = [asked["user_texts"][-1] for asked in shared.asked()]
    assert "[Mitto MCP Tools Check]" in first
    assert "CONVERSATION HISTORY" not in second
    await client.load(session, shared.work)
    assert [one["content"]["text"] for one in client.of(session, "user_message_chunk")] == [
        wanted,
        text("Two."),
    ]
    assert len(client.of(session, "session_info_update")) == 1
