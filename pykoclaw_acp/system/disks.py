"""Calls about directories that clients name, whose disks may not answer, as those of a network that is
down. Only those about such a disk wait for it.

A thread that hangs in the kernel cannot be taken back, so few of the threads for blocking calls
(`system/threads.py`) are given to one disk, and not all of them to such calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import structlog

from pykoclaw_acp.system import threads
from pykoclaw_acp.system.mounts import Mounts

T = TypeVar("T")

EACH: Final = 2  # calls at a time about one disk
ALL: Final = threads.COUNT - 3  # about all disks; the other threads are for the daemon's own files
WAIT: Final = 10.0  # s; a disk that has been switched off may need as long
SILENT: Final = "its disk does not answer"
MOST_LOCATED: Final = 10_000  # directories
_LOOK_AGAIN: Final = 1.0  # s

log: Final = structlog.get_logger()


async def call(path: str, function: Callable[[], T], wait: float | None = None) -> T:
    """The result of a blocking function that looks at nothing but what is at this absolute path.

    Raises TimeoutError if the disk does not answer within `wait` seconds (`WAIT`), or does not
    answer others.
    """
    return await _of_loop().call(path, function, WAIT if wait is None else wait)


async def quick_call(path: str, function: Callable[[], T]) -> T:
    """Call a function that takes less time than to hand it to a thread: at once, unless the path is on
    a disk of a network or of another process, or nobody has looked where its directory is.
    """
    disks = _of_loop()
    await disks.locate(os.path.dirname(path))
    return function() if disks.is_local(path) else await disks.call(path, function, WAIT)


def disk_of(path: str) -> str:
    """The disk of a network or of another process that the path is on, else the path itself."""
    return _of_loop().disk_of(path)


def is_local(path: str) -> bool:
    """Whether the path is on no disk whose server may be gone, as far as is known from `locate`."""
    return _of_loop().is_local(path)


async def locate(directory: str) -> None:
    """Look, once, where a directory is that may be a symbolic link. Raises TimeoutError."""
    await _of_loop().locate(directory)


def _of_loop() -> _Disks:
    loop = asyncio.get_running_loop()
    if loop not in _disks:
        _disks[loop] = _Disks()
    return _disks[loop]


@dataclass(eq=False, slots=True)
class _Call(Generic[T]):
    disk: str
    answer: asyncio.Future[T]
    hangs: bool = False


class _Disks:
    """Disks as one event loop uses them."""

    def __init__(self) -> None:
        self._mounts = Mounts()
        self._located: dict[str, str] = {}  # directories, without symbolic links
        self._all = asyncio.Semaphore(ALL)
        self._each: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()
        self._hanging: Counter[str] = Counter()

    def disk_of(self, path: str) -> str:
        """What may hang as one with the path."""
        return self._mounts.disk_of(path)

    def is_local(self, path: str) -> bool:
        """Whether the path is on no disk whose server may be gone, as far as is known."""
        directory = self._located.get(os.path.dirname(path))
        return directory is not None and all(
            self._mounts.disk_of(one) == one for one in (path, directory)
        )

    async def locate(self, directory: str) -> None:
        """Look, once, where the directory is."""
        if directory not in self._located:
            if len(self._located) >= MOST_LOCATED:
                self._located.clear()
            found = await self.call(directory, partial(os.path.realpath, directory), WAIT)
            self._located[directory] = found

    async def call(self, path: str, function: Callable[[], T], wait: float) -> T:
        loop = asyncio.get_running_loop()
        one = _Call[T](self._mounts.disk_of(path), loop.create_future())
        with contextlib.ExitStack() as ends:
            self._users[one.disk] += 1
            ends.callback(self._leave, one.disk)
            each = self._each.setdefault(one.disk, asyncio.Semaphore(EACH))
            await _acquired(each, lambda: self._hanging[one.disk] >= EACH)
            ends.callback(each.release)
            await _acquired(self._all, lambda: self._hanging.total() >= ALL)
            ends.callback(self._all.release)
            within = contextvars.copy_context()
            running = loop.run_in_executor(None, partial(within.run, function))
            overdue = loop.call_later(wait, self._hangs, one)
            ends.callback(overdue.cancel)
            running.add_done_callback(partial(self._done, one, ends.pop_all()))
        return await one.answer

    def _hangs(self, one: _Call[T]) -> None:
        one.hangs = True
        self._hanging[one.disk] += 1
        log.warning("A disk does not answer", action="disk_hangs", disk=one.disk)
        if not one.answer.done():
            one.answer.set_exception(_silent())

    def _done(self, one: _Call[T], ends: contextlib.ExitStack, running: asyncio.Future[T]) -> None:
        self._hanging[one.disk] -= one.hangs
        ends.close()
        if running.cancelled():
            one.answer.cancel()
        elif (error := running.exception()) is not None:
            if not one.answer.done():
                one.answer.set_exception(error)
        elif not one.answer.done():
            one.answer.set_result(running.result())

    def _leave(self, disk: str) -> None:
        self._users[disk] -= 1
        if not self._users[disk]:
            del self._users[disk], self._hanging[disk]
            self._each.pop(disk, None)


_disks: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Disks]] = WeakKeyDictionary()


async def _acquired(semaphore: asyncio.Semaphore, hopeless: Callable[[], bool]) -> None:
    """Acquire it; raises TimeoutError when nobody can be expected to release it."""
    while not hopeless():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_AGAIN):
                await semaphore.acquire()
                return
    raise _silent()


def _silent() -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, SILENT)
