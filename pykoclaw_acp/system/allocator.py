"""How the C library keeps large blocks of memory: each in a mapping of its own, which grows without
being copied.

By itself glibc puts blocks of up to 32 MiB into its heap once such a one was freed. A line of a
client that grows there is copied as a whole now and then, in one call, which takes as long as 13 ms
while nobody else is served.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Final

LARGE: Final = 1024 * 1024  # bytes
_M_MMAP_THRESHOLD: Final = -3  # mallopt(3)


def keep_large_blocks_apart() -> None:
    """For this process, from now on; where there is no such setting nothing changes."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE)
