"""What pykoclaw's programs deliver to a conversation, on the real CLI: seen once, in order,
whatever happens meanwhile.
"""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from tests.double import files
from tests.double.roles import Role
from tests.e2e.harness import Client, Stack, script, text
from tests.integration.queueing import enqueue, fetch, status
from tests.waiting import eventually


def name(session: str) -> str:
    return f"acp-{session[:8]}"


async def settled(stack: Stack) -> None:
    path = stack.data / "pykoclaw.db"
    await eventually(
        lambda: not fetch(path, "SELECT id FROM delivery_queue WHERE status = 'pending'")
    )


async def conversation(stack: Stack) -> tuple[Client, str]:
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("Good morning."))
    return client, session


@pytest.mark.long
async def test_claude_knows_what_was_delivered_while_idle(stack: Stack) -> None:
    client, session = await conversation(stack)
    enqueue(stack.data / "pykoclaw.db", name(session), "The job found 3 errors.", task="12345678")
    await client.until(lambda: "The job found 3 errors." in client.text(session))
    await client.prompt(session, text("Three."))
    asked = str(stack.asked()[-1]["messages"][-1])
    assert asked.count("The job found 3 errors.") == 1
    await client.load(session, stack.work)
    assert client.text(session).count("The job found 3 errors.") == 1
    places = [client.text(session).index(part) for part in ("morning", "3 errors", "Three.")]
    assert places == sorted(places)


@pytest.mark.long
async def test_delivery_in_mid_turn_comes_after_it(stack: Stack) -> None:
    client, session = await conversation(stack)
    prompt = client.prompting(session, script("repeat 40x50ms w{n} ", "text Over."))
    await client.until(lambda: "w3 " in client.text(session))
    delivery = enqueue(stack.data / "pykoclaw.db", name(session), "news")
    await client.until(lambda: "w20 " in client.text(session))
    assert status(stack.data / "pykoclaw.db", delivery) == "pending"
    await client.answer(prompt)
    await client.until(lambda: "news" in client.text(session))
    assert client.text(session).index("Over.") < client.text(session).index("news")


@pytest.mark.long
async def test_deliveries_for_nobody_are_seen_once_whatever_dies(stack: Stack) -> None:
    """Closed, evicted, and unattached while the daemon is killed right after its commit."""
    client, session = await conversation(stack)
    await client.call("session/close", sessionId=session)
    await stack.no_worker()
    await client.close()
    path = stack.data / "pykoclaw.db"
    enqueue(path, name(session), "to a closed session;")
    await settled(stack)
    await stack.end_daemon(signal.SIGKILL)
    for number in range(3):
        enqueue(path, f"acp-{session}", f"while nobody was there {number};")
    await stack.doomed("delivery_committed:2")
    assert (
        len(fetch(path, "SELECT 1 FROM delivery_queue WHERE status = 'pending'")) == 1
    )  # killed in between
    client = await stack.front()
    await settled(stack)
    await client.load(session, stack.work)
    shown = client.text(session)
    parts = ["to a closed session;", *(f"while nobody was there {n};" for n in range(3))]
    await client.until(lambda: parts[-1] in client.text(session))
    assert [shown.count(part) for part in parts] == [1] * 4
    assert [shown.index(part) for part in parts] == sorted(shown.index(part) for part in parts)
    assert fetch(path, "SELECT DISTINCT status FROM delivery_queue") == [("delivered",)]


@pytest.mark.long
async def test_every_client_sees_deliveries_once_whatever_dies(stack: Stack) -> None:
    client, session = await conversation(stack)
    clients = [client, await stack.front()]
    await clients[1].load(session, stack.work)
    path = stack.data / "pykoclaw.db"
    parts = []
    for number in range(4):
        parts.append(f"result {number};")
        enqueue(path, name(session), parts[-1])
        if number % 2:  # also while it may be delivering
            await settled(stack)
        await _kill_daemon(stack)
    await settled(stack)
    for one in clients:
        await one.until(partial(_has, one, session, parts[-1]))
        shown = one.text(session)
        assert [shown.count(part) for part in parts] == [1] * len(parts)
        assert [shown.index(part) for part in parts] == sorted(map(shown.index, parts))


async def _kill_daemon(stack: Stack) -> None:
    """Kill it; its clients start the next one."""
    pid = stack.daemon_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: stack.daemon_pid() not in (None, pid))


def _has(client: Client, session: str, words: str) -> bool:
    return words in client.text(session)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["group", "isolated"])
async def test_result_whose_turn_was_imported_is_seen_once(stack: Stack, mode: str) -> None:
    """pykoclaw's scheduler writes what Claude said into a transcript, and enqueues it as well. Claude is
    told all of it, though a digest of the turn has only the end of a long answer.
    """
    result = f"Forty-two.{' and more' * 600}"
    client, session = await conversation(stack)
    path = stack.data / "pykoclaw.db"
    files.insert(
        path,
        "scheduled_tasks",
        id="0a1b2c3d",
        conversation=name(session),
        prompt="Look at the logs of the whole night, and say what is wrong there. "
        + text(f"<reply>{result}</reply>"),
        schedule_type="once",
        schedule_value="2000-01-01",
        context_mode=mode,
        next_run="2000-01-01",
        created_at=files.LONG_AGO,
    )
    await Role.run(stack.data, stack.environment, "scheduler", "--claude", "--rounds", "1")
    await settled(stack)
    assert fetch(path, "SELECT status FROM delivery_queue") == [("delivered",)]
    await client.until(lambda: "Forty-two." in client.text(session))
    await client.prompt(session, text("Thanks."))
    assert client.text(session).count("Forty-two.") == 1
    assert result in str(stack.asked()[-1]["messages"])
    enqueue(path, name(session), result, task="0a1b2c3d")  # of a run that left no transcript
    await client.until(lambda: client.text(session).count("Forty-two.") == 2)
