"""Forks, with the real CLI: history, what Claude remembers, and the source undisturbed."""

from __future__ import annotations

import pytest

from tests.e2e.forks import fork, remembered, word
from tests.e2e.harness import Stack
from tests.e2e.harness.client import RpcError
from tests.e2e.hooks import block_prompts


@pytest.mark.long
async def test_forks_remember_what_was_before_them(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    blank = (await fork(client, stack, session))["sessionId"]
    await client.prompt(session, word("one"))
    await client.prompt(session, word("two"))
    first = client.of(session, "agent_message_chunk")[0]["messageId"]
    early = (await fork(client, stack, session, _meta={"pykoclaw.dev/messageId": first}))[
        "sessionId"
    ]
    wait = "bash until [ -e over ]; do sleep 0.1; done"
    running = client.prompting(session, word("three", wait, "text Noted three."))
    await client.until(lambda: bool(client.of(session, "tool_call")))
    answer = await fork(client, stack, session)
    late = answer["sessionId"]
    assert answer["_meta"]["pykoclaw.dev/forkedFrom"]["runningTurnLeftOut"] is True
    of_fork = (await fork(client, stack, late))["sessionId"]
    with pytest.raises(RpcError, match="system prompt and the options of its source"):
        await fork(client, stack, session, _meta={"claudeCode": {"options": {"maxTurns": 3}}})
    with pytest.raises(RpcError, match="No message of this session"):
        await fork(client, stack, session, _meta={"pykoclaw.dev/messageId": "none"})

    await client.prompt(blank, word("blank"))
    assert remembered(stack) == ["Word: blank"]
    await client.prompt(late, word("late"))
    assert remembered(stack) == ["Word: one", "Word: two", "Word: late"]
    await client.prompt(of_fork, word("of a fork"))
    assert remembered(stack) == ["Word: one", "Word: two", "Word: of a fork"]
    await client.prompt(early, word("early"))
    assert remembered(stack) == ["Word: one", "Word: early"]
    (stack.work / "over").touch()
    assert (await client.answer(running))["stopReason"] == "end_turn"
    await client.prompt(session, word("four"))
    assert remembered(stack) == [f"Word: {one}" for one in ("one", "two", "three", "four")]
    await client.close()

    client = await stack.start()
    for one, said in ((early, "Noted one.Noted early."), (of_fork, "Noted one.Noted two.")):
        await client.load(one, stack.work)
        shown = client.text(one)
        assert shown.startswith(said)
        await client.prompt(one, word("later"))
        assert client.text(one).endswith("Noted later."), "nothing was imported from its transcript"
        assert client.text(one).removesuffix("Noted later.") == shown
    assert remembered(stack) == ["Word: one", "Word: two", "Word: of a fork", "Word: later"]
    await client.load(session, stack.work)
    assert client.text(session) == "Noted one.Noted two.Noted three.Noted four."


async def test_fork_remembers_though_worker_died_in_first_turn(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    await client.prompt(session, word("one"))
    copy = (await fork(client, shared, session))["sessionId"]
    running = client.prompting(copy, word("two", "bash tail -f /dev/null"))
    await client.until(lambda: bool(client.of(copy, "tool_call")))
    shared.worker(copy).kill()
    with pytest.raises(RpcError):
        await client.answer(running)
    await client.prompt(copy, word("three"))
    assert remembered(shared)[0] == "Word: one"
    assert remembered(shared)[-1] == "Word: three"


@pytest.mark.long
async def test_fork_remembers_after_hook_blocked_first_prompt(stack: Stack) -> None:
    """The CLI has copied the transcript by then, and noted there what the hook said."""
    block_prompts(stack)
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, word("forbidden"))
    stack.worker(session).kill()
    await client.prompt(session, word("one"))
    copy = (await fork(client, stack, session))["sessionId"]
    await client.prompt(copy, word("forbidden"))
    stack.worker(copy).kill()
    await client.prompt(copy, word("two"))
    assert remembered(stack) == ["Word: one", "Word: two"]
    for one in (session, copy):
        assert "does not remember" not in client.text(one)
