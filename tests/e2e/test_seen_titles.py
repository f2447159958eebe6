"""Titles, exports and imports, with the real CLI: what is seen live, and again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.commands import done, run
from tests.e2e.harness import Client, Stack, script
from tests.e2e.harness.seen import seen


def titles(client: Client, session: str) -> list[str]:
    return [one["title"] for one in client.of(session, "session_info_update")]


def named(stack: Stack) -> list[str]:
    """What the model was asked to name."""
    asked = [str(one["user_texts"]) for one in stack.model.requests("side")]
    return [one for one in asked if "<session>" in one]


def said(client: Client, session: str) -> list[dict[str, Any]]:
    """Messages and tool calls, without titles and notes of ours."""
    return [
        one
        for one in seen(client.of(session))
        if one["sessionUpdate"] != "session_info_update" and "pykoclaw.dev/note" not in one["_meta"]
    ]


@pytest.mark.long
async def test_session_is_named_reshown_and_carried_elsewhere(stack: Stack) -> None:
    client = await stack.front(PYKOCLAW_TITLES="claude")
    session = await client.new(stack.work)
    prompt = "# Fix **the** parser\n" + script("text I look.", "bash echo parsed", "text Done.")
    await client.prompt(session, prompt)
    await client.until(lambda: len(titles(client, session)) == 2)
    words, made = titles(client, session)
    assert words.startswith("Fix the parser [[script")
    assert made == "Scripted session"
    assert all(one["updatedAt"] for one in client.of(session, "session_info_update"))
    (asked,) = named(stack)
    assert "Fix **the** parser" in asked
    await done(stack, "sessions", "rename", session, "Mine")
    await client.prompt(session, "Thanks.")
    await client.until(lambda: titles(client, session)[-1] == "Mine")
    assert len(named(stack)) == 1
    await client.prompt(session, "/rename Theirs")
    await client.until(lambda: titles(client, session)[-1] == "Theirs")
    live = seen(client.of(session))
    await stack.end_daemon()
    again = await stack.front()
    await again.load(session, stack.work)
    assert seen(again.of(session)) == live

    file = stack.root / "export.json"
    file.write_text((await done(stack, "sessions", "export", session, "--format", "json")).out)
    out = (await done(stack, "import", str(file), "--directory", str(stack.work))).out
    imported = out.partition(" as session ")[2].partition(":")[0]
    assert out.startswith("Imported “Theirs” as session ")
    await again.load(imported, stack.work)
    assert said(again, imported) == said(again, session)
    assert titles(again, imported) == ["Theirs"]
    await again.prompt(imported, "And now?")
    reached = json.dumps(stack.asked()[-1]["messages"])
    assert "You have no record of it yourself" in reached
    assert "Tools: Bash (1)" in reached
    file.write_text(file.read_text().replace('"version": 1', '"version": 2'))
    refused = await run(stack, "import", str(file))
    assert (refused.status, "has version 2" in refused.error) == (1, True)
