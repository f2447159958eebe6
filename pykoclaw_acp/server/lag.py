"""Measure the event loop's lag, and find what causes it."""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from pykoclaw_acp.system import threads

T = TypeVar("T")

WINDOW: Final = 60  # s, of which the worst is kept
LIMIT: Final = 0.25  # s of lag that the log tells of
LOOK: Final = 0.1  # s; how often the watcher looks while the loop works
CPU_LOOK: Final = 0.02  # s; how often the CPU time is asked for, at most: a system call
SWITCH: Final = 0.0005  # s after which a thread that reads for the loop gets Python's lock
REST: Final = 20  # looks without work, after which the watcher sleeps until there is some
_PACKAGE: Final = __name__.partition(".")[0]

log: Final = structlog.get_logger()


class Doing(NamedTuple):
    """What the loop was doing: the running task, and the place in this program."""

    task: str
    place: str


class LoopLag:
    """Measures one event loop. One round of the loop is all that it does between two looks at its
    descriptors.

    What ran is seen by a thread, which looks at the loop's stack while the round goes on. It costs
    nothing while the loop is idle. A call that keeps Python's lock is seen when it returns.
    """

    def __init__(self, limit: float = LIMIT) -> None:
        self.rounds = 0  # that have begun
        self.limit = limit  # s; a round that takes longer is told of
        self._since = 0.0  # when this round began (s, monotonic); 0: the loop waits
        self._cpu = 0.0  # CPU time of its thread then, or up to CPU_LOOK before (s)
        self._cpu_asked = 0.0  # when that was (s, monotonic)
        self._worst: deque[tuple[int, float]] = deque()  # by second, in order
        self._seen: tuple[float, Doing] | None = None
        self._work = threading.Event()  # wakes the watcher
        self.resting = False  # the watcher sleeps until there is work
        self._ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def worst(self) -> float:
        """The longest round of the last minute, in seconds, including the current one."""
        going_on = time.monotonic() - self._since if self._since else 0.0
        self._forget(int(time.monotonic()))
        return max([going_on, *(seconds for _, seconds in self._worst)])

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on a new loop that is measured."""
        watcher = threading.Thread(target=self._watch, name="loop-lag", daemon=True)
        self._thread = threading.get_ident()
        try:
            with asyncio.Runner(loop_factory=self._make) as runner:
                self._loop = runner.get_loop()
                self._loop.set_default_executor(threads.started())
                watcher.start()
                return runner.run(main)
        finally:
            self._ended = True
            self._work.set()

    def _make(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(_Selector(self))

    # --- the loop's thread

    def begins(self) -> None:
        """A round begins."""
        self.rounds += 1
        now = time.monotonic()
        if now - self._cpu_asked >= CPU_LOOK:
            self._cpu, self._cpu_asked = time.thread_time(), now
        self._since = now
        if self.resting:
            self._work.set()

    def ends(self) -> None:
        """A round has ended."""
        now = time.monotonic()
        seconds = now - self._since if self._since else 0.0
        since, self._since = self._since, 0.0
        second = int(now)
        if self._worst and self._worst[-1][0] == second:
            if seconds > self._worst[-1][1]:
                self._worst[-1] = second, seconds
        else:
            self._forget(second)
            self._worst.append((second, seconds))
        if seconds >= self.limit:
            self._tell(since, seconds)

    def _tell(self, since: float, seconds: float) -> None:
        seen, self._seen = self._seen, None
        doing = seen[1] if seen is not None and seen[0] == since else Doing("unknown", "unknown")
        log.warning(
            "The event loop was held up",
            action="loop_blocked", seconds=round(seconds, 3), cpu=round(time.thread_time() - self._cpu, 3),
            task=doing.task, place=doing.place,
        )  # fmt: skip

    def _forget(self, second: int) -> None:
        while self._worst and self._worst[0][0] <= second - WINDOW:
            self._worst.popleft()

    # --- the watcher's thread

    def _watch(self) -> None:
        idle = 0
        while not self._ended:
            since = self._since
            idle = 0 if since else idle + 1
            if idle > REST:
                self._work.clear()
                self.resting = True
                if not self._since and not self._ended:
                    self._work.wait()
                self.resting = False
                idle = 0
            elif since and time.monotonic() - since >= self.limit and not self._has_seen(since):
                self._seen = since, self._look()
            time.sleep(LOOK)

    @property
    def seen(self) -> bool:
        """Whether it is known what the current round does, which is over the limit."""
        return self._has_seen(self._since)

    def _has_seen(self, since: float) -> bool:
        return self._seen is not None and self._seen[0] == since

    def _look(self) -> Doing:
        frame = sys._current_frames().get(self._thread)
        place = _place(frame)
        try:
            task = None if self._loop is None else asyncio.current_task(self._loop)
        except RuntimeError:
            task = None
        return Doing("none" if task is None else _name(task), place)


class _Selector(selectors.EpollSelector):
    """The loop asks it once a round for what has come."""

    def __init__(self, lag: LoopLag) -> None:
        super().__init__()
        self._lag = lag

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._lag.ends()
        found = super().select(timeout)
        self._lag.begins()
        return found


def run(main: Callable[[LoopLag], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end on a new loop, whose measure it is given."""
    sys.setswitchinterval(SWITCH)
    lag = LoopLag()
    coroutine = main(lag)
    try:
        return lag.run(coroutine)
    finally:
        coroutine.close()  # of a loop that could not start: it would be said never to be awaited


def _place(frame: FrameType | None) -> str:
    """The innermost function of this program on the stack."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == _PACKAGE and module != __name__:
            return f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}"
        frame = frame.f_back
    return "outside of this program"


def _name(task: asyncio.Task[Any]) -> str:
    """The task's name if it was given one, otherwise its function's."""
    name = task.get_name()
    if not name.startswith("Task-"):
        return name
    return str(getattr(task.get_coro(), "__qualname__", name))
