"""Bytes on their way out through a descriptor that does not block."""

from __future__ import annotations

import os


class Outflow:
    """What was put in and not yet written, and how far the writing has come."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.total = 0  # bytes that were ever put in
        self._waiting = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes that were not written yet."""
        return len(self._waiting)

    @property
    def written(self) -> int:
        """Bytes that were written."""
        return self.total - len(self._waiting)

    def put(self, data: bytes | bytearray) -> None:
        """Write this later."""
        self._waiting += data
        self.total += len(data)

    def flush(self) -> None:
        """Write what goes without waiting; raises OSError when nobody will ever read it."""
        while self._waiting:
            try:
                with memoryview(self._waiting) as view:
                    count = os.write(self.descriptor, view)
            except BlockingIOError:
                return
            del self._waiting[:count]
