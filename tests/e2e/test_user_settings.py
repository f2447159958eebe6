"""The user's own Claude settings: what a new session shows is what runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.harness import Client, Stack, script

OWN = {"model": "haiku", "permissions": {"defaultMode": "acceptEdits"}}


def write(stack: Stack, settings: Any) -> None:
    directory = stack.home / ".claude"
    directory.mkdir(exist_ok=True)
    (directory / "settings.json").write_text(json.dumps(settings))


async def begun(stack: Stack, client: Client) -> tuple[str, dict[str, Any]]:
    """A new session, and what it is shown to begin with."""
    new = await client.call("session/new", cwd=str(stack.work), mcpServers=[])
    shown = {one["id"]: one["currentValue"] for one in new["configOptions"]}
    assert new["modes"]["currentModeId"] == shown["mode"]
    return new["sessionId"], shown


@pytest.mark.long
@pytest.mark.parametrize("by_itself", [False, True])
async def test_users_model_and_mode_are_shown_and_used(stack: Stack, by_itself: bool) -> None:
    """By a daemon, and by a server on its client's standard streams."""
    write(stack, OWN)
    client = await (stack.start() if by_itself else stack.front())
    session, shown = await begun(stack, client)
    assert (shown["model"], shown["mode"]) == ("haiku", "acceptEdits")
    await client.prompt(session, script("write new.txt <<< text", "text Written."))
    assert client.questions == []
    assert (stack.work / "new.txt").read_text() == "text"
    assert "haiku" in stack.asked()[-1]["model"]


@pytest.mark.long
async def test_our_settings_and_clients_model_go_first(stack: Stack) -> None:
    write(stack, OWN)
    client = await stack.front(PYKOCLAW_PERMISSION_MODE="plan", ANTHROPIC_MODEL="claude-mine-1")
    session, shown = await begun(stack, client)
    assert (shown["model"], shown["mode"]) == ("claude-mine-1", "plan")
    await client.prompt(session, script("text Here."))
    assert stack.asked()[-1]["model"] == "claude-mine-1"
    other = await stack.front(ANTHROPIC_MODEL="claude-mine-2")
    _, shown = await begun(stack, other)
    assert shown["model"] == "claude-mine-2"


async def test_settings_that_cannot_be_used_change_nothing(stack: Stack) -> None:
    client = await stack.front()
    unusable: list[Any] = [[], {"model": ""}]
    for settings in [*unusable, {"model": 3, "permissions": {"defaultMode": "bypassAll"}}]:
        write(stack, settings)
        _, shown = await begun(stack, client)
        assert (shown["model"], shown["mode"]) == ("default", "default")
