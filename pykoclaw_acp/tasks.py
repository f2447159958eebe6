"""Tasks that are started, and kept until they end: the event loop itself keeps only weak references to them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """Those that run."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __bool__(self) -> bool:
        return bool(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """A snapshot, since tasks that end leave."""
        return iter(list(self._running))

    def start(
        self, coroutine: Coroutine[Any, Any, T], *, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        """Run it, in a copy of the caller's context or in this one."""
        task = asyncio.get_running_loop().create_task(coroutine, context=context)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        """Cancel those that run."""
        for task in self:
            task.cancel()

    async def end(self) -> None:
        """Cancel those that run, and wait until they have ended; how they ended is nobody's business."""
        self.cancel()
        await asyncio.gather(*self, return_exceptions=True)
