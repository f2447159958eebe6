"""Numbered frames on their way to the daemon: kept until acknowledged, merged while unsent, bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import msgspec

from pykoclaw_acp.sessions.events import MAX_TEXT, Text, Thinking
from pykoclaw_acp.worker.frames import EventFrame, Numbered, encode

MAX_UNACKNOWLEDGED: Final = 1024 * 1024  # bytes
MAX_UNSENT: Final = 1024  # frames that wait for a number


class Outbox:
    """`put` never blocks; `take` waits for frames; `room` is where producers wait when the daemon is slow."""

    def __init__(self) -> None:
        self._unsent: deque[Numbered] = deque()
        self._kept: deque[tuple[int, int]] = deque()  # number, size
        self._kept_bytes = 0
        self._last = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def empty(self) -> bool:
        """Everything was sent and acknowledged."""
        return not self._unsent and not self._kept

    def put(self, frame: Numbered) -> None:
        """Queue a frame; a delta is merged into the one before it while that has not left."""
        merged = _merge(self._unsent[-1], frame) if self._unsent else None
        if merged is not None:
            self._unsent[-1] = merged
        else:
            self._unsent.append(frame)
        self._update()

    def acknowledge(self, upto: int) -> None:
        """The daemon has committed everything up to this number."""
        while self._kept and self._kept[0][0] <= upto:
            self._kept_bytes -= self._kept.popleft()[1]
        self._update()

    async def take(self) -> bytes:
        """The next frames as lines, numbered; waits while the daemon owes acknowledgements for too much."""
        while not self._unsent or self._kept_bytes > MAX_UNACKNOWLEDGED:
            self._changed.clear()
            await self._changed.wait()
        lines: list[bytes] = []
        while self._unsent and self._kept_bytes <= MAX_UNACKNOWLEDGED:
            self._last += 1
            line = encode(msgspec.structs.replace(self._unsent.popleft(), n=self._last))
            self._kept.append((self._last, len(line)))
            self._kept_bytes += len(line)
            lines.append(line)
        self._update()
        return b"".join(lines)

    async def room(self) -> None:
        """Wait until frames may be put again."""
        await self._room.wait()

    async def drained(self) -> None:
        """Wait until everything was acknowledged."""
        while not self.empty:
            self._changed.clear()
            await self._changed.wait()

    def _update(self) -> None:
        self._changed.set()
        if len(self._unsent) < MAX_UNSENT:
            self._room.set()
        else:
            self._room.clear()


def _merge(before: Numbered, frame: Numbered) -> Numbered | None:
    if not isinstance(before, EventFrame) or not isinstance(frame, EventFrame) or before.turn_id != frame.turn_id:
        return None
    old, new = before.event, frame.event
    for kind in (Text, Thinking):
        if isinstance(old, kind) and isinstance(new, kind) and old.message_id == new.message_id:
            if len(old.text) + len(new.text) > MAX_TEXT:
                return None
            return msgspec.structs.replace(before, event=kind(old.message_id, old.text + new.text))
    return None
