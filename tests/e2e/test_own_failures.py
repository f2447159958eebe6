"""Turns that Claude starts by itself, and that its service does not answer."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.e2e.harness.client import Client
from tests.e2e.harness.seen import seen_again
from tests.e2e.harness.stack import Stack, script, text

AGENT: Final = {"description": "look", "subagent_type": "claude", "prompt": script("text Seen.")}
BEGUN: Final = (f"tool Agent {json.dumps(AGENT)}", "text It looks.", "stop end_turn")
FAILED: Final = "**This turn ended with an error.** Claude could not go on by itself. "
WORDS: Final = {
    "400 nope": "Claude's service refused the request as invalid.",
    "529": "Claude is overloaded. Wait a moment, then send a prompt to have it go on.",
}


def notes(client: Client, session: str) -> list[str]:
    """What the session shows beside Claude's words."""
    return [
        one["content"]["text"].strip()
        for one in client.of(session, "agent_message_chunk")
        if "pykoclaw.dev/note" in one["_meta"]
    ]


@pytest.mark.parametrize("error", ["529", pytest.param("400 nope", marks=pytest.mark.long)])
async def test_failed_report_is_one_error(stack: Stack, error: str) -> None:
    client = await stack.start(CLAUDE_CODE_MAX_RETRIES="0")
    session = await client.new(stack.work)
    await client.prompt(session, script(*BEGUN, f"error {error}"))
    await client.until(lambda: FAILED in client.text(session))
    await client.prompt(session, text("Later."))  # what others wrote was looked for before
    why, failed = notes(client, session)
    assert why == "> The background agent “look” has ended."
    assert failed.startswith(FAILED + WORDS[error])
    assert "the prompt again" not in failed
    await seen_again(stack, client, session)
