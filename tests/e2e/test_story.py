"""The main job: a conversation survives whatever dies, with its history for the client and its
memory for Claude.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable

import pytest

from tests.e2e.harness import Client, RpcError, Stack, script, text
from tests.e2e.harness.client import ServerGone
from tests.folds import is_part, told
from tests.waiting import eventually

Death = Callable[[Stack, Client, str], Awaitable[Client]]


async def everything(stack: Stack, client: Client, session: str) -> Client:
    await stack.kill_everything()
    return await stack.start()


async def server_killed(stack: Stack, client: Client, session: str) -> Client:
    await client.kill()
    return await stack.start()


async def server_terminated(stack: Stack, client: Client, session: str) -> Client:
    assert await client.terminate() == 0
    await stack.nothing_left()
    return await stack.start()


async def input_ended(stack: Stack, client: Client, session: str) -> Client:
    assert await client.close() == 0
    await stack.nothing_left()
    return await stack.start()


async def worker_killed(stack: Stack, client: Client, session: str) -> Client:
    stack.worker(session).kill()
    await stack.no_worker()
    return client


async def claude_killed(stack: Stack, client: Client, session: str) -> Client:
    claude = stack.claude(session)
    assert claude is not None
    claude.kill()
    await stack.no_worker()
    return client


async def fork_server_killed(stack: Stack, client: Client, session: str) -> Client:
    stack.fork_server(client).kill()
    return client


async def fork_server_and_worker_killed(stack: Stack, client: Client, session: str) -> Client:
    worker, server = stack.worker(session), stack.fork_server(client)
    server.kill()
    worker.kill()
    await client.until(lambda: not any(one.session for one in stack.processes()))
    return client


async def evicted(stack: Stack, client: Client, session: str) -> Client:
    await stack.no_worker()
    return client


DEATHS: list[Death] = [
    everything,
    server_killed,
    server_terminated,
    input_ended,
    worker_killed,
    claude_killed,
    fork_server_killed,
    fork_server_and_worker_killed,
    evicted,
]
# By the death of everything; the others by crash tests, and by tests of failed turns and of the pool.
ORDINARY = (everything,)

FIRST = script(
    "thinking I should make the directory.", "text Let me make it.", "bash mkdir made && echo done",
    "write note.txt <<< one\\ntwo", "text It is made: the first answer.",
)  # fmt: skip


@pytest.mark.parametrize(
    "death",
    [pytest.param(one, marks=() if one in ORDINARY else pytest.mark.long) for one in DEATHS],
    ids=lambda death: death.__name__,
)
async def test_conversation_survives_every_kill(stack: Stack, death: Death) -> None:
    client = await stack.start(PYKOCLAW_IDLE_TIMEOUT="0.3" if death is evicted else "1000")
    session = await client.new(stack.work)
    assert (await client.prompt(session, FIRST))["stopReason"] == "end_turn"
    live = client.of(session)
    assert [one["sessionUpdate"] for one in live].count("tool_call") == 2

    client = await death(stack, client, session)
    await client.load(session, stack.work)

    replay = client.of(session)
    assert told(one for one in replay if one["sessionUpdate"] != "user_message_chunk") == told(live)
    assert client.text(session, "user_message_chunk") == FIRST
    assert replay[0]["sessionUpdate"] == "user_message_chunk"
    places = [one["_meta"]["pykoclaw.dev/seq"] for one in replay]
    # That a call is allowed is not told to clients that show nothing but its first title.
    rows = {row["seq"] for row in stack.log(session) if row["kind"] != "tool_progressed"}
    assert rows <= set(places), "rows may fold meanwhile"
    usage = [one for one in (live[-1], replay[-1]) if one["sessionUpdate"] == "usage_update"]
    assert len(usage) == 2
    assert usage[0] == usage[1]

    second = await client.prompt(session, text("The second answer."))
    assert second["stopReason"] == "end_turn"
    assert client.text(session).endswith("The second answer.")
    asked = stack.asked()[-1]
    assert asked["session"] == session
    assert asked["user_texts"] == [FIRST, text("The second answer.")]
    said = " ".join(
        message["text"] for message in asked["messages"] if message["role"] == "assistant"
    )
    assert "Let me make it." in said
    assert "It is made: the first answer." in said
    assert (stack.work / "note.txt").read_text() == "one\ntwo"


@pytest.mark.parametrize(
    "death", [everything, worker_killed, evicted], ids=lambda death: death.__name__
)
@pytest.mark.long
async def test_resume_has_the_memory_without_the_history(stack: Stack, death: Death) -> None:
    client = await stack.start(PYKOCLAW_IDLE_TIMEOUT="0.3" if death is evicted else "1000")
    session = await client.new(stack.work)
    await client.prompt(session, text("The first answer."))
    # What the client has seen is written a moment later; after that it is not shown again.
    await eventually(
        lambda: stack.rows(
            "SELECT 1 FROM acp_cursors c JOIN acp_sessions s USING (acp_session_id)"
            " WHERE c.seq = (SELECT MAX(seq) FROM acp_log WHERE acp_log.log_key = s.log_key)"
        )
    )

    client = await death(stack, client, session)
    client.updates.clear()
    assert set(await client.resume(session, stack.work)) == {"modes", "models", "configOptions"}
    assert client.of(session) == []
    await client.prompt(session, text("The second answer."))
    assert client.text(session) == "The second answer."
    launched = [line for line in client.log.read_text().splitlines() if '"worker_launched"' in line]
    assert json.loads(launched[-1])["resume"] is True
    assert stack.asked()[-1]["user_texts"] == [
        text("The first answer."),
        text("The second answer."),
    ]


@pytest.mark.long
@pytest.mark.parametrize("opening", ["load", "resume"])
async def test_session_that_was_never_prompted(stack: Stack, opening: str) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    await stack.kill_everything()

    client = await stack.start()
    await (client.load if opening == "load" else client.resume)(session, stack.work)
    assert client.of(session) == []
    await client.prompt(session, text("At last."))
    assert client.text(session) == "At last."
    assert stack.asked()[-1]["session"] == session


@pytest.mark.long
@pytest.mark.parametrize("moment", ["before the first byte", "in the middle of the answer"])
async def test_everything_is_killed_in_the_first_turn(stack: Stack, moment: str) -> None:
    slow = (
        script("hang 60s") if moment.startswith("before") else script("repeat 2000x20ms word{n} ")
    )
    client = await stack.start()
    session = await client.new(stack.work)
    pending = client.prompting(session, slow)
    if moment.startswith("before"):
        await client.until(stack.asked)
    else:
        await client.until(lambda: "word3" in client.text(session))
    await stack.kill_everything()
    with pytest.raises(ServerGone):
        await pending
    live = client.of(session)

    client = await stack.start()
    await client.load(session, stack.work)
    replay = client.of(session)
    assert client.text(session, "user_message_chunk") == slow
    assert is_part(
        told(live), told(one for one in replay if one["sessionUpdate"] != "user_message_chunk")
    )
    assert "This turn ended with an error" in client.text(session)
    (turn,) = stack.rows("SELECT state FROM acp_turns")
    assert turn["state"] == ("unknown" if moment.startswith("before") else "failed")

    assert (await client.prompt(session, text("It goes on.")))["stopReason"] == "end_turn"
    assert client.text(session).endswith("It goes on.")
    asked = stack.asked()
    newest = [one["user_texts"][-1] for one in asked]
    assert newest == [slow, text("It goes on.")], "the interrupted prompt was sent again by itself"


@pytest.mark.long
async def test_conversation_survives_many_restarts(stack: Stack) -> None:
    """Three lives; each adds a turn, each client sees all turns before it, Claude knows
    them all.
    """
    client = await stack.start()
    session = await client.new(stack.work)
    prompts: list[str] = []
    for life in range(3):
        prompts.append(text(f"Answer {life}."))
        await client.prompt(session, prompts[-1])
        live = client.of(session)
        await stack.kill_everything()
        client = await stack.start()
        await client.load(session, stack.work)
        assert client.text(session, "user_message_chunk") == "".join(prompts)
        assert client.text(session) == "".join(f"Answer {one}." for one in range(life + 1))
        assert is_part(told(live), told(client.of(session)))
    assert stack.asked()[-1]["user_texts"] == prompts


async def test_unknown_session_is_an_error(shared: Stack) -> None:
    client = await shared.start()
    unknown = "00000000-0000-4000-8000-000000000000"
    for method in ("session/load", "session/resume", "session/prompt", "session/close"):
        params = {
            "sessionId": unknown,
            "cwd": str(shared.work),
            "mcpServers": [],
            "prompt": [{"type": "text", "text": "x"}],
        }
        with pytest.raises(RpcError) as refused:
            await client.call(method, **params)
        assert (refused.value.code, refused.value.data) == (-32002, {"sessionId": unknown})


@pytest.mark.long
async def test_session_is_kept_once_new_has_answered(stack: Stack) -> None:
    """The row is committed before the answer: a SIGKILL right after it changes nothing."""
    client = await stack.spawn()
    message, created = client.request("session/new", cwd=str(stack.work), mcpServers=[])
    hello, _ = client.request("initialize", protocolVersion=1)
    client.send(hello, message)
    session = (await client.answer(created))["sessionId"]
    os.kill(client.process.pid, signal.SIGKILL)
    await client.gone()
    (row,) = stack.rows("SELECT * FROM acp_sessions")
    assert (row["acp_session_id"], row["cwd"], json.loads(row["additional_directories"])) == (
        session,
        str(stack.work),
        [],
    )
    client = await stack.start()
    await client.load(session, stack.work)
    assert client.of(session) == []
    await client.prompt(session, text("At last."))
    assert client.text(session) == "At last."
