"""Lines to one client that leave together: to send each of a replay alone, and to wake the client for
each, takes longer than to make them.
"""

from __future__ import annotations

import asyncio
from typing import Final

MOST: Final = 64 * 1024  # bytes


class GatheringWriter:
    """Passes lines on to a writer, in order: at once, or together after `gather`."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._gathers = False
        self._lines: list[bytes] = []
        self._size = 0

    def gather(self) -> None:
        """Keep what is written from now on until the next round of the event loop, or until it is 64
        KiB; not while the client leaves something unread, for which each line has to wait.
        """
        if not self._gathers and not self.writer.transport.get_write_buffer_size():
            self._gathers = True
            asyncio.get_running_loop().call_soon(self.flush)

    def write(self, line: bytes) -> None:
        """Write a line."""
        if len(line) >= MOST:
            self.flush()
        if not self._gathers:
            self.writer.write(line)
            return
        self._lines.append(line)
        self._size += len(line)
        if self._size >= MOST:
            self.flush()

    def flush(self) -> None:
        """Pass on what is kept."""
        lines, self._lines = self._lines, []
        self._gathers, self._size = False, 0
        if lines:
            self.writer.write(b"".join(lines))
