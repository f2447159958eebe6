"""What Claude offers and asks for: commands, models and forms, live and again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.harness.client import selected
from tests.e2e.harness.seen import seen_again

FORM = {
    "message": "Who are you?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}


def models(options: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Values and names of the models in config options."""
    (model,) = [one for one in options if one["id"] == "model"]
    return [(one["value"], one["name"]) for one in model["options"]]


@pytest.mark.long
async def test_commands_and_models_are_offered_again(stack: Stack) -> None:
    own = stack.work / ".claude/commands/greet.md"
    own.parent.mkdir(parents=True)
    own.write_text("---\ndescription: Say hello\nargument-hint: <name>\n---\nHello $ARGUMENTS")
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, text("One."))
    await client.until(lambda: client.commands.get(session) and client.offered.get(session))
    commands, offered = client.commands[session], models(client.offered[session])
    assert "greet" in [one["name"] for one in commands]
    assert len(offered) > len({"default", "opus", "sonnet", "haiku"})
    again = await seen_again(stack, client, session)
    await again.until(lambda: again.commands.get(session))
    assert again.commands[session] == commands
    opened = [one.get("result") or {} for one in again.received]
    assert [models(one["configOptions"]) for one in opened if "configOptions" in one] == [offered]


@pytest.mark.long
async def test_form_is_asked_once_its_answer_kept(stack: Stack) -> None:
    forms: dict[str, Any] = {"clientCapabilities": {"elicitation": {"form": {}}}}
    answer = {"action": "accept", "content": {"name": "Ada"}}

    def asked(client: Client) -> list[dict[str, Any]]:
        return [one for one in client.questions if one["method"] == "elicitation/create"]

    client = await stack.spawn()
    await client.initialize(**forms)
    client.permit = lambda params: selected("allow_once") if "toolCall" in params else answer
    server = {
        "name": "secretary",
        "command": sys.executable,
        "args": [str(Path(__file__).with_name("mcp_server.py"))],
        "env": [],
    }
    session = await client.new(stack.work, mcpServers=[server])
    survey = f"tool mcp__secretary__survey {json.dumps(FORM)}"
    await client.prompt(session, script(survey, "text And then?"))
    (form,) = asked(client)
    assert form["params"]["message"] == "secretary asks: Who are you?"
    ended = client.of(session, "tool_call_update")[-1]
    assert json.loads(ended["rawOutput"]["output"]) == answer
    again = await seen_again(stack, client, session, **forms)
    assert asked(again) == []
