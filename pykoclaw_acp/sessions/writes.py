"""Waiting for what is written, which a client that reads does not wait for while nothing can be."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.sessions.ports.store import Store

LOOK: Final = 0.05  # s between two looks at whether the database can be written


def is_writable(store: Store) -> bool:
    """Whether the database can be written, as far as is known."""
    try:
        store.require_writable()
    except StoreUnavailable:
        return False
    return True


async def wait(store: Store, writing: asyncio.Task[Any], limit: float = float("inf")) -> None:
    """Wait for a task that writes, while the database can be written; for at most `limit` s. The task
    has begun then, and goes on.
    """
    deadline = asyncio.get_running_loop().time() + limit
    await asyncio.sleep(0)
    while not writing.done() and is_writable(store):
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            return
        await asyncio.wait([writing], timeout=min(LOOK, left))
