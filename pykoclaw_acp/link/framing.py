"""Split a byte stream into lines of bounded size: one JSON-RPC message a line (ACP stdio
transport).
"""

from __future__ import annotations

TYPE_CHECKING = False  # the front imports this: `typing` would cost it half of its start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final, Protocol

    class Room(Protocol):
        """Limits the memory of the lines of several framers."""

        def reserve(self, holder: LineFramer | LineInMemory, size: int) -> bool:
            """Reserve this many bytes for the holder; if False, it must hold none."""


MAX_LINE_IN: Final = 64 * 1024 * 1024  # bytes; Mitto sends images inline
MAX_LINE_EARLY: Final = 1024 * 1024  # bytes, from a client that has not sent `initialize`
MAX_PROMPT_EARLY: Final = MAX_LINE_EARLY - 128 * 1024  # for a prompt beside an environment
MAX_LINE_OUT: Final = 8 * 1024 * 1024  # bytes; Mitto closes the connection at 10 MiB
MAX_LONG_LINE_OUT: Final = 24 * 1024 * 1024  # to those that take more; the TypeScript SDK: 32 MiB
SMALL: Final = 64 * 1024  # bytes of an unfinished line that nobody counts
HEAD: Final = 4096  # bytes of a line that is thrown away which are kept


class Oversized:
    """Placeholder for a discarded line that begins with `head`.

    The line was longer than `limit` bytes; if `crowded`, the unread input of all clients together
    was too large; if `no_memory`, this process had no memory for it.
    """

    __slots__ = ("crowded", "head", "limit", "no_memory")

    def __init__(
        self, head: bytes, limit: int, *, crowded: bool = False, no_memory: bool = False
    ) -> None:
        self.head = head
        self.limit = limit
        self.crowded = crowded
        self.no_memory = no_memory


class LineInMemory:
    """A complete line that is in memory while others are read."""

    __slots__ = ()

    def drop(self) -> bool:
        """Discard nothing: the line is complete."""
        return False


class LineFramer:
    """Assembles lines from chunks; buffers at most `limit` bytes, which may be changed.

    A line that came in several chunks is a bytearray, owned by the caller, to avoid a copy.
    """

    def __init__(self, limit: int = MAX_LINE_IN, room: Room | None = None) -> None:
        self.limit = limit
        self._room = room
        self._buffer = bytearray()
        self._counted = False  # the room knows of bytes of ours
        self._skipping = False
        self._lost: Oversized | None = None

    def feed(self, data: bytes) -> list[bytes | bytearray | Oversized]:
        """Add a chunk; returns the lines that it completes, without newlines. Earlier lines count
        as processed.
        """
        lines: list[bytes | bytearray | Oversized] = []
        self.settle()
        if self._lost is not None:
            lines.append(self._lost)
            self._lost = None
        *complete, rest = data.split(b"\n")
        for piece in complete:
            if self._skipping:
                self._skipping = False
            elif self._buffer:
                if self._add(piece, lines):
                    lines.append(self._buffer)
                    self._buffer = bytearray()
                self._skipping = False
            elif len(piece) > self.limit:
                lines.append(Oversized(piece[:HEAD], self.limit))
            else:
                lines.append(piece)
        if rest and not self._skipping:
            self._add(rest, lines)
        return lines

    def settle(self) -> None:
        """Count the lines that were returned as processed, as before a wait for the next chunk."""
        if self._counted:
            self._count(len(self._buffer))

    def end(self) -> list[bytes | bytearray | Oversized]:
        """End of the stream: what follows the last newline is a line too."""
        line, self._buffer, self._skipping = self._buffer, bytearray(), False
        return [line] if line else []

    def drop(self) -> bool:
        """Discard the unfinished line; False if there is none. The next `feed` reports it."""
        if not self._buffer:
            return False  # what was counted is a line that is being read
        self._lost = Oversized(bytes(self._buffer[:HEAD]), self.limit, crowded=True)
        self._buffer, self._skipping = bytearray(), True
        self._counted = False
        return True

    def keep(self, size: int) -> Callable[[], object]:
        """Count the line of `size` bytes that was read last until the returned function is called,
        also while others are read.
        """
        if self._room is None:
            return lambda: None
        room, kept = self._room, LineInMemory()
        self._count(len(self._buffer))  # makes room for it
        room.reserve(kept, size)
        return lambda: room.reserve(kept, 0)

    def close(self) -> None:
        """Release the buffer."""
        self._buffer = bytearray()
        if self._counted:
            self._count(0)

    def _add(self, piece: bytes, lines: list[bytes | bytearray | Oversized]) -> bool:
        size = len(self._buffer) + len(piece)
        crowded = size <= self.limit and size > SMALL and not self._count(size)
        no_memory = False
        if size <= self.limit and not crowded:
            try:
                self._buffer += piece
                return True
            except MemoryError:
                if self._room is None:
                    raise
                # A daemon has other clients. If it gave up this one, the front would send it again.
                no_memory = True
        # Said at once, not at the newline: the sender may wait for the answer.
        head = bytes((self._buffer[:HEAD] + piece[:HEAD])[:HEAD])
        lines.append(Oversized(head, self.limit, crowded=crowded, no_memory=no_memory))
        self._buffer, self._skipping = bytearray(), True
        return False

    def _count(self, size: int) -> bool:
        if self._room is None:
            return True
        self._counted = size > SMALL
        return self._room.reserve(self, size)
