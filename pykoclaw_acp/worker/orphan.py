"""Time that a worker without a daemon goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

IDLE: Final = 60.0  # s; without a daemon and anything to do
LOOK: Final = 1.0  # s; how often an orphan looks whether it has anything to do

log: Final = structlog.get_logger()


async def wait(grace: float, is_busy: Callable[[], bool]) -> None:
    """Return when `grace` (s) is over, or the worker has had nothing to do for IDLE seconds."""
    log.info("The daemon is gone", action="orphaned", busy=is_busy())
    now = alone_since = idle_since = asyncio.get_running_loop().time()
    while now - alone_since < grace and now - idle_since < IDLE:
        await asyncio.sleep(min(LOOK, grace / 4))
        now = asyncio.get_running_loop().time()
        if is_busy():
            idle_since = now
    log.info("No daemon came", action="orphan_ended", busy=is_busy())
