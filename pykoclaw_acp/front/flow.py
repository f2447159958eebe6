"""A write buffer for a non-blocking descriptor."""

from __future__ import annotations

import os


class Outflow:
    """Buffers writes, and counts the bytes that were written."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.total = 0  # bytes that were ever put in
        self._waiting = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes in the buffer."""
        return len(self._waiting)

    @property
    def written(self) -> int:
        """Bytes written so far."""
        return self.total - len(self._waiting)

    def put(self, data: bytes | bytearray) -> None:
        """Add to the buffer."""
        self._waiting += data
        self.total += len(data)

    def flush(self) -> None:
        """Write what can be written without blocking; raises OSError when the reader is gone."""
        while self._waiting:
            try:
                with memoryview(self._waiting) as view:
                    count = os.write(self.descriptor, view)
            except BlockingIOError:
                return
            del self._waiting[:count]
