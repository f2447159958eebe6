"""What has to be done whatever it meets: it is tried again until it succeeds, or this program ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Final, TypeVar

import structlog

from pykoclaw_acp.errors import StoreClosed

T = TypeVar("T")

FIRST_PAUSE: Final = 0.1  # s until the second try; each time twice as long
LONGEST_PAUSE: Final = 10.0  # s

log: Final = structlog.get_logger()


async def until_done(
    act: Callable[[], Awaitable[T]],
    what: str,
    *,
    final: tuple[type[Exception], ...] = (),
    hurry: asyncio.Event | None = None,
) -> T:
    """What `act` returns at last; `what` says in the log what failed, at the first, second, fourth, eighth try.

    Raises StoreClosed, and what is `final`. When `hurry` is set the next try comes at once.
    """
    pause = FIRST_PAUSE
    for tries in count(1):
        hurried = hurry is not None and hurry.is_set()
        try:
            return await act()
        except Exception as error:
            if isinstance(error, (StoreClosed, *final)):
                raise
            if tries & (tries - 1) == 0:  # so that a fault of days costs some twenty lines
                log.exception(what, action="tried_again", tries=tries, pause=pause)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await (asyncio.sleep(pause) if hurry is None or hurried else hurry.wait())
        pause = min(2 * pause, LONGEST_PAUSE)
    raise AssertionError("unreachable")
