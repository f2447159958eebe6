"""What a terminal says in a Claude session that its session has left, as after a rewind: clients see
it, and the model gets it; with the real CLI.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.other_programs import name_of, notes, row, terminal
from tests.e2e.rewinds import front


async def say(client: Client, session: str, word: str) -> None:
    await client.prompt(session, f"Word: {word}\n" + text(f"Noted {word}."))


async def hear(client: Client, stack: Stack, session: str, word: str) -> None:
    """A terminal says this, and the client sees the answer."""
    await terminal(stack, session, f"Word: {word}\n" + text(f"Heard {word}."))
    await client.until(lambda: f"Heard {word}." in client.text(session))


async def leave(client: Client, session: str, why: str) -> None:
    """Have the session go on in another Claude session, without the prompt `gone`."""
    if why == "rewind":
        await say(client, session, "gone")
        await client.call("_pykoclaw.dev/rewind", session=session, files=False)
    else:
        await client.prompt(session, "Word: gone\n" + script("stop refusal"))
    await say(client, session, "after")


@pytest.mark.parametrize("why", ["rewind", pytest.param("refusal", marks=pytest.mark.long)])
async def test_terminal_in_left_claude_session_is_heard(stack: Stack, why: str) -> None:
    client = await front(stack)
    session = await client.new(stack.work)
    await say(client, session, "before")
    await leave(client, session, why)
    now, _ = row(stack, name_of(stack, session))
    assert now != session
    await hear(client, stack, session, "first")
    await hear(client, stack, session, "second")
    await say(client, session, "next")
    told = notes(stack)
    assert told.index("Word: first") < told.index("Answered: Heard first.")
    assert told.index("Heard first.") < told.index("Answered: Heard second.")
    assert not any(word in told for word in ("before", "gone", "after"))
    asked = "\n".join(stack.asked()[-1]["user_texts"])
    assert "Word: after" in asked
    assert "Word: gone" not in asked
    assert row(stack, name_of(stack, session))[0] == now
    await say(client, session, "last")
    assert notes(stack).count("Answered: Heard first.") == 1, "told once"


@pytest.mark.long
async def test_rewound_terminals_answer_is_shown_not_told(stack: Stack) -> None:
    """It comes after the rewind, which has covered its prompt."""
    client = await front(stack)
    session = await client.new(stack.work)
    await say(client, session, "before")
    await say(client, session, "gone")
    until = "bash until [ -e go ]; do sleep 0.05; done"
    late = script("text One moment.", until, "text At last.")
    running = asyncio.create_task(terminal(stack, session, f"Word: late\n{late}"))
    await client.until(lambda: "One moment." in client.text(session))
    await client.call("_pykoclaw.dev/rewind", session=session, files=False)
    await say(client, session, "after")
    (stack.work / "go").touch()
    await running
    await client.until(lambda: "At last." in client.text(session))
    await hear(client, stack, session, "next")
    await say(client, session, "last")
    told = notes(stack)
    assert "Answered: Heard next." in told
    assert "Answered: One moment." not in told
