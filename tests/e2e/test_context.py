"""Claude's memory of a conversation is lost: what the user is told, and what the model then knows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pykoclaw_acp.model.conversations import id_of
from tests.e2e.harness import Stack
from tests.e2e.harness.seen import seen
from tests.e2e.hooks import block_prompts
from tests.integration.queueing import execute

LINE = '{"type":"queue-operation","operation":"enqueue","content":"x"}\n'


def said(words: str) -> str:
    return f"[[script text {words} ]]"


def transcript(stack: Stack, session: str) -> Path:
    [found] = stack.transcripts(session)
    return found


@pytest.mark.parametrize("claude", ["--version", pytest.param("A title", marks=pytest.mark.long)])
async def test_conversation_whose_claude_session_is_none_goes_on(stack: Stack, claude: str) -> None:
    client = await stack.start()
    await client.new(stack.work)
    row = "INSERT INTO conversations VALUES ('tg-1', ?, NULL, '', NULL)"
    execute(stack.data / "pykoclaw.db", row, claude)
    session = id_of("tg-1")
    await client.load(session, stack.work)
    assert (await client.prompt(session, said("Here.")))["stopReason"] == "end_turn"
    assert "Claude does not remember" in client.text(session)
    assert client.text(session).endswith("Here.")
    assert stack.rows("SELECT session_id FROM conversations WHERE name = 'tg-1'") != [
        {"session_id": claude}
    ]


@pytest.mark.long
async def test_lost_transcript_is_told_and_made_up_for(stack: Stack) -> None:
    """Missing, empty, cut off, and another conversation's: each is said, and the model is given what
    the log has, once.
    """
    client = await stack.start()
    sessions = {
        kind: await client.new(stack.work) for kind in ("gone", "empty", "cut", "foreign", "whole")
    }
    cut_at = 0
    for kind, session in sessions.items():
        await client.prompt(session, said(f"The first of {kind}."))
        if kind == "cut":
            cut_at = transcript(stack, session).stat().st_size
        await client.prompt(session, said(f"The second of {kind}."))
    await client.close()
    await stack.kill_everything()
    paths = {kind: transcript(stack, session) for kind, session in sessions.items()}
    paths["gone"].unlink()
    paths["empty"].write_text("")
    with paths["cut"].open("r+") as file:
        file.truncate(cut_at)
    paths["foreign"].write_text(
        paths["whole"].read_text().replace(sessions["whole"], sessions["foreign"])
    )
    client = await stack.start()
    for kind, session in sessions.items():
        await client.load(session, stack.work)
        before = len(client.text(session))
        await client.prompt(session, said(f"The third of {kind}."))
        told = client.text(session)[before:]
        asked = json.dumps(stack.asked()[-1]["messages"])
        lost = kind != "whole"
        assert ("Claude does not remember" in told) == lost, kind
        assert ("Answered: The second of " + kind in asked) == lost, kind
        assert ("Answered: The first of " + kind in asked) == (lost and kind != "cut"), kind
        assert f"The first of {kind}." in asked
        assert ("of whole" in asked) == (kind == "whole")  # nothing of a foreign transcript
        await client.prompt(session, said("The fourth."))
        messages = json.dumps(stack.asked()[-1]["messages"])
        assert messages.count("Answered: The second of " + kind) == int(lost)
        assert client.text(session).count("Claude does not remember") == int(lost)
    shown = {session: seen(client.of(session)) for session in sessions.values()}
    await client.close()
    again = await stack.start()
    for session in sessions.values():
        await again.load(session, stack.work)
        assert seen(again.of(session)) == shown[session]


async def test_pipe_in_place_of_transcript_counts_as_lost(stack: Stack) -> None:
    """Whoever opens one waits for its writer, as the CLI would."""
    client = await stack.start(PYKOCLAW_WORKER_START_TIMEOUT="10")
    session = await client.new(stack.work)
    await client.prompt(session, said("The first."))
    await client.close()
    await stack.kill_everything()
    path = transcript(stack, session)
    path.unlink()
    os.mkfifo(path)
    client = await stack.start(PYKOCLAW_WORKER_START_TIMEOUT="10")
    await client.load(session, stack.work)
    for words in ("The second.", "The third."):
        assert (await client.prompt(session, said(words)))["stopReason"] == "end_turn"
    assert client.text(session).count("Claude does not remember") == 1
    assert "Answered: The first." in json.dumps(stack.asked()[-1]["messages"])


@pytest.mark.long
async def test_lost_transcript_is_only_told_if_so_set(stack: Stack) -> None:
    client = await stack.start(PYKOCLAW_LOST_CONTEXT="off")
    session = await client.new(stack.work)
    await client.prompt(session, said("The first."))
    await client.close()
    transcript(stack, session).unlink()
    client = await stack.start(PYKOCLAW_LOST_CONTEXT="off")
    await client.load(session, stack.work)
    await client.prompt(session, said("The second."))
    assert client.text(session).count("Claude does not remember") == 1
    (note,) = (one for one in client.of(session) if "pykoclaw.dev/note" in one.get("_meta", {}))
    assert "Claude does not remember" in note["content"]["text"]
    shown = seen(client.of(session))
    await client.close()
    again = await stack.start(PYKOCLAW_LOST_CONTEXT="off")
    await again.load(session, stack.work)
    assert seen(again.of(session)) == shown
    asked = stack.asked()[-1]
    assert asked["user_texts"] == [said("The second.")]
    assert "The first" not in json.dumps(asked["messages"])


@pytest.mark.long
async def test_summary_outlasts_a_prompt_that_hook_blocks(stack: Stack) -> None:
    block_prompts(stack)
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, said("The first."))
    await client.close()
    transcript(stack, session).unlink()
    client = await stack.start()
    await client.load(session, stack.work)
    await client.prompt(session, said("forbidden"))
    assert "Claude does not remember" in client.text(session)
    assert len(stack.asked()) == 1
    for _ in range(2):
        await client.prompt(session, said("The second."))
        assert json.dumps(stack.asked()[-1]["messages"]).count("Answered: The first.") == 1
