"""Rounds of work that the daemon does by itself, as long as the store is open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from pykoclaw_acp.errors import StoreClosed, StoreUnavailable
from pykoclaw_acp.sessions.ports.store import Store

AFTER_FAILURE: Final = 10.0  # s

log: Final = structlog.get_logger()


async def until_closed(
    store: Store,
    changed: asyncio.Event,
    act: Callable[[], Awaitable[float]],
    *,
    damaged: str,
    failed: str,
    action: str,
) -> None:
    """Call `act` when the store can be written, then again after the pause (s) that it returns, or when
    `changed` is set, until cancelled or until the store is closed. What fails is logged as `action`, in
    the words `failed`, or `damaged` if it needs a damaged part of the store, and is tried again later.
    """
    unread = ""
    while True:
        changed.clear()
        try:
            await store.writable()
            pause = await act()
            unread = ""
        except StoreClosed:
            return
        except StoreUnavailable as error:
            if error.retryable:
                continue
            if error.reason != unread:  # once, as it stays
                log.exception(damaged, action=action)
            unread = error.reason
            await asyncio.sleep(AFTER_FAILURE)  # each try keeps everybody from writing
            continue
        except Exception:
            log.exception(failed, action=action)
            pause = AFTER_FAILURE
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await changed.wait()
