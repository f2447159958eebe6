"""Threads for calls that may block, all started at once.

Under a limit of the address space a thread may fail to start later on, and `Thread.start` never
returns if the new thread fails before it has signalled its start: on the event loop that would
hold up everybody.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

COUNT: Final = 10  # with those of the database, what `shortage.LEAST_MEMORY` has room for


def started() -> ThreadPoolExecutor:
    """An executor that starts no further thread; raises RuntimeError if a thread cannot start."""
    executor = ThreadPoolExecutor(COUNT, thread_name_prefix="blocking")
    all_there = threading.Barrier(COUNT + 1)
    try:
        for _ in range(COUNT):
            executor.submit(all_there.wait)
    except RuntimeError:
        all_there.abort()
        raise
    all_there.wait()
    return executor
