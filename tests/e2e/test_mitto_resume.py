"""Mitto comes back to its sessions after it has killed its front, and sends prompts again.

mitto_helpers.py lists what the numbers and letters in the names of the tests stand for.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest

from pykoclaw_acp.model.seams import CONTINUED
from tests.e2e.harness import Stack
from tests.e2e.mitto import Conversation, Mitto, mitto
from tests.e2e.mitto import wire as wires
from tests.e2e.mitto_helpers import AT_ONCE, claudes, fold, play, ticks, wire_of
from tests.waiting import eventually


def states(stack: Stack, conversation: Conversation) -> list[str]:
    """Of the conversation's turns."""
    query = "SELECT state FROM acp_turns WHERE acp_session_id = ? ORDER BY position"
    return [row["state"] for row in stack.rows(query, conversation.session)]


@pytest.mark.long
async def test_1_sessions_resume_while_the_store_is_written(stack: Stack, web: Mitto) -> None:
    """Resume, four session/new and prompts come in the same moment."""
    old, others = Conversation("old"), [Conversation(f"other {number}") for number in range(3)]
    await web.open(old, *others)
    await web.prompt(old, play("text Remember this."))
    writer = await stack.front()
    written = writer.prompting(await writer.new(stack.work), play("repeat 6000x1ms word{n}. "))
    for _ in range(3):
        await web.shutdown()
        prompts = [web.prompt(other, play("text Me too.")) for other in others]
        await asyncio.gather(web.open(old, *others), *prompts)
    assert (await writer.answer(written))["stopReason"] == "end_turn"
    assert old.methods == ["new", *["resume"] * 3]
    for conversation in (old, *others):
        assert set(conversation.methods[1:]) <= {"resume"}
        assert conversation.lost == []
    await web.prompt(old, play("text It goes on."))
    assert "Remember this." in json.dumps(stack.asked()[-1]["messages"])


@pytest.mark.long
@pytest.mark.parametrize("method", ["resume", "load"])
async def test_a_sessions_open_at_once_without_a_process(
    stack: Stack, web: Mitto, method: str
) -> None:
    conversation = Conversation()
    await web.open(conversation)
    unused = web.auxiliary[0]
    await web.prompt(conversation, play("text Remember this."))
    await web.shutdown()
    await stack.kill_everything()
    await stack.daemon()
    await web.open()
    for session in (unused, conversation.session):
        params: dict[str, Any] = {"cwd": str(stack.work), "sessionId": session}
        if method == "load":
            params["mcpServers"] = []
        await wire_of(web).timed(AT_ONCE, f"session/{method}", **params)
    assert claudes(stack) == []


async def test_c_a_finished_turn_is_shown_on_resume(shared: Stack) -> None:
    """The user closes Mitto in the middle of a turn, and comes back when it is over."""
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    turn = asyncio.ensure_future(
        web.prompt(conversation, play("repeat 100x10ms tick{n}. ", "text The end."))
    )
    wire = wire_of(web)
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    turn.cancel()
    await web.shutdown()
    await eventually(lambda: states(shared, conversation) == ["done"])
    await web.open(conversation)
    # It comes when the answer of resume was dealt with, and is shown although no turn ends here:
    # its line does.
    await wire_of(web).until(lambda: "The end." in conversation.text)
    for number in range(1, 101):
        assert f"tick{number}." in conversation.text
    assert conversation.methods == ["new", "resume"]


@pytest.mark.long
async def test_c_suspended_conversation_shows_what_it_missed(shared: Stack) -> None:
    """Mitto opens it again on the same process, which it needs for another conversation."""
    web = Mitto(shared)
    conversation, other = Conversation(), Conversation("another")
    await web.open(conversation, other)
    await web.prompt(conversation, play("text First."))
    web.suspend(conversation)
    window = await shared.front()
    assert conversation.session is not None
    await window.resume(conversation.session, shared.work)
    await window.prompt(conversation.session, play("text Meanwhile."))
    wire = wire_of(web)
    await wire.until(lambda: "Meanwhile." in fold(wire, conversation.session))
    assert conversation.text == "First."
    await web.open(conversation)
    await wire.until(lambda: "Meanwhile." in conversation.text)
    web.suspend(conversation)
    await web.open(conversation)
    await web.prompt(conversation, play("text Last."))
    assert conversation.text == "First.Meanwhile.\n\nLast."
    assert conversation.methods == ["new", "resume", "resume"]


@pytest.mark.long
async def test_c_a_running_turn_continues_on_resume(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    turn = asyncio.ensure_future(
        web.prompt(conversation, play("repeat 300x10ms tick{n}. ", "text The end."))
    )
    wire = wire_of(web)
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    turn.cancel()
    await web.shutdown()
    await web.open(conversation)
    wire = wire_of(web)
    await wire.until(lambda: "The end." in conversation.text)
    missed = fold(wire, conversation.session).strip()
    first = int(missed.split(".")[0].removeprefix("tick"))
    assert missed == ticks(first, 300) + "\nThe end."
    assert ticks(1, first - 1) in conversation.text


@pytest.mark.parametrize(
    ("wrapped", "over"),
    [
        pytest.param(False, False, id="as it was, while it runs"),
        pytest.param(True, True, id="wrapped anew, after its end", marks=pytest.mark.long),
        pytest.param(True, False, id="wrapped anew, while it runs", marks=pytest.mark.long),
        pytest.param(False, True, id="as it was, after its end", marks=pytest.mark.long),
    ],
)
async def test_c_a_prompt_sent_again_joins_its_turn(
    shared: Stack, wrapped: bool, over: bool
) -> None:
    web = Mitto(shared)
    web.wraps_again = wrapped
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text Before."))
    wire = wire_of(web)
    words = play("bash echo once >> made.txt", "repeat 100x10ms tick{n}. ", "text The end.")
    turn = asyncio.ensure_future(web.prompt(conversation, words))
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    if over:
        os.kill(wire.process.pid, 19)  # so that it cannot see the end
        await eventually(lambda: states(shared, conversation) == ["done", "done"])
    wire.process.kill()
    assert await turn == "end_turn"
    assert web.wire is not wire
    assert mitto.RETRYING in conversation.text
    assert (shared.work / "made.txt").read_text() == "once\n"
    assert len(states(shared, conversation)) == 2
    assert "The end." in conversation.text
    for number in range(1, 101):
        assert f"tick{number}." in conversation.text
    # Said on purpose, the same words are a new prompt.
    assert await web.prompt(conversation, words) == "end_turn"
    assert (shared.work / "made.txt").read_text() == "once\nonce\n"


@pytest.mark.long
@pytest.mark.parametrize("killed", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
async def test_c_long_paragraph_mitto_lost_is_reshown_whole(
    shared: Stack, killed: signal.Signals
) -> None:
    web = Mitto(shared)
    web.program = mitto.OWN_PROCESS
    conversation = Conversation()
    await web.open(conversation)
    numbers = " ".join(f"word{number}" for number in range(1, 101))
    first, rest = numbers.split(" word21 ")
    words = (f"words 20ms {first}", "hang 8s", f"text word21 {rest}")
    steps = ("text Look:", "text", *words, "text", "text The end.")
    turn = asyncio.ensure_future(web.prompt(conversation, play(*steps)))
    await wire_of(web).until(lambda: "word20" in fold(wire_of(web), conversation.session))
    turn.cancel()
    await web.be_killed(killed)
    assert "word1 " not in conversation.text
    kept = conversation.text
    await web.open(conversation)
    await wire_of(web).until(lambda: "The end." in conversation.text)
    again = conversation.text.removeprefix(kept)
    assert again.replace(CONTINUED, "", 1).split() == [*numbers.split(), "The", "end."]


@pytest.mark.long
@pytest.mark.parametrize(
    ("falls_back", "killed"),
    [(False, signal.SIGKILL), (False, signal.SIGTERM), (True, signal.SIGTERM)],
)
async def test_c_code_block_mitto_lost_is_reshown_whole(
    shared: Stack, monkeypatch: pytest.MonkeyPatch, *, falls_back: bool, killed: signal.Signals
) -> None:
    """Mitto is killed inside of a code block, which it had not kept, and prompts again after it.

    If it `falls_back` from resume to load, it drops the replay.
    """
    web = Mitto(shared)
    web.program = mitto.OWN_PROCESS
    conversation = Conversation()
    await web.open(conversation)
    paces = ["words 20ms"] * 20 + ["text"] * 80
    said = [f"{pace} line{number} of the code" for number, pace in enumerate(paces, 1)]
    # The time in which it is killed and comes back, to be shown the replay that it drops.
    said.insert(20, "hang 24s" if falls_back else "hang 8s")
    steps = ("text Look:", "text", "text ```py", *said, "text ```", "text The end.")
    turn = asyncio.ensure_future(web.prompt(conversation, play(*steps)))
    wire = wire_of(web)
    await wire.until(lambda: "line20 " in fold(wire, conversation.session))
    turn.cancel()
    await web.be_killed(killed)
    assert "line1 " not in conversation.text
    kept = conversation.text
    if falls_back:
        monkeypatch.setattr(wires, "RESUME", 0.0)
    await web.open(conversation)
    assert conversation.methods == ["new", "load" if falls_back else "resume"]
    await wire_of(web).until(lambda: "The end." in conversation.text)
    lines = "".join(f"line{number} of the code\n" for number in range(1, 101))
    again = conversation.text.removeprefix(kept)
    assert (
        kept + again.replace(CONTINUED, "", 1).rstrip() == f"Look:\n\n```py\n{lines}```\nThe end."
    )
    assert f"```py\n{lines}```\n" in conversation.screen  # in one piece
    await web.prompt(conversation, play("text The next answer."))
    assert conversation.screen[-1] == "The next answer."
