"""A prompt over which one daemon after the other dies: it ends in words, and the third daemon
lives.
"""

from __future__ import annotations

import pytest

from tests.e2e.harness import Stack, text
from tests.e2e.harness.client import RpcError
from tests.waiting import eventually


@pytest.mark.parametrize(
    "step",
    [
        "worker_epoch",
        *(
            pytest.param(step, marks=pytest.mark.long)
            for step in ("worker_launched", "worker_recorded", "worker_ready")
        ),
    ],
)
async def test_second_daemon_death_before_sending_prompt_fails_it(stack: Stack, step: str) -> None:
    stack.environment["PYKOCLAW_CRASH_AT"] = step  # also of the daemons that the front starts
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    answer = client.prompting(session, text("never"))
    with pytest.raises(RpcError) as error:
        await client.answer(answer)
    assert error.value.kind == "server_died"
    assert "does not try again" in error.value.message
    (turn,) = stack.rows("SELECT state, attempts FROM acp_turns")
    assert turn == {"state": "failed", "attempts": 2}
    assert stack.asked() == []
    third = stack.daemon_pid()
    assert third is not None
    await client.load(session, stack.work)
    assert "never" in client.text(session, "user_message_chunk")
    assert "does not try again" in client.text(session)
    assert stack.daemon_pid() == third, "it lives"


@pytest.mark.parametrize("step", ["prompt_received"])
async def test_second_daemon_death_before_accepting_prompt_fails_it(
    stack: Stack, step: str
) -> None:
    stack.environment["PYKOCLAW_CRASH_AT"] = step
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    for words in ("never", "nor this"):
        before = stack.daemon_pid()
        with pytest.raises(RpcError) as error:
            await client.answer(client.prompting(session, text(words)))
        assert error.value.kind == "server_died"
        assert "is not looked at again" in error.value.message
        assert stack.rows("SELECT state FROM acp_turns") == []
        assert stack.daemon_pid() not in (None, before)
    await client.load(session, stack.work)
    assert stack.asked() == []


async def test_restart_during_worker_start_is_not_counted(stack: Stack) -> None:
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    answer = client.prompting(session, text("Three daemons later."))
    for _ in range(3):
        await eventually(lambda: stack.rows("SELECT 1 FROM acp_turns"))
        await stack.end_daemon()
        await eventually(stack.daemon_pid)  # the front's
    assert (await client.answer(answer))["stopReason"] == "end_turn"
    assert len(stack.asked()) == 1
