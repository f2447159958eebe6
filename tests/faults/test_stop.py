"""Stopping while the database cannot be written: what `stop` and `workers stop` would end goes on if
its end could not be stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.harness import Client, Stack, script
from tests.e2e.harness.processes import Process
from tests.e2e.harness.stack import PROGRAM
from tests.faults.adopting import WHOLE, history, turn, words
from tests.faults.limits import Locked
from tests.faults.patience import until
from tests.waiting import eventually

TURN = script(f"repeat {len(WHOLE)}x5ms w{{n}}.")


@pytest.fixture
def locked(stack: Stack) -> Iterator[Locked]:
    made = Locked(stack)
    yield made
    made.off()


async def command(stack: Stack, *arguments: str) -> tuple[int, str]:
    """Exit status of a command, and what it said."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT, env=stack.environment, cwd="/",
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, " ".join(said.decode().split())


async def in_a_turn(stack: Stack) -> tuple[Client, str, asyncio.Future[dict[str, Any]], Process]:
    """A client, its session, its running prompt, and the worker."""
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    prompt = client.prompting(session, TURN)
    await client.until(lambda: len(words(client, session)) >= 20)
    return client, session, prompt, stack.worker(session)


async def goes_on(stack: Stack, session: str, worker: Process) -> None:
    """The worker, under the next daemon, and the turn is whole."""
    after = await history(stack, session)
    assert words(after, session) == WHOLE
    assert turn(stack)["state"] == "done"
    assert worker.alive
    assert len(stack.asked()) == 1


@pytest.mark.long
async def test_stop_releases_moved_data_directory(stack: Stack) -> None:
    client, session, _, worker = await in_a_turn(stack)
    await client.kill()
    old, new = stack.data, stack.root / "moved"
    old.rename(new)
    await until(stack, "gone")
    status, said = await command(stack, "stop")
    assert status == 0, said
    assert f"was moved to {new / 'pykoclaw.db'}" in said
    assert "Workers go on without the daemon" in said
    assert not stack.find("pykoclaw_acp serve")
    stack.use(new)
    await goes_on(stack, session, worker)


@pytest.mark.long
async def test_stop_keeps_workers_while_turn_ends_unstorable(stack: Stack, locked: Locked) -> None:
    client, session, _, worker = await in_a_turn(stack)
    await client.kill()
    locked.on()
    await until(stack, "locked")
    status, said = await command(stack, "stop")
    assert status == 0, said
    assert "Another program keeps the database locked." in said
    assert stack.daemon_pid() is None
    locked.off()
    await goes_on(stack, session, worker)


async def test_unwritable_store_stops_workers_only_if_forced(stack: Stack, locked: Locked) -> None:
    client, _, prompt, worker = await in_a_turn(stack)
    locked.on()
    await until(stack, "locked")
    status, said = await command(stack, "workers", "stop")
    assert status == 1, said
    assert "Nothing can be stored now." in said
    assert worker.alive
    status, said = await command(stack, "workers", "stop", "--now")
    assert (status, said) == (0, "Ended 1 worker.")
    await eventually(lambda: not worker.alive)
    assert not prompt.done()
    locked.off()
    assert (await client.answer(prompt))["stopReason"] == "cancelled"
    assert turn(stack)["state"] == "cancelled"


@pytest.mark.long
async def test_server_of_one_client_ends_while_turn_unstorable(
    stack: Stack, locked: Locked
) -> None:
    client = await stack.connect(Client, *PROGRAM, "serve", "--stdio")
    await client.initialize()
    session = await client.new(stack.work)
    client.prompting(session, TURN)
    await client.until(lambda: len(words(client, session)) >= 20)
    locked.on()
    assert await client.close() == 0
    assert not stack.processes()
    locked.off()
    after = await history(stack, session)
    shown = words(client, session)
    assert words(after, session)[: len(shown)] == shown
    assert turn(stack)["state"] in ("cancelled", "failed"), "as far as its worker's spool tells"
