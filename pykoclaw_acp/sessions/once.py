"""What a request makes, once, however often it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakValueDictionary

from pykoclaw_acp.tasks import Tasks

T = TypeVar("T")


class OncePerRequest:
    """Lets requests of one key wait for each other. What one has begun goes on when its caller is gone,
    as after a broken connection: the next, which is the same request, finds what it has made.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by request
        self._tasks = Tasks()

    async def make(self, request_key: str, make: Callable[[], Awaitable[T]]) -> T:
        """What `make` returns; it looks first for what the request has made."""

        async def in_turn() -> T:
            async with self._locks.setdefault(request_key, asyncio.Lock()):
                return await make()

        return await self._tasks.finish(in_turn())
