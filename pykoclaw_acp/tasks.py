"""Tasks that are started, and kept until they end: the event loop itself keeps only weak references to them."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")

SLICE: Final = 0.001  # s of the thread's CPU time after which others run


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


class Pace:
    """For a loop whose steps are short, and which may be long: lets all else run between them."""

    def __init__(self, rest: Callable[[], Awaitable[None]] | None = None) -> None:
        """`rest`: what to wait for between them, if not only for what waits already."""
        self.paused = False
        self._rest = rest
        self._began = time.thread_time()

    async def step(self) -> None:
        """A step is done."""
        if time.thread_time() - self._began >= SLICE:
            self.paused = True
            await (asyncio.sleep(0) if self._rest is None else self._rest())
            self._began = time.thread_time()


async def in_pieces(work: Generator[None, None, T], rest: Callable[[], Awaitable[None]] | None = None) -> T:
    """What the work returns, whose steps are short; all else goes on between them, and before what follows.

    `rest` as in Pace.
    """
    pace = Pace(rest)
    while True:
        try:
            next(work)
        except StopIteration as end:
            if pace.paused:
                await asyncio.sleep(0)
            result: T = end.value
            return result
        await pace.step()
