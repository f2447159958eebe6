"""Blocking calls that may be abandoned: unlike those of asyncio's executor, they keep no program
from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


async def abandonable(function: Callable[[], T]) -> T:
    """The result of a blocking function, in a thread of its own; a cancelled caller leaves it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # None only with an error

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except Exception as caught:  # noqa: BLE001  the caller's, whatever it is
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=run, name="notify", daemon=True).start()
    return await done
