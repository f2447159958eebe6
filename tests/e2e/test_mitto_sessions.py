"""Mitto makes sessions, of users and of its own, sets their modes and models, and withdraws calls.

mitto_helpers.py lists what the numbers and letters in the names of the tests stand for.
"""

from __future__ import annotations

import asyncio
import json
import os
import time

import pytest

from tests.e2e.harness import RpcError, Stack, text
from tests.e2e.mitto import Conversation, Mitto, Overdue, mitto, wrapping
from tests.e2e.mitto import wire as wires
from tests.e2e.mitto_helpers import AT_ONCE, ENDLESS, claudes, fold, listed, play, wire_of
from tests.waiting import eventually


@pytest.mark.long
@pytest.mark.parametrize("method", ["new", "resume", "load"])
async def test_3_commands_are_sent_after_the_answer(stack: Stack, web: Mitto, method: str) -> None:
    """Not before the answer, and not in the 20 ms after it."""
    first = Conversation()
    await web.open(first)
    await web.prompt(first, play("text The first worker says which commands there are."))
    assert "compact" in first.commands
    await web.shutdown()
    web.methods = [method]
    conversation = Conversation() if method == "new" else first
    conversation.commands = []
    await web.open(conversation)
    await wire_of(web).until(lambda: conversation.commands)
    assert conversation.methods[-1] == method
    assert conversation.commands == sorted(conversation.commands)
    assert "compact" in conversation.commands
    assert claudes(stack) in ([], [first.session])  # that of the first turn


async def test_4_modes_and_models_are_offered(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    assert conversation.modes is not None
    assert conversation.models is not None
    modes = {mode["id"] for mode in conversation.modes["availableModes"]}
    models = {model["modelId"] for model in conversation.models["availableModels"]}
    assert {"default", "acceptEdits", "plan"} <= modes
    assert len(models) > 1
    assert conversation.modes["currentModeId"] in modes
    assert conversation.models["currentModelId"] in models
    assert all(model["name"] for model in conversation.models["availableModels"])


@pytest.mark.long
async def test_7_a_withdrawn_new_session_is_not_listed(stack: Stack, web: Mitto) -> None:
    """It was given up by `$/cancel_request`: nobody sees the orphan."""
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text A real conversation."))
    wire = wire_of(web)
    given_up, answer = wire.request("session/new", cwd=str(stack.work), mcpServers=[])
    wire.send(
        given_up,
        {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": given_up["id"]}},
    )
    await asyncio.wait([answer], timeout=wires.NEW)
    error = answer.exception()
    if error is None:  # it was there before it could be given up
        assert answer.result()["sessionId"] not in listed(stack)
    else:
        assert isinstance(error, RpcError)
        assert error.code == -32800
    assert listed(stack) == [conversation.session]
    assert wire.unplaced == []


@pytest.mark.long
async def test_7_overdue_calls_are_withdrawn(stack: Stack, web: Mitto) -> None:
    """The daemon hangs for longer than Mitto waits; Mitto withdraws a call after its next one."""
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text A real conversation."))
    wire, pid = wire_of(web), stack.daemon_pid()
    assert pid is not None
    os.kill(pid, 19)
    try:
        with pytest.raises(Overdue):
            await wire.timed(
                0.2, "session/resume", sessionId=conversation.session, cwd=str(stack.work)
            )
        with pytest.raises(Overdue):
            await wire.timed(0.2, "session/new", mcpServers=[], cwd=str(stack.work))
    finally:
        os.kill(pid, 18)
    made = await wire.timed(25, "session/new", mcpServers=[], cwd=str(stack.work))
    cancelled = [
        message["params"]["requestId"]
        for message in wire.sent
        if message.get("method") == "$/cancel_request"
    ]
    assert len(cancelled) == 2
    assert listed(stack) == [conversation.session]
    assert await web.prompt(conversation, play("text It goes on.")) == "end_turn"
    assert made["sessionId"] not in listed(stack)
    assert wire.unplaced == []


@pytest.mark.long
async def test_13_helper_sessions_have_no_listing_or_process(stack: Stack, web: Mitto) -> None:
    conversation = Conversation()
    made: list[str] = []
    while len(made) < len(wrapping.AUXILIARY):
        await web.open(conversation)
        made += web.auxiliary
        assert claudes(stack) == []
        await web.shutdown()
    assert len(set(made)) == len(made)
    del made[len(wrapping.AUXILIARY) :]
    await web.open(conversation)
    await web.prompt(conversation, play("text A real conversation."))
    for session, beginning in zip(made, wrapping.AUXILIARY, strict=True):
        await wire_of(web).timed(10, "session/resume", sessionId=session, cwd=str(stack.work))
        assert await web.help_itself(session, f"{beginning} {text('A title.')}") == "end_turn"
    assert listed(stack) == [conversation.session]
    await eventually(lambda: claudes(stack) == [conversation.session])


@pytest.mark.long
async def test_13_helper_sessions_are_pruned_but_resumable(stack: Stack) -> None:
    web, conversation = Mitto(stack, PYKOCLAW_PRUNE_AFTER="0.5"), Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text A real conversation."))
    helper, unused = web.auxiliary[:2]
    await web.help_itself(helper, f"{wrapping.TITLE} {text('A title.')}")
    await web.shutdown()
    pruned = "SELECT acp_session_id AS id FROM acp_sessions WHERE pruned_at IS NOT NULL"
    await eventually(lambda: {helper, unused} <= {row["id"] for row in stack.rows(pruned)})
    assert stack.log(helper) == []
    assert conversation.session not in {row["id"] for row in stack.rows(pruned)}
    await web.open(conversation)
    for session in (helper, unused):
        await wire_of(web).timed(10, "session/resume", sessionId=session, cwd=str(stack.work))
    await web.prompt(conversation, play("text It goes on."))
    assert "A real conversation." in json.dumps(stack.asked()[-1]["messages"])


@pytest.mark.long
async def test_13_prompts_do_not_wait_for_helper_sessions(stack: Stack, web: Mitto) -> None:
    """Five prompts came within 10 ms for one of the user's."""
    conversation = Conversation()
    await web.open(conversation)
    helpers = [
        web.help_itself(session, f"{wrapping.FOLLOW_UP} {text('None.')}")
        for session in web.auxiliary
    ]
    user = asyncio.ensure_future(web.prompt(conversation, play("text For the user.")))
    assert await asyncio.gather(*helpers) == ["end_turn"] * mitto.AUXILIARY
    assert await user == "end_turn"
    assert listed(stack) == [conversation.session]


async def test_14_mode_and_model_change_during_a_turn(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    wire = wire_of(web)
    turn = asyncio.ensure_future(web.prompt(conversation, ENDLESS))
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    began = time.monotonic()
    await wire.timed(AT_ONCE, "session/set_model", sessionId=conversation.session, modelId="haiku")
    await wire.timed(
        AT_ONCE, "session/set_mode", sessionId=conversation.session, modeId="acceptEdits"
    )
    assert time.monotonic() - began < AT_ONCE
    assert not turn.done()
    web.stop(conversation)
    assert await turn == "cancelled"
    await web.prompt(conversation, play("write made.txt <<< without a question", "text Done."))
    assert wire.questions == []
    await web.shutdown()
    await web.open(conversation)
    assert conversation.modes is not None
    assert conversation.models is not None
    assert (conversation.modes["currentModeId"], conversation.models["currentModelId"]) == (
        "acceptEdits",
        "haiku",
    )
    offered = {model["modelId"]: model["name"] for model in conversation.models["availableModels"]}
    assert offered["fable"] == "Fable", "Claude's own models, once a worker has run"
    assert "auto" in {mode["id"] for mode in conversation.modes["availableModes"]}


@pytest.mark.long
async def test_16_sessions_run_in_their_own_directory(stack: Stack) -> None:
    """Whatever directory and PATH the client has."""
    web = Mitto(
        stack, PATH="/usr/bin:/bin:/usr/sbin:/sbin", MITTO_WORKING_DIR="/", MITTO_ACP_SERVER="x"
    )  # launchd's
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("bash pwd > where.txt", "text Done."))
    assert (stack.work / "where.txt").read_text().strip() == str(stack.work)


@pytest.mark.long
async def test_f_leaving_plan_mode_is_reported(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    wire = wire_of(web)
    assert conversation.modes is not None
    await wire.timed(AT_ONCE, "session/set_mode", sessionId=conversation.session, modeId="plan")
    await web.prompt(conversation, play('tool ExitPlanMode {"plan": "Do it."}', "text Now I work."))
    await wire.until(
        lambda: conversation.modes and conversation.modes["currentModeId"] == "default"
    )


@pytest.mark.long
async def test_j_several_mittos_share_one_daemon(shared: Stack) -> None:
    """Two workspaces with the same command: two fronts, the same request ids."""
    webs = [Mitto(shared) for _ in range(3)]
    conversations = [Conversation() for _ in webs]
    await asyncio.gather(*(web.open(one) for web, one in zip(webs, conversations, strict=True)))
    prompts = [
        web.prompt(one, play(f"words 5ms Answer number {number} of this Mitto."))
        for number, (web, one) in enumerate(zip(webs, conversations, strict=True))
    ]
    assert await asyncio.gather(*prompts) == ["end_turn"] * len(webs)
    for number, one in enumerate(conversations):
        assert one.text == f"Answer number {number} of this Mitto."
    sessions = {one.session for one in conversations}
    assert len(sessions) == len(webs)
    for web, one in zip(webs, conversations, strict=True):  # it has sessions of its own beside
        assert sessions & {str(key) for key in wire_of(web).updates} == {one.session}
