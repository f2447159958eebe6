"""Permission questions while clients, front and daemon come and go; with the real CLI."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.e2e.harness import Client, Stack, script
from tests.e2e.harness.client import selected
from tests.waiting import eventually

MAKE = script("bash mkdir made", "text And then?")


async def asked(stack: Stack) -> tuple[Client, str, Any]:
    """A client behind a front that was asked and does not answer; the session, and the prompt's
    answer to come.
    """
    client = await stack.front()
    client.permit = lambda _: None
    session = await client.new(stack.work)
    answer = client.prompting(session, MAKE)
    await client.until(lambda: client.questions)
    return client, session, answer


def row(stack: Stack) -> dict[str, Any]:
    (found,) = stack.rows("SELECT policy, outcome, option_id, answered_by FROM acp_permissions")
    return found


def state(stack: Stack) -> str:
    return str(stack.rows("SELECT state FROM acp_turns ORDER BY created_at")[-1]["state"])


@pytest.mark.parametrize(
    ("policy", "outcome", "made"),
    [("deny", "denied", False), ("allow", "selected", True)],
)
@pytest.mark.long
async def test_the_policy_answers_when_the_client_is_gone(
    stack: Stack, policy: str, outcome: str, made: bool
) -> None:
    await stack.daemon(PYKOCLAW_AWAY_POLICY=policy)
    client, session, _ = await asked(stack)
    await client.kill()
    await eventually(lambda: state(stack) == "done")
    assert (row(stack)["outcome"], row(stack)["answered_by"]) == (outcome, "policy")
    assert (stack.work / "made").is_dir() == made
    later = await stack.front()
    await later.load(session, stack.work)
    assert later.text(session) == "And then?"
    assert later.questions == []


@pytest.mark.long
async def test_parked_question_survives_worker_and_daemon_restart(stack: Stack) -> None:
    await stack.daemon(PYKOCLAW_AWAY_POLICY="park")
    client, session, _ = await asked(stack)
    await client.kill()
    await eventually(lambda: state(stack) == "cancelled")
    await stack.no_worker()
    assert (row(stack)["policy"], row(stack)["outcome"]) == ("parked", None)
    await stack.end_daemon(signal.SIGKILL)

    later = await stack.front()
    later.permit = lambda _: None
    await later.load(session, stack.work)
    assert "still waits" in later.text(session)
    (question,) = await later.until(lambda: later.questions)
    assert question["params"]["toolCall"]["title"] == "mkdir made"
    later.reply(question, selected("reject_once"))
    await eventually(lambda: state(stack) == "done")
    assert row(stack)["outcome"] == "selected"
    told = str(stack.asked()[-1])
    assert "answer: refused." in told
    assert not (stack.work / "made").exists()
    await later.until(
        lambda: "a question waited for an answer" in later.text(session, "user_message_chunk")
    )


async def test_parked_question_of_a_subagent_stops_it(stack: Stack) -> None:
    """Its turn has ended, or one of Claude's own has begun with the question: only the subagent waits
    for the answer, and keeps the worker busy.
    """
    await stack.daemon(PYKOCLAW_AWAY_POLICY="park")
    client = await stack.front()
    client.permit = lambda _: None
    session = await client.new(stack.work)
    agent = {"description": "look", "subagent_type": "claude", "prompt": MAKE}
    work = script(f"tool Agent {json.dumps(agent)}", "text It looks.", "stop end_turn")
    await client.prompt(session, work)
    await client.until(lambda: client.questions)
    await client.kill()
    later = await stack.front()
    later.permit = lambda _: None
    ended = "Stopped: nobody was there to be asked."

    async def told() -> bool:
        await later.load(session, stack.work)
        return ended in json.dumps(later.of(session, "tool_call_update"))

    await eventually(lambda: row(stack)["policy"] == "parked")
    stopped: bool = await later.until(told)
    assert stopped
    assert "was stopped because nobody was there to be asked" in later.text(session)
    asked_again = await later.until(lambda: later.questions)  # at each load
    later.reply(asked_again[-1], selected("allow_once"))
    await later.until(lambda: "A subagent of yours was stopped" in str(stack.asked()[-1]))
    assert row(stack)["outcome"] == "selected"


async def test_answer_given_without_daemon_is_kept(stack: Stack) -> None:
    client, _, answer = await asked(stack)
    await stack.end_daemon(signal.SIGKILL)
    client.reply(client.questions[0], selected("allow_once"))
    assert (await client.answer(answer))["stopReason"] == "end_turn"
    assert (stack.work / "made").is_dir()
    assert len(client.questions) == 1, "asked twice"
    assert len(stack.asked()) == 2
    assert row(stack)["option_id"] == "allow_once"


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
async def test_a_question_outlives_the_daemon_and_its_client(
    stack: Stack, number: signal.Signals
) -> None:
    client, session, _ = await asked(stack)
    await client.kill()
    await stack.end_daemon(number)
    later = await stack.front()
    later.permit = lambda _: selected("allow_once")
    await later.load(session, stack.work)
    await eventually(lambda: state(stack) == "done")
    assert [one["id"] for one in later.questions] == [client.questions[0]["id"]]
    assert (stack.work / "made").is_dir()
    await later.until(lambda: later.text(session) == "And then?")


@pytest.mark.long
async def test_first_client_answer_counts_and_late_is_refused(stack: Stack) -> None:
    await stack.daemon()
    first, session, answer = await asked(stack)
    second = await stack.front()
    second.permit = lambda _: None
    await second.load(session, stack.work)
    (question,) = await second.until(lambda: second.questions)
    second.reply(question, selected("reject_once"))
    assert (await first.answer(answer))["stopReason"] == "end_turn"
    await first.until(lambda: first.withdrawn == [question["id"]])
    first.reply(first.questions[0], selected("allow_once"))
    log = stack.root / "daemon.log"
    await eventually(lambda: "answer_late" in log.read_text())
    assert row(stack)["option_id"] == "reject_once"
    assert not (stack.work / "made").exists()
