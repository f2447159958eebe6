"""Lines out of a byte stream: one JSON-RPC message a line, bounded in size (ACP stdio transport)."""

from __future__ import annotations

TYPE_CHECKING = False  # the front imports this: `typing` would cost it half of its start-up time
if TYPE_CHECKING:
    from typing import Final

MAX_LINE_IN: Final = 64 * 1024 * 1024  # bytes; Mitto sends images inline
MAX_LINE_OUT: Final = 8 * 1024 * 1024  # bytes; Mitto closes the connection at 10 MiB


class Oversized:
    """Stands in the place of a line that was longer than the limit and was thrown away."""


OVERSIZED: Final = Oversized()


class LineFramer:
    """Collects chunks into lines, whatever the chunk boundaries; holds at most `limit` bytes."""

    def __init__(self, limit: int = MAX_LINE_IN) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | Oversized]:
        """Take a chunk; return the lines it completed, without their newline."""
        lines: list[bytes | Oversized] = []
        *complete, rest = data.split(b"\n")
        for piece in complete:
            self._add(piece, lines)
            if self._skipping:
                self._skipping = False
            else:
                lines.append(b"".join(self._parts))
            self._parts, self._size = [], 0
        self._add(rest, lines)
        return lines

    def end(self) -> list[bytes | Oversized]:
        """The stream ended: what stands after the last newline is a line too."""
        line = b"".join(self._parts)
        self._parts, self._size, self._skipping = [], 0, False
        return [line] if line else []

    def _add(self, piece: bytes, lines: list[bytes | Oversized]) -> None:
        if self._skipping or not piece:
            return
        self._size += len(piece)
        if self._size > self._limit:
            # Said at once, not at the newline: the sender may wait for the answer.
            lines.append(OVERSIZED)
            self._parts, self._skipping = [], True
        else:
            self._parts.append(piece)
