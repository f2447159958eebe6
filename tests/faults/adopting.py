"""Turns that outlive their daemon."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.harness import Client, Stack, script
from tests.e2e.harness.processes import Process
from tests.waiting import eventually

COUNT: Final = 400


TURN: Final = script(f"repeat {COUNT}x20ms w{{n}}.")  # a busy machine kills it in time, too


WHOLE: Final = [f"w{n}" for n in range(1, COUNT + 1)]


LONG: Final = script("repeat 5000x5ms w{n}.")  # which nothing lets come to its end


async def alone(
    stack: Stack, prompt: str = TURN, environment: dict[str, str] | None = None
) -> tuple[str, Client, Process]:
    """A turn whose front and daemon are SIGKILLed in the middle; its session, what the client saw,
    its worker.
    """
    await _daemon(stack, environment or {})
    client = await stack.front()
    session = await client.new(stack.work)
    client.prompting(session, prompt)
    await client.until(lambda: len(words(client, session)) >= 20)
    worker = stack.worker(session)
    os.killpg(client.process.pid, signal.SIGKILL)
    await stack.end_daemon(signal.SIGKILL)
    return session, client, worker


async def _daemon(stack: Stack, environment: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setitem(stack.environment, name, value)
        await stack.daemon()


def words(client: Client, session: str) -> list[str]:
    return re.findall(r"w\d+", client.text(session))


def turn(stack: Stack) -> dict[str, Any]:
    (row,) = stack.rows("SELECT state, stop_reason, error FROM acp_turns")
    return row


async def history(stack: Stack, session: str) -> Client:
    """A front, which starts the next daemon, and everything that it is told of the session until
    the turn has ended.
    """
    client = await stack.front()
    await eventually(lambda: turn(stack)["state"] not in ("queued", "dispatched", "running"), 60)
    await client.load(session, stack.work)
    return client


def spools(stack: Stack) -> list[Path]:
    return list((stack.home / ".local/state/pykoclaw").glob("*/spool/*.ndjson"))
