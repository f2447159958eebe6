"""Opening files that others may have put there: a pipe would make the reader wait, a device may act."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
"""Errors by which a path leads to nothing, for whomever."""


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """The file, for reading; raises OSError, also if it is no file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is not a file")
        yield descriptor
    finally:
        os.close(descriptor)
