"""Background tasks with strong references, and long work in steps."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")

SLICE: Final = 0.0005  # s of CPU time between two yields to the event loop


def told_elsewhere(done: asyncio.Future[Any]) -> None:
    """Callback of a task or future whose error its caller or the log is told: asyncio, which looks
    for errors that nobody has taken, says nothing of it.
    """
    if not done.cancelled():
        done.exception()


class Tasks:
    """A set of running tasks; the event loop itself keeps only weak references."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __bool__(self) -> bool:
        return bool(self._running)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """Iterate over a snapshot, as tasks remove themselves when they end."""
        return iter(list(self._running))

    def start(
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a task, in a copy of the caller's context or in `context`.

        Without a name it has that of the coroutine.
        """
        name = name or getattr(coroutine, "__qualname__", None)
        task = asyncio.get_running_loop().create_task(coroutine, name=name, context=context)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def finish(
        self, coroutine: Coroutine[Any, Any, T], begun: asyncio.Event | None = None
    ) -> T:
        """The result of the coroutine, which goes on to its end, unseen, if the caller is cancelled;
        only from when it has set `begun` on, if that is given.
        """
        task = self.start(coroutine)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if begun is not None and not begun.is_set():
                task.cancel()
            raise

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self:
            task.cancel()

    async def end(self) -> None:
        """Cancel all tasks and wait for their end; results are ignored."""
        self.cancel()
        await asyncio.gather(*self, return_exceptions=True)


class Pace:
    """Yields to the event loop between the short steps of a long loop."""

    def __init__(self, rest: Callable[[], Awaitable[None]] | None = None) -> None:
        """`rest`: awaited between steps, instead of a bare yield."""
        self.paused = False
        self._rest = rest
        self._began = time.thread_time()

    async def step(self) -> None:
        """Account for a step, and yield if the slice is used up."""
        if time.thread_time() - self._began >= SLICE:
            self.paused = True
            await (asyncio.sleep(0) if self._rest is None else self._rest())
            self._began = time.thread_time()


async def in_pieces(
    work: Generator[None, None, T], rest: Callable[[], Awaitable[None]] | None = None
) -> T:
    """Run a generator in steps, yielding to the event loop between them; returns its value.

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
