"""Mitto is asked for permission: one request at a time, answered by itself or by its user.

mitto_helpers.py lists what the numbers and letters in the names of the tests stand for.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.harness import Stack
from tests.e2e.mitto import Conversation, Mitto
from tests.e2e.mitto_helpers import play, wire_of


async def test_8_permission_requests_come_one_at_a_time(shared: Stack) -> None:
    web = Mitto(shared)
    web.approves = False
    conversation = Conversation()
    await web.open(conversation)
    files = [
        shared.root / name for name in ("one", "two", "three")
    ]  # outside of the session's directory
    for file in files:
        file.write_text("secret\n")
    reads = [f"{'& ' if at else ''}read {file}" for at, file in enumerate(files)]
    turn = asyncio.ensure_future(web.prompt(conversation, play(*reads, "text Done.")))
    wire = wire_of(web)
    asked = "SELECT 1 FROM acp_permissions WHERE acp_session_id = ?"
    await wire.until(lambda: len(shared.rows(asked, conversation.session)) == len(files))
    ids = []
    for number in range(1, len(files) + 1):
        question = await wire.until(lambda: web.question(conversation))
        assert question is not None
        assert len(wire.questions) == number
        ids.append(question["params"]["toolCall"]["toolCallId"])
        web.answer(conversation, "allow_once")
    assert await turn == "end_turn"
    assert web.replaced == 0
    assert sorted(ids) == sorted(conversation.tools)
    assert [statuses[-1] for statuses in conversation.tools.values()] == ["completed"] * len(files)


@pytest.mark.long
async def test_8_without_a_browser_permission_waits_for_one(shared: Stack) -> None:
    """`cancelled` says that nobody is there; opening a tab sends nothing, the next request does."""
    web = Mitto(shared)
    web.approves = web.browser = False
    conversation = Conversation()
    await web.open(conversation)
    turn = asyncio.ensure_future(
        web.prompt(conversation, play("bash mkdir made", "text So be it."))
    )
    wire = wire_of(web)
    policy = "SELECT policy FROM acp_permissions WHERE acp_session_id = ? AND deadline IS NOT NULL"
    await wire.until(lambda: shared.rows(policy, conversation.session))
    assert not turn.done()
    web.browser = True
    await wire.call("session/set_mode", sessionId=conversation.session, modeId="default")
    await wire.until(lambda: web.question(conversation))
    web.expire(conversation)  # after its 300 s, seen or not
    await wire.call("session/set_mode", sessionId=conversation.session, modeId="default")
    await wire.until(lambda: web.question(conversation))
    web.answer(conversation, "allow_once")
    assert await turn == "end_turn"
    assert (shared.work / "made").is_dir()
    assert [statuses[-1] for statuses in conversation.tools.values()] == ["completed"]
    assert len(wire.questions) == 3
    assert web.replaced == 0


@pytest.mark.long
async def test_8_stop_cancels_a_pending_permission_request(shared: Stack) -> None:
    web = Mitto(shared)
    web.approves = False
    conversation = Conversation()
    await web.open(conversation)
    turn = asyncio.ensure_future(
        web.prompt(conversation, play("bash mkdir made", "text Never said."))
    )
    await wire_of(web).until(lambda: web.question(conversation))
    web.stop(conversation)
    assert await turn == "cancelled"
    assert not (shared.work / "made").exists()


async def test_9_automatic_approval_is_never_for_always(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("bash mkdir one", "bash mkdir two", "text Done."))
    offered = [
        [option["kind"] for option in question["params"]["options"]]
        for question in wire_of(web).questions
    ]
    assert len(offered) == 2
    assert all("allow_always" in kinds for kinds in offered)
    rows = shared.rows(
        "SELECT option_id FROM acp_permissions WHERE acp_session_id = ?", conversation.session
    )
    assert [row["option_id"] for row in rows] == ["allow_once", "allow_once"]
