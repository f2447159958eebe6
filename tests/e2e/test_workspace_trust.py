"""A hostile repository on the real CLI: nothing of it acts before the user says so, and then it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import RpcError, Stack, script
from tests.e2e.harness.client import Client, selected
from tests.e2e.hostile import ACTS, Repository, server

WITHOUT, TRUST, REFUSE = "allow_once", "allow_always", "reject_once"
WORK = script("bash echo hi", "text done.")


@pytest.fixture
def repository(stack: Stack) -> Repository:
    return Repository(stack.root / "clone", stack.root / "marks")


def choose(client: Client, option: str) -> None:
    """Answer questions about trust so, and allow what tools ask."""

    def permit(params: dict[str, Any]) -> dict[str, Any]:
        return selected(option if about_trust(params) else "allow_once")

    client.permit = permit


def about_trust(params: dict[str, Any]) -> bool:
    return str(params["toolCall"]["title"]).startswith("Trust ")


def asked(client: Client) -> list[dict[str, Any]]:
    return [one["params"] for one in client.questions if about_trust(one["params"])]


async def test_nothing_acts_without_trust_but_words_count(stack: Stack) -> None:
    with server() as target:
        repository = Repository(stack.root / "clone", stack.root / "marks", target.url)
        client = await stack.front()
        choose(client, WITHOUT)
        session = await client.new(repository.path)
        assert (await client.prompt(session, script("bash echo $HOSTILE=", "report")))["stopReason"] == "end_turn"
        assert (await client.prompt(session, "/evil"))["stopReason"] == "end_turn"
        question = asked(client)[0]
        assert [(one["optionId"], one["kind"]) for one in question["options"]] == [
            (WITHOUT, "allow_once"), (TRUST, "allow_always"), (REFUSE, "reject_once"),
        ]  # fmt: skip
        said = question["toolCall"]["content"][0]["content"]["text"]
        for found in ("hook at SessionStart", "apiKeyHelper", target.url, "MCP server evil", "settings.local.json",
                      "skills/evil/SKILL.md", "is a plugin", "agents/evil.md", "commands/evil.md"):  # fmt: skip
            assert found in said
        assert len(asked(client)) == 1  # the worker lives on
        await client.close()
        await stack.end_daemon()
    assert repository.ran == set()
    assert target.reached == []
    log = client.text(session)
    assert "without what acts" in log
    assert f"pykoclaw-acp trust add {repository.path}" in log
    tool_asked = [one for one in client.questions if not about_trust(one["params"])]
    assert tool_asked, "the repository's own permissions.allow must not count"


async def test_what_is_trusted_acts_and_its_change_is_asked_about(stack: Stack, repository: Repository) -> None:
    client = await stack.front()
    choose(client, TRUST)
    session = await client.new(repository.path)
    await client.prompt(session, WORK)
    assert repository.ran >= ACTS | {"script"}
    assert len(asked(client)) == 1
    await client.prompt(await client.new(repository.path), WORK)  # remembered, also for other sessions
    assert len(asked(client)) == 1

    choose(client, WITHOUT)
    repository.write("setup.sh", f"touch {repository.marks}/changed\n")  # a script that a hook names
    await client.prompt(session, WORK)
    assert len(asked(client)) == 2
    repository.settings["hooks"]["Stop"] = [{"hooks": [repository.command("changed")]}]
    repository.save()
    await client.prompt(session, WORK)
    assert len(asked(client)) == 3
    assert "changed" not in repository.ran
    choose(client, TRUST)
    repository.settings["env"]["MORE"] = "1"
    repository.save()
    await client.prompt(session, WORK)
    assert "changed" in repository.ran


async def test_who_refuses_sends_nothing(stack: Stack, repository: Repository) -> None:
    client = await stack.front()
    choose(client, REFUSE)
    session = await client.new(repository.path)
    with pytest.raises(RpcError) as refused:
        await client.prompt(session, WORK)
    assert refused.value.kind == "workspace_refused"
    assert repository.ran == set()
    assert stack.asked() == []


async def test_claude_md_of_an_untrusted_directory_reaches_the_model(stack: Stack, repository: Repository) -> None:
    client = await stack.front()
    choose(client, WITHOUT)
    session = await client.new(repository.path)
    await client.prompt(session, WORK)
    assert asked(client)


async def test_a_subdirectory_and_a_worktree_lead_to_the_same_question(stack: Stack, tmp_path: Path) -> None:
    repository = Repository(stack.root / "clone", stack.root / "marks")
    below = repository.path / "a" / "b"
    below.mkdir(parents=True)
    client = await stack.front()
    choose(client, WITHOUT)
    await client.prompt(await client.new(below), WORK)
    assert "settings.local.json" in asked(client)[0]["toolCall"]["content"][0]["content"]["text"]
    plain = stack.root / "plain"
    plain.mkdir()
    await client.prompt(await client.new(plain, additionalDirectories=[str(repository.path)]), WORK)
    assert "skills/evil" in asked(client)[1]["toolCall"]["content"][0]["content"]["text"]
    assert repository.ran == set()
