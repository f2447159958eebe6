"""Retries with exponential back-off, for work that must not be given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Final, TypeVar

import structlog

from pykoclaw_acp.errors import StoreClosed, StoreUnavailable

T = TypeVar("T")

FIRST_PAUSE: Final = 0.1  # s until the second try; each time twice as long
LONGEST_PAUSE: Final = 10.0  # s

log: Final = structlog.get_logger()


def passes(error: Exception) -> bool:
    """Whether the database, or another daemon, comes back: other work would fail now, too."""
    return isinstance(error, StoreClosed) or (
        isinstance(error, StoreUnavailable) and error.retryable
    )


async def done(
    writing: Awaitable[bool | None],
    writable: Callable[[], Awaitable[None]],
    what: str,
    *,
    action: str,
    session: str | None,
) -> bool:
    """Whether a write succeeded: others must not wait behind what is damaged, which is logged as
    `what`; `writable` waits for the store. Raises what passes.
    """
    try:
        return await writing is not False
    except Exception as error:
        if passes(error):
            raise
        log.exception(what, action=action, session=session)
        await writable()  # damage keeps everybody from writing for a moment
        return False


async def until_done(
    act: Callable[[], Awaitable[T]],
    what: str,
    *,
    after: type[Exception] = Exception,
    final: tuple[type[Exception], ...] = (),
    hurry: asyncio.Event | None = None,
) -> T:
    """Call `act` until it succeeds, and return its value. The 1st, 2nd, 4th, 8th… failure is logged
    as `what`.

    Raises StoreClosed, exceptions in `final`, and those that are not of the kind `after`. Setting
    `hurry` skips the current pause.
    """
    pause = FIRST_PAUSE
    for tries in count(1):
        hurried = hurry is not None and hurry.is_set()
        try:
            return await act()
        except after as error:
            if isinstance(error, (StoreClosed, *final)):
                raise
            if tries & (tries - 1) == 0:  # an outage of days costs some twenty lines
                with suppress(MemoryError):  # what is tried must not end with a line of the log
                    log.exception(what, action="tried_again", tries=tries, pause=pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await (asyncio.sleep(pause) if hurry is None or hurried else hurry.wait())
        pause = min(2 * pause, LONGEST_PAUSE)
    raise AssertionError("unreachable")
