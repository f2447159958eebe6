"""A prompt, an answer or a notification over which one daemon after the other dies: the third
daemon lives.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.commands import run
from tests.e2e.harness import Stack, script, text
from tests.e2e.harness.client import RpcError, selected
from tests.waiting import eventually


@pytest.mark.parametrize(
    "step",
    [
        "worker_epoch",
        *(
            pytest.param(step, marks=pytest.mark.long)
            for step in ("worker_launched", "worker_recorded", "worker_acquired")
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


@pytest.mark.long
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
        assert "before it had accepted this request" in error.value.message
        assert stack.rows("SELECT state FROM acp_turns") == []
        assert stack.daemon_pid() not in (None, before)
    await client.load(session, stack.work)
    assert stack.asked() == []


@pytest.mark.long
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


def refused(stack: Stack) -> bool:
    log = Path(stack.places.log)
    return log.exists() and "refused unread" in log.read_text()


@pytest.mark.long
async def test_answer_two_daemons_die_over_is_reasked(stack: Stack) -> None:
    stack.environment["PYKOCLAW_CRASH_AT"] = "answer_received"
    await stack.daemon()
    client = await stack.front()
    client.permit = lambda _: None
    session = await client.new(stack.work)
    answer = client.prompting(session, script("bash mkdir made", "text And then?"))
    (question,) = await client.until(lambda: client.questions)
    first = stack.daemon_pid()
    client.reply(question, selected("allow_once"))
    again = (await client.until(lambda: client.questions[1:]))[0]
    assert again["id"] == question["id"]
    assert again["params"] == question["params"]
    await eventually(lambda: refused(stack))
    third = stack.daemon_pid()
    assert third not in (None, first)
    (row,) = stack.rows("SELECT outcome FROM acp_permissions")
    assert row == {"outcome": None}, "it is open"
    assert not (stack.work / "made").exists()
    done = await run(stack, "approve", question["id"], "--allow")
    assert done.status == 0
    assert (await client.answer(answer))["stopReason"] == "end_turn"
    assert (stack.work / "made").is_dir()
    assert stack.daemon_pid() == third, "it lives"


@pytest.mark.long
async def test_notification_two_daemons_die_over_is_dropped(stack: Stack) -> None:
    stack.environment["PYKOCLAW_CRASH_AT"] = "notification_received"
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    first = stack.daemon_pid()
    client.cancel(session)
    await eventually(lambda: refused(stack))
    third = stack.daemon_pid()
    assert third not in (None, first)
    assert (await client.prompt(session, text("Alive.")))["stopReason"] == "end_turn"
    assert stack.daemon_pid() == third, "it lives"
