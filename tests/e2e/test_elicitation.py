"""Forms of MCP servers, from the server through the real CLI to the client and back."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import done, run
from tests.e2e.harness import Client, Stack, script
from tests.e2e.harness.client import selected
from tests.waiting import eventually

SERVER = {
    "name": "secretary",
    "command": sys.executable,
    "args": [str(Path(__file__).with_name("mcp_server.py"))],
    "env": [],
}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name"},
        "age": {"type": "integer", "minimum": 1},
    },
    "required": ["name"],
}
FORM = {"message": "Who are you?", "requestedSchema": SCHEMA}
ADA = {"action": "accept", "content": {"name": "Ada", "age": 36}}


def survey(form: dict[str, Any]) -> str:
    return script(f"tool mcp__secretary__survey {json.dumps(form)}", "text And then?")


async def front(stack: Stack, answer: dict[str, Any] | None, *, forms: bool = True) -> Client:
    """A client that allows every tool call, and answers forms so, or leaves them open."""
    client: Client = await stack.spawn_front()
    await client.initialize(clientCapabilities={"elicitation": {"form": {}}} if forms else {})
    client.permit = lambda params: selected("allow_once") if "toolCall" in params else answer
    return client


def forms(client: Client) -> list[dict[str, Any]]:
    return [one for one in client.questions if one["method"] == "elicitation/create"]


def heard(client: Client, session: str) -> Any:
    """What the MCP server was told, as its tool's result says."""
    ended = client.of(session, "tool_call_update")[-1]
    assert ended["status"] == "completed"
    return json.loads(ended["rawOutput"]["output"])


def row(stack: Stack, session: str) -> tuple[Any, ...]:
    (found,) = stack.rows(
        "SELECT outcome, content FROM acp_permissions WHERE tool_call_id = '' AND acp_session_id = ?",
        session,
    )
    return found["outcome"], found["content"] and json.loads(found["content"])


async def asked(stack: Stack) -> tuple[Client, str, Any, dict[str, Any]]:
    """A client that was shown a form and does not answer: with its session, the prompt's answer to
    come, the form.
    """
    client = await front(stack, None)
    session = await client.new(stack.work, mcpServers=[SERVER])
    answer = client.prompting(session, survey(FORM))
    (form,) = await client.until(lambda: forms(client))
    return client, session, answer, form


@pytest.mark.parametrize(
    "answer",
    [
        ADA,
        *(
            pytest.param({"action": action}, marks=pytest.mark.long)
            for action in ("decline", "cancel")
        ),
    ],
    ids=lambda one: one["action"],
)
async def test_server_gets_what_user_did_with_form(shared: Stack, answer: dict[str, Any]) -> None:
    client = await front(shared, answer)
    session = await client.new(shared.work, mcpServers=[SERVER])
    await client.prompt(session, survey(FORM))
    (form,) = forms(client)
    assert form["params"] == {
        "sessionId": session,
        "mode": "form",
        "message": "secretary asks: Who are you?",
        "requestedSchema": SCHEMA,
    }
    assert heard(client, session) == answer
    assert row(shared, session) == (answer["action"], answer.get("content"))
    assert client.text(session) == "And then?"


@pytest.mark.long
async def test_client_without_form_support_is_not_asked(stack: Stack) -> None:
    client = await front(stack, ADA, forms=False)
    session = await client.new(stack.work, mcpServers=[SERVER])
    await client.prompt(session, survey(FORM))
    assert forms(client) == []
    assert heard(client, session) == {"action": "cancel"}


@pytest.mark.long
async def test_url_elicitation_is_cancelled_without_asking(stack: Stack) -> None:
    client = await front(stack, ADA)
    session = await client.new(stack.work, mcpServers=[SERVER])
    url = {"mode": "url", "message": "Log in.", "url": "https://example.org", "elicitationId": "e1"}
    await client.prompt(session, survey(url))
    assert forms(client) == []
    assert heard(client, session) == {"action": "cancel"}


@pytest.mark.long
async def test_answer_given_without_daemon_reaches_server(stack: Stack) -> None:
    client, session, answer, form = await asked(stack)
    await stack.end_daemon(signal.SIGKILL)
    client.reply(form, ADA)
    assert (await client.answer(answer))["stopReason"] == "end_turn"
    assert heard(client, session) == ADA
    assert len(forms(client)) == 1, "asked twice"
    assert len(stack.asked()) == 2


@pytest.mark.long
async def test_a_form_outlives_the_daemon_and_its_client(stack: Stack) -> None:
    client, session, _, form = await asked(stack)
    await client.kill()
    await stack.end_daemon(signal.SIGKILL)
    plain = await front(stack, None, forms=False)
    await plain.load(session, stack.work)
    later = await front(stack, ADA)
    await later.load(session, stack.work)
    await later.until(lambda: later.text(session) == "And then?")
    assert [one["id"] for one in forms(later)] == [form["id"]]
    assert heard(later, session) == ADA
    assert forms(plain) == []


@pytest.mark.long
async def test_cancelling_the_turn_takes_the_form_back(stack: Stack) -> None:
    client, session, answer, form = await asked(stack)
    client.cancel(session)
    assert (await client.answer(answer))["stopReason"] == "cancelled"
    await client.until(lambda: client.withdrawn == [form["id"]])
    assert row(stack, session) == ("withdrawn", None)


@pytest.mark.long
async def test_the_command_line_can_only_deny_a_form(stack: Stack) -> None:
    client, session, answer, form = await asked(stack)
    assert "secretary asks: Who are you?" in (await done(stack, "approve")).out
    refused = await run(stack, "approve", form["id"], "--allow")
    assert refused.status != 0
    assert "only a client that shows forms can fill it in" in refused.error
    await done(stack, "approve", form["id"], "--deny")
    await client.answer(answer)
    assert heard(client, session) == {"action": "decline"}
    await eventually(lambda: client.withdrawn == [form["id"]])
