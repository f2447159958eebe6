"""Mitto sends prompts: queued, stopped, withdrawn, wrapped in its own words, or failing.

mitto_helpers.py lists what the numbers and letters in the names of the tests stand for.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from tests.e2e.harness import Stack
from tests.e2e.mitto import Conversation, Mitto, Wire, reading
from tests.e2e.mitto_helpers import AT_ONCE, ENDLESS, fold, play, wire_of


def place(wire: Wire, wanted: dict[str, Any]) -> int:
    """Where the answer with these fields stands among all frames."""
    return next(at for at, frame in enumerate(wire.received) if wanted.items() <= frame.items())


async def test_6_prompt_after_stop_gets_its_own_answer(shared: Stack) -> None:
    """The late answer of the first prompt does not end the second."""
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    wire = wire_of(web)
    first = asyncio.ensure_future(web.prompt(conversation, ENDLESS))
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    began = time.monotonic()
    web.stop(conversation)
    second = asyncio.ensure_future(web.prompt(conversation, play("text The second.")))
    assert await first == "cancelled"
    assert time.monotonic() - began < AT_ONCE
    assert await second == "end_turn"
    prompts = [message["id"] for message in wire.sent if message.get("method") == "session/prompt"]
    ended = place(wire, {"id": prompts[0]})
    after = json.dumps(wire.received[ended:])
    assert "The second." in after
    assert "tick" not in after
    assert "The second." not in json.dumps(wire.received[:ended])


@pytest.mark.long
async def test_6_a_second_prompt_is_queued(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    prompts = [
        web.prompt(conversation, play(f"words 5ms The {name} answer."))
        for name in ("first", "second")
    ]
    assert await asyncio.gather(*prompts) == ["end_turn", "end_turn"]
    assert conversation.text.index("The first answer.") < conversation.text.index(
        "The second answer."
    )


@pytest.mark.long
async def test_7_a_prompt_cancelled_twice_is_answered_once(shared: Stack) -> None:
    """By `session/cancel` and by `$/cancel_request`."""
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    wire = wire_of(web)
    turn = asyncio.ensure_future(web.prompt(conversation, ENDLESS))
    await wire.until(lambda: "tick3." in fold(wire, conversation.session))
    number = next(
        message["id"] for message in wire.sent if message.get("method") == "session/prompt"
    )
    web.stop(conversation)
    wire.notify("$/cancel_request", requestId=number)
    assert await turn == "cancelled"


@pytest.mark.parametrize(
    ("fault", "read"),
    [
        ("error 400 port 8413 of request req_413ab is bad", "Prompt failed: "),
        ("error 401 key 4130 is bad", "Prompt failed: "),
        ("error 400 prompt is too long: 210000 tokens > 200000 maximum", reading.TOO_LARGE),
    ],
)
@pytest.mark.long
async def test_11_digits_never_misclassify_an_error(shared: Stack, fault: str, read: str) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    assert await web.prompt(conversation, play(fault)) is None
    assert conversation.errors[0].startswith(read)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (("text Half of", "stop refusal") * 4, "refuse"),
        (("text Half of", "stop max_tokens") * 9, "longest"),
    ],
    ids=["refusal", "max_tokens"],
)
@pytest.mark.long
async def test_12_an_early_end_is_explained(
    shared: Stack, steps: tuple[str, ...], words: str
) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    reason = await web.prompt(conversation, play(*steps))
    assert reason != "end_turn"
    assert words in conversation.text


@pytest.mark.long
async def test_15_token_usage_is_per_turn(shared: Stack) -> None:
    """Mitto adds them up."""
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    for _ in range(3):
        await web.prompt(conversation, play("text Yes."))
    totals = [
        frame["result"]["usage"]["totalTokens"]
        for frame in wire_of(web).received
        if "usage" in frame.get("result", {})
    ]
    assert len(totals) == 3
    assert max(totals) < 2 * min(totals)


async def test_e_known_history_is_not_sent_again(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text An earlier answer."))
    await web.shutdown()
    await web.open(conversation)
    await web.prompt(conversation, play("text A later answer."))
    sent = next(
        message
        for message in reversed(wire_of(web).sent)
        if message.get("method") == "session/prompt"
    )
    assert "CONVERSATION HISTORY" in sent["params"]["prompt"][0]["text"]
    first, second = shared.asked()[-1]["user_texts"]
    assert "CONVERSATION HISTORY" not in second
    assert "[Session Context]" in first
    assert "[Session Context]" in second


@pytest.mark.long
async def test_e_log_and_title_keep_the_users_words(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, "How many apples are there?")
    reader = await shared.front()
    await reader.load(conversation.session or "", shared.work)
    assert (
        reader.text(conversation.session or "", "user_message_chunk")
        == "How many apples are there?"
    )
    (row,) = shared.rows(
        "SELECT title FROM acp_sessions WHERE acp_session_id = ?", conversation.session
    )
    assert row["title"] == "How many apples are there?"
    titles = wire_of(web).of(conversation.session or "", "session_info_update")
    assert [update["title"] for update in titles] == ["How many apples are there?"]


@pytest.mark.long
async def test_e_slash_commands_work_in_wrapped_prompts(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    commands = shared.work / ".claude/commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text("Greet the user. [[script text Greetings. ]]")
    await web.open(conversation)
    assert await web.prompt(conversation, "/greet") == "end_turn"
    assert conversation.text == "Greetings."
