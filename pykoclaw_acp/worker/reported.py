"""What a worker has reported, for those that wait for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

REPORT_WAIT: Final = 2.0  # s; a question can overtake the message that reports its tool call


class Reported:
    """Told when something was reported."""

    def __init__(self) -> None:
        self._news = asyncio.Condition()

    async def told(self) -> None:
        """Something was reported."""
        async with self._news:
            self._news.notify_all()

    async def until(self, reported: Callable[[], bool]) -> None:
        """Wait for it, as long as a message may be late."""
        async with self._news:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_WAIT):
                    await self._news.wait_for(reported)
