"""The server is SIGKILLed at each step from "prompt received" to "response sent": nothing is lost
or run twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import Any

import pytest

from pykoclaw_acp import crash_points
from tests.e2e.harness import Stack, script, text
from tests.e2e.harness.client import Client, RpcError, ServerGone
from tests.folds import is_part, told
from tests.promises import ENDED

LONG = os.environ.get("PYKOCLAW_TEST_LONG") == "1"
MOMENTS = 7 if LONG else 1
SHORT = {"turn_end_committed"}
# Steps that a turn reaches many times; each is tried at seeded times.
REPEATED = {
    "frames_received": 20,
    "frames_committed": 20,
    "frames_acknowledged": 20,
    "update_sent": 30,
}
# How often a step was reached before the prompt: the answers of initialize and resume.
BEFORE = {"response_sent": 2}
TURN = script(
    "thinking I look first.",
    "repeat 50x8ms word{n}",
    "bash echo from-the-tool",
    "repeat 30x8ms more{n}",
)


def moments() -> list[tuple[str, int]]:
    chance = random.Random(20261120)
    chosen: list[tuple[str, int]] = []
    for step in crash_points.STEPS:
        if step in REPEATED:
            times = chance.sample(range(1, REPEATED[step]), min(MOMENTS, REPEATED[step] - 1))
            chosen += [(step, time) for time in sorted(times)]
        else:
            chosen.append((step, BEFORE.get(step, 0) + 1))
    return chosen


@pytest.mark.parametrize(
    ("step", "time"),
    [
        pytest.param(step, at, marks=() if step in SHORT else pytest.mark.long)
        for step, at in moments()
    ],
)
async def test_a_crash_at_any_step_keeps_every_promise(stack: Stack, step: str, time: int) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, text("the first answer"))
    await client.close()

    doomed = await stack.start(PYKOCLAW_CRASH_AT=f"{step}:{time}")
    await doomed.resume(session, stack.work)
    answer = doomed.prompting(session, TURN)
    responded = await _response(doomed, answer)
    if step in REPEATED and responded is not None:
        doomed.process.kill()  # so busy a machine that fewer, larger steps were enough for the turn
    await doomed.gone()
    await stack.no_worker()

    after = await stack.start()
    await after.load(session, stack.work)
    _check_turns(stack, responded)
    _check_log(stack, session, doomed, after)
    _check_model(stack)

    assert (await after.prompt(session, text("the third answer")))["stopReason"] == "end_turn"
    arrived = str(stack.asked()[-1]["messages"])
    assert "the first answer" in arrived
    assert "the third answer" in arrived


async def _response(
    client: Client, answer: asyncio.Future[dict[str, Any]]
) -> dict[str, Any] | None:
    with contextlib.suppress(ServerGone, RpcError):
        return await client.answer(answer)
    return None


def _check_turns(stack: Stack, responded: dict[str, Any] | None) -> None:
    """Each turn has ended in one state, and a client that had its answer had the truth."""
    turns = stack.rows("SELECT state, stop_reason, error FROM acp_turns ORDER BY created_at")
    assert len(turns) <= 2
    assert {turn["state"] for turn in turns} <= set(ENDED)
    if responded is not None:
        assert turns[-1]["state"] == "done"
    spoke = stack.rows(
        "SELECT t.state FROM acp_turns t JOIN acp_sessions s USING (acp_session_id) JOIN acp_log e USING (log_key)"
        " WHERE e.turn = t.position AND t.state = 'unknown' AND e.kind NOT IN ('user_message', 'failure')"
    )
    assert not spoke, "a turn of which output is known is failed, not unknown"


def _check_log(stack: Stack, session: str, doomed: Client, after: Client) -> None:
    """`seq` has no gap, what the client saw is in the log, and the log ends every tool call."""
    places = stack.covered(session)
    assert places == list(range(1, len(places) + 1))
    assert is_part(told(doomed.of(session)), told(after.of(session)))
    started = {update["toolCallId"] for update in after.of(session, "tool_call")}
    ended = {
        update["toolCallId"]
        for update in after.of(session, "tool_call_update")
        if update["status"] in ("completed", "failed")
    }
    assert started == ended


def _check_model(stack: Stack) -> None:
    """No prompt reached the model twice: each is the newest message of at most one request."""
    newest = [
        request["messages"][-1]["text"]
        for request in stack.asked()
        if request["messages"][-1]["role"] == "user" and not request["messages"][-1]["tool_results"]
    ]
    assert len(newest) == len(set(newest)), newest
