"""Threads for calls that may block, as those of a hanging disk. They do not keep the process from
ending.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

COUNT: Final = 10  # with those of the database, what `shortage.LEAST_MEMORY` has room for
GRACE: Final = 2.0  # s that calls get when their loop ends

_hanging: Final[set[threading.Thread]] = set()


class Executor(ThreadPoolExecutor):
    """An executor that does not wait for calls that hang: they are abandoned."""

    def __init__(self) -> None:
        super().__init__(COUNT, thread_name_prefix="blocking")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """Start nothing more, and wait for `GRACE` at most."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        until = time.monotonic() + (GRACE if wait else 0)
        for thread in list(self._threads):
            thread.join(max(until - time.monotonic(), 0))
            if thread.is_alive():
                _hanging.add(thread)


def started() -> Executor:
    """An executor whose threads have all been started; raises RuntimeError if one cannot start.

    Under a limit of the address space a thread may fail to start later on, and `Thread.start` never
    returns if the new thread fails before it has signalled its start: on the event loop that would
    hold up everybody.
    """
    executor = Executor()
    all_there = threading.Barrier(COUNT + 1)
    try:
        for _ in range(COUNT):
            executor.submit(all_there.wait)
    except RuntimeError:
        all_there.abort()
        raise
    all_there.wait()
    return executor


def leave(status: int) -> None:
    """End the process with this status if a call hangs, for which the interpreter would wait."""
    if any(thread.is_alive() for thread in _hanging):
        os._exit(status)
