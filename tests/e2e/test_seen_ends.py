"""What is seen of turns that end before their time, or wait for others: live, and again."""

from __future__ import annotations

import os
import signal
from typing import Any, Final

import pytest

from pykoclaw_acp.model.prompt_text import NOTES_TAG
from pykoclaw_acp.system.turn_lock import TurnLock
from tests.e2e.harness import RpcError, Stack, script, text
from tests.e2e.harness.seen import seen, seen_again
from tests.e2e.other_programs import answers, dispatch, name_of, open_terminal
from tests.e2e.rewinds import front

EARLY: Final = "**This turn ended early.**"


async def test_early_end_is_told_live_and_again(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work, _meta={"pykoclaw.dev/maxTurns": 1})
    ended = await client.prompt(session, script("bash echo one", "text Never said."))
    assert ended["stopReason"] == "max_turn_requests"
    assert client.text(session).count(EARLY) == 1
    await seen_again(stack, client, session)


@pytest.mark.long
@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
async def test_answer_that_service_stops_says_so(stack: Stack, reason: str) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    ended = await client.prompt(session, script(*("text Cut off", f"stop {reason}") * 8))
    assert ended["stopReason"] == reason
    assert client.text(session).count(EARLY) == 1
    assert ("\n\n**Notice:** " in client.text(session)) == (reason == "refusal")
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_turn_lost_with_daemon_and_worker_says_so(stack: Stack) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    running = client.prompting(
        session, script("text I begin.", "bash touch begun; sleep 343", "text Never.")
    )
    await client.until((stack.work / "begun").exists)
    await client.until(lambda: client.of(session, "tool_call"))
    worker, daemon = stack.worker(session), stack.daemon_pid()
    assert daemon is not None
    os.kill(daemon, signal.SIGKILL)
    worker.kill()  # before the next daemon adopts it
    with pytest.raises(RpcError) as lost:
        await client.answer(running)
    assert lost.value.kind == "server_lost"
    await client.until(lambda: _states(seen(client.of(session))) == ["failed"])
    live = seen(client.of(session))
    assert "I begin." in client.text(session)
    assert client.text(session).count(lost.value.message) == 1
    await stack.end_daemon()
    again = await stack.front()
    await again.load(session, stack.work)
    assert seen(again.of(session)) == live


@pytest.mark.long
async def test_wait_and_work_of_others_are_told(stack: Stack) -> None:
    """Another program holds the lock of the conversation, and later works while a turn of ours
    runs.
    """
    client = await stack.start()
    session = await client.new(stack.work)
    name = name_of(stack, session)
    lock = TurnLock.take(str(stack.data), name, "bot")
    assert isinstance(lock, TurnLock)
    waiting = client.prompting(session, text("First."))
    await client.until(lambda: "Waiting for bot (process " in client.text(session))
    lock.release()
    await client.answer(waiting)
    gate = stack.root / "gate"
    going = client.prompting(
        session, script(f"bash while [ ! -e {gate} ]; do sleep 0.05; done", "text Ours.")
    )
    await client.until(lambda: client.of(session, "tool_call"))
    await dispatch(stack, name, text("Theirs."))
    gate.touch()
    await client.answer(going)
    await client.until(lambda: "Theirs." in client.text(session))
    await client.prompt(session, text("Last."))
    assert "at the same time.** Claude does not remember what was said there" in client.text(
        session
    )
    told = str(stack.asked()[-1]["messages"]).partition(NOTES_TAG)[2]
    assert ("Answered: Theirs." in told, "Ours." in told) == (True, False), told
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_rewind_in_a_terminal_stays(stack: Stack) -> None:
    """Claude is not told of what the user has rewound there, nor when the user rewinds here later."""
    client = await front(stack)
    session = await client.new(stack.work)
    for words in ("First.", "Second."):
        await client.prompt(session, text(words))
    (_, second) = stack.rows(
        "SELECT turn_id FROM acp_turns WHERE acp_session_id = ? ORDER BY position", session
    )
    async with open_terminal(stack, session, rewound_to=second["turn_id"]) as say:
        say(text("Theirs."))
        await client.until(lambda: "Theirs." in client.text(session))
    before, _, after = client.text(session).partition("(Rewound in a terminal: ")
    assert ("Second." in before, "Theirs." in after) == (True, True)
    for words in ("Third.", "Fourth."):
        await client.prompt(session, text(words))
        assert answers(stack) == ["First.", "Theirs."]
        assert NOTES_TAG not in str(stack.asked()[-1]["messages"])
        await client.call("_pykoclaw.dev/rewind", session=session, files=False)
    assert "at the same time" not in client.text(session)
    live = seen(client.of(session))
    await client.close()
    await stack.end_daemon()
    again = await stack.front()
    await again.load(session, stack.work)
    assert seen(again.of(session)) == live


def _states(shown: list[dict[str, Any]]) -> list[str]:
    return [one["status"] for one in shown if "toolCallId" in one]
