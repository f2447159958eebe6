"""What reaches the model under each profile, on the real CLI, and who is asked."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.worker.profile import PROMPT
from tests.e2e.harness import Client, Stack, script
from tests.e2e.hostile import Recorder, Repository

WORK = script("bash touch made", "text done.")
CLAUDE_CODE = "# Harness"  # a heading of its own prompt


class Talk:
    """One prompt of a conversation: what the model was told, and what the client was asked."""

    def __init__(self, bodies: list[bytes], client: Client) -> None:
        requests = [json.loads(body) for body in bodies]
        self.request: dict[str, Any] = next(one for one in requests if one.get("tools"))
        self.said = json.dumps(self.request["messages"])
        self.system = json.dumps(self.request["system"])
        self.tools = {one["name"] for one in self.request["tools"]}
        self.asked = [one["params"]["toolCall"]["title"] for one in client.questions]


async def talk(stack: Stack, cwd: Path, **environment: str) -> Talk:
    """The second prompt of a conversation, whose folder other programs have made after the first
    one.
    """
    with contextlib.closing(Recorder(stack.model.url)) as recorder:
        client = await stack.start(ANTHROPIC_BASE_URL=recorder.url, IS_SANDBOX="1", **environment)
        session = await client.new(cwd)
        folder = stack.data / "conversations" / f"acp-{session[:8]}"
        folder.mkdir(parents=True)
        (folder / "CLAUDE.md").write_text("CONVERSATIONWORDS\n")
        (stack.data / "CLAUDE.md").write_text("DATAWORDS\n")
        await client.prompt(session, WORK)
        assert await client.close() == 0
    return Talk(recorder.bodies, client)


@pytest.mark.long
async def test_the_editor_profile_is_claude_code(stack: Stack) -> None:
    (stack.work / "CLAUDE.md").write_text("WORKWORDS\n")
    seen = await talk(stack, stack.work)
    assert CLAUDE_CODE in seen.system
    assert PROMPT not in seen.system
    assert "WORKWORDS" in seen.said
    assert "CONVERSATIONWORDS" not in seen.said
    assert "DATAWORDS" not in seen.said
    assert len(seen.asked) == 1  # about the command


@pytest.mark.long
async def test_the_pykoclaw_profile_is_the_earlier_plugin(stack: Stack) -> None:
    (stack.work / "CLAUDE.md").write_text("WORKWORDS\n")
    (stack.home / ".claude").mkdir()
    (stack.home / ".claude/settings.json").write_text('{"env": {"USERWORDS": "1"}}')
    seen = await talk(stack, stack.work, PYKOCLAW_PROFILE="pykoclaw")
    assert PROMPT in seen.system
    assert CLAUDE_CODE not in seen.system
    assert [w for w in ("WORKWORDS", "CONVERSATIONWORDS", "DATAWORDS") if w in seen.said] == [
        "WORKWORDS", "CONVERSATIONWORDS", "DATAWORDS",
    ]  # fmt: skip
    assert seen.tools >= {"Bash", "Read", "Write", "Edit"}
    assert seen.asked == []
    assert (stack.work / "made").exists()


@pytest.mark.long
async def test_what_is_set_wins_over_the_profile(stack: Stack) -> None:
    """Nobody is asked for the tools that the earlier plugin allowed; the user's settings count."""
    (stack.home / ".claude").mkdir()
    (stack.home / ".claude/CLAUDE.md").write_text("USERWORDS\n")
    seen = await talk(
        stack,
        stack.work,
        PYKOCLAW_PROFILE="pykoclaw",
        PYKOCLAW_PERMISSION_MODE="default",
        PYKOCLAW_SETTING_SOURCES="user,project",
    )
    assert seen.asked == []
    assert "USERWORDS" in seen.said


@pytest.mark.long
async def test_a_cloned_repository_still_needs_the_users_word(stack: Stack) -> None:
    repository = Repository(stack.root / "clone", stack.root / "marks")
    with contextlib.closing(Recorder(stack.model.url)) as recorder:
        client = await stack.start(
            ANTHROPIC_BASE_URL=recorder.url, IS_SANDBOX="1", PYKOCLAW_PROFILE="pykoclaw"
        )
        session = await client.new(repository.path)
        await client.prompt(session, WORK)  # the test's client says: without it, once
        assert len(client.questions) == 1
        assert str(client.questions[0]["params"]["toolCall"]["title"]).startswith("Trust ")
        assert await client.close() == 0
    assert not list(repository.marks.iterdir())
    assert (repository.path / "made").exists()


@pytest.mark.long
async def test_a_conversation_keeps_its_system_prompt(stack: Stack) -> None:
    """Claude stores it with its session; everything else follows the profile at once."""
    with contextlib.closing(Recorder(stack.model.url)) as recorder:
        environment = {"ANTHROPIC_BASE_URL": recorder.url, "IS_SANDBOX": "1"}
        client = await stack.start(**environment)
        session = await client.new(stack.work)
        await client.prompt(session, WORK)
        assert len(client.questions) == 1
        assert await client.close() == 0
        recorder.bodies.clear()
        client = await stack.start(**environment, PYKOCLAW_PROFILE="pykoclaw")
        await client.load(session, stack.work)
        await client.prompt(session, WORK)
        assert await client.close() == 0
    seen = Talk(recorder.bodies, client)
    assert CLAUDE_CODE in seen.system
    assert PROMPT not in seen.system
    assert seen.asked == []
