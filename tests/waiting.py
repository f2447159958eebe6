"""Waiting for a condition: the one place of the tests where time passes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")

MOMENT = 0.3  # s in which what must not happen would have happened
_SHORTEST, _LONGEST = 0.01, 0.05  # seconds between two looks; they cost time that others need


async def eventually(condition: Callable[[], T | Awaitable[T]], timeout: float = 60) -> T:
    """Look again and again until `condition` is true, and return what it gave. AssertionError after
    `timeout` seconds.
    """
    begun = time.monotonic()
    while True:
        result = condition()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return cast("T", result)
        assert time.monotonic() < begun + timeout, _complaint(condition, timeout)
        await asyncio.sleep(_pause(begun))


async def within(condition: Callable[[], object], seconds: float) -> bool:
    """Look again and again until `condition` is true, or until so many seconds are over; whether
    it was.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(_SHORTEST)
    return True


async def not_within(condition: Callable[[], object], seconds: float = MOMENT) -> None:
    """Let time pass in which what must not happen would happen; AssertionError if it does. Only for
    what no other thing comes after, which could be waited for.
    """
    assert not await within(condition, seconds), "it happened, and must not"


def running(name: str) -> list[asyncio.Task[object]]:
    """Tasks of this name that have not ended."""
    return [task for task in asyncio.all_tasks() if task.get_name() == name]


def pass_loop_time(seconds: float) -> None:
    """Set the running loop's clock forward: what is due by then is done in its next round."""
    loop = asyncio.get_running_loop()
    shown = loop.time
    loop.time = lambda: shown() + seconds  # type: ignore[method-assign]


def eventually_sync(condition: Callable[[], T], timeout: float = 60) -> T:
    """`eventually` for tests and threads without an event loop."""
    begun = time.monotonic()
    while True:
        if result := condition():
            return result
        assert time.monotonic() < begun + timeout, _complaint(condition, timeout)
        time.sleep(_pause(begun))


def _pause(begun: float) -> float:
    """A twentieth of the time that has gone by: who waits long notices the end that much later."""
    return min(_LONGEST, max(_SHORTEST, (time.monotonic() - begun) / 20))


def _complaint(condition: Callable[[], object], timeout: float) -> str:
    name = getattr(condition, "__qualname__", repr(condition))
    line = getattr(getattr(condition, "__code__", None), "co_firstlineno", "?")
    return f"{name} (line {line}) did not become true within {timeout} s"
