"""Reading what is kept of a turn that was accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from pykoclaw_acp.errors import StoreUnavailable, TurnFailed
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.retries import until_done

UNREADABLE: Final = (
    "The prompt was accepted, but what is kept of its turn cannot be read. {} Claude may have worked on the prompt, so"
    " do not send it again: look at what was done."
)

T = TypeVar("T")


async def read(find: Callable[[], Awaitable[T]], stopped: asyncio.Event | None = None) -> T:
    """What is read of a turn that is in the journal: no error may say now that it is not carried out.
    Raises TurnFailed if what is read is damaged, or cannot be read now and `stopped` is set.
    """

    async def look() -> T:
        try:
            return await find()
        except StoreUnavailable as error:
            if error.retryable and not (stopped is not None and stopped.is_set()):
                raise
            data = {**(error.data or {}), "turnState": TurnState.UNKNOWN}
            raise TurnFailed(UNREADABLE.format(error.reason), data) from error

    what = "A turn cannot be read now"
    return await until_done(look, what, after=StoreUnavailable, hurry=stopped)
