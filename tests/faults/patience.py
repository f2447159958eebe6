"""Waits of tests that take resources away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from pykoclaw_acp.front import call as front
from tests.e2e.harness import Stack
from tests.waiting import eventually

# s; long for a busy machine, and below the ten seconds in which a client such as Mitto gives up.
# What keeps the daemon from writing stays until all was answered.
ANSWER: Final = 8.0


async def ask(stack: Stack, method: str, **params: Any) -> Any:
    """The daemon's answer to a command."""
    asking = asyncio.to_thread(front.call, stack.places, f"_pykoclaw.dev/{method}", params)
    return await asyncio.wait_for(asking, ANSWER)


async def condition(stack: Stack) -> str:
    """What the daemon says of its store; it is asked as `status` asks."""
    return str((await ask(stack, "status"))["database"]["condition"])


async def until(stack: Stack, state: str) -> None:
    """Wait until the daemon says that its store is in this state."""

    def look() -> bool | Awaitable[bool]:
        return _compared(stack, state)

    await eventually(look)


async def _compared(stack: Stack, state: str) -> bool:
    try:
        return await condition(stack) == state
    except front.DaemonAbsent:  # one that served without its store makes way for one with it
        return False
