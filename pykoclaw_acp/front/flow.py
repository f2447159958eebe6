"""A write buffer for a non-blocking descriptor."""

from __future__ import annotations

import os


class Outflow:
    """Buffers writes, and counts the bytes that were written."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.total = 0  # bytes that were ever put in
        self.written = 0  # bytes of them
        self.abandoned = False
        self._waiting = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes in the buffer."""
        return len(self._waiting)

    def put(self, data: bytes | bytearray) -> None:
        """Add to the buffer."""
        self.total += len(data)
        if not self.abandoned:
            self._waiting += data

    def abandon(self) -> None:
        """The reader is gone: what waits is dropped, and so is what comes."""
        self.abandoned = True
        self._waiting.clear()

    def flush(self) -> None:
        """Write what can be written without blocking; raises OSError when the reader is gone."""
        while self._waiting:
            try:
                with memoryview(self._waiting) as view:
                    count = os.write(self.descriptor, view)
            except BlockingIOError:
                return
            del self._waiting[:count]
            self.written += count

    def try_flush(self) -> None:
        """Write what fits, if the reader is there; whoever needs to know that it is gone finds it, too."""
        try:
            self.flush()
        except OSError:
            return
