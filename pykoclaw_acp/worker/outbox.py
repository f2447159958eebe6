"""Numbered frames on their way to the daemon: kept until acknowledged, merged while unsent, on disk
without a daemon.

Unacknowledged frames are in the spool, newer ones in memory. They go to the spool when there is no
daemon, or one that is too slow: Claude never waits for a daemon, and a kill of both loses little.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from pykoclaw_acp.channel.frames import EventFrame, Lost, Numbered, TurnStarted, encode
from pykoclaw_acp.channel.spool import NumberedLine, Spool
from pykoclaw_acp.model.events import MAX_TEXT, Text, Thinking

MAX_UNACKNOWLEDGED: Final = 1024 * 1024  # bytes on their way to the daemon
MAX_UNSENT: Final = 1024  # frames that wait for a number in memory
MAX_UNSENT_TEXT: Final = 4 * 1024 * 1024  # characters in them
SPOOL_GATHER: Final = 0.05  # s in which deltas become one event while there is no daemon
LATE: Final = 0.5  # s; an acknowledgement takes milliseconds

log: Final = structlog.get_logger()


class Outbox:
    """A queue whose `put` never blocks, and whose `take` waits for frames that can be sent.

    `on_full` is called when the spool's limit is reached, or with the error if it cannot be written:
    until everything that was kept is acknowledged, events are dropped, but not the ends of turns. It
    is called again for each turn that begins in the meantime, so that none ends as if it had been
    reported.
    """

    def __init__(self, spool: Spool, limit: int, on_full: Callable[[OSError | None], None]) -> None:
        self._spool = spool
        self._limit = limit
        self._on_full = on_full
        self._unsent: deque[Numbered] = deque()
        self._more: list[
            str
        ] = []  # what follows the last of them, in pieces: else each delta would copy the whole
        self._more_text = 0
        self._unsent_text = 0
        self._kept: deque[NumberedLine] = deque()  # numbered, unacknowledged, not in the spool
        # Sent on this connection, unacknowledged: number, size
        self._flying: deque[tuple[int, int]] = deque()
        self._flying_bytes = 0
        self._last = 0
        self._sent = 0
        self._acknowledged = 0
        self._attached = False
        self._full = False
        self._trouble: OSError | None = None  # why the spool is full; None: its limit is reached
        self._changed = asyncio.Event()

    @property
    def empty(self) -> bool:
        """Whether everything was sent and acknowledged."""
        return not self._unsent and self._acknowledged == self._last

    @property
    def told(self) -> tuple[int, int]:
        """Numbers of the last frame, and of the last one that a daemon has committed."""
        return self._last, self._acknowledged

    def put(self, frame: Numbered) -> None:
        """Queue a frame; a delta is merged into the one before it while that has no number."""
        if self._full and isinstance(frame, EventFrame):
            return
        if self._full and isinstance(frame, TurnStarted) and frame.into is None:
            self._on_full(self._trouble)
        if self._unsent and (more := _continuation(self._unsent[-1], self._more_text, frame)):
            self._more.append(more)
            self._more_text += len(more)
        else:
            self._merge()
            self._unsent.append(frame)
        if isinstance(frame, EventFrame) and isinstance(frame.event, Text | Thinking):
            self._unsent_text += len(frame.event.text)
        if len(self._unsent) >= MAX_UNSENT or self._unsent_text >= MAX_UNSENT_TEXT:
            self.spill()
        self._changed.set()

    # --- the daemon

    def number(self) -> int:
        """Number all queued frames; returns the last number."""
        while self._unsent:
            self._number()
        self._unsent_text = 0
        return self._last

    def attach(self, after: int) -> None:
        """Send what follows frame `after` to a daemon, which has committed everything
        up to there.
        """
        self.acknowledge(after)
        self._sent = self._acknowledged
        if self._spool.last:
            self._spool.rewind(self._sent)
        self._attached = True
        self._changed.set()

    def detach(self) -> None:
        """Stop sending: the daemon is gone."""
        self._attached = False
        self._flying.clear()
        self._flying_bytes = 0
        self._sent = self._acknowledged
        self._changed.set()

    def acknowledge(self, upto: int) -> None:
        """Forget frames up to this number: the daemon has committed them."""
        self._acknowledged = max(self._acknowledged, upto)
        while self._flying and self._flying[0][0] <= upto:
            self._flying_bytes -= self._flying.popleft()[1]
        while self._kept and self._kept[0].n <= upto:
            self._kept.popleft()
        if self._spool.last and self._spool.last <= upto:
            self._clear()
        if not self._spool.last and not self._kept:
            self._full = False
        self._changed.set()

    async def take(self) -> bytes:
        """The next frames as lines; waits while there is no daemon, or too much is
        unacknowledged.
        """
        while True:
            if self._attached:
                if data := self._next():
                    return data
            elif self._unsent or self._kept:
                self.spill()
                await asyncio.sleep(SPOOL_GATHER)
                continue
            self._changed.clear()
            await self._changed.wait()

    async def drained(self) -> None:
        """Wait until everything is acknowledged."""
        while not self.empty:
            self._changed.clear()
            await self._changed.wait()

    # --- memory and disk

    async def spill_late(self) -> None:
        """Move to the spool, for ever, what waits for a daemon's acknowledgement for twice `LATE`."""
        while True:
            while self.empty:
                self._changed.clear()
                await self._changed.wait()
            numbered = self._last
            await asyncio.sleep(LATE)
            if self._attached and self._acknowledged < numbered:
                self._try_to_spill()

    def _try_to_spill(self) -> None:
        """Move everything to the spool if that has room: the daemon may take it all the same."""
        if (not self._full and self._spool.size > self._limit) or self._append() is not None:
            return  # what waits for a number goes on waiting: there is a limit to it
        self.number()
        self._append()

    def spill(self) -> None:
        """Move everything from memory to the spool."""
        if not self._full and self._spool.size > self._limit:
            self._fill(None)
        self.number()
        trouble = self._append()  # tried again with the next frame
        if trouble is not None and not self._full:
            self._fill(trouble)

    def _append(self) -> OSError | None:
        """Move what is numbered to the spool; the error if it stays in memory."""
        if self._kept:
            try:
                self._spool.append(self._kept, self._sent)
            except OSError as error:
                return error
            self._kept.clear()
        return None

    def bequeath(self, last_words: Lost | None) -> None:
        """Write what is unacknowledged to the spool, followed by the reason for the
        worker's end.
        """
        self.spill()
        if last_words is None:
            return
        try:
            self._spool.note(encode(last_words))
        except OSError as error:
            log.warning(
                "The last words could not be written", action="spool_failed", error=str(error)
            )

    def _clear(self) -> None:
        try:
            self._spool.clear()
        except OSError as error:  # tried again with the next acknowledgement
            log.warning(
                "The spool could not be emptied", action="spool_kept", reason=error.strerror
            )

    def _fill(self, trouble: OSError | None) -> None:
        log.error(
            "The spool takes no more events",
            action="spool_full",
            bytes=self._spool.size,
            reason="the limit is reached" if trouble is None else str(trouble),
        )
        self._full, self._trouble = True, trouble
        self._merge()
        self._unsent = deque(frame for frame in self._unsent if not isinstance(frame, EventFrame))
        self._on_full(trouble)

    def _merge(self) -> None:
        """Merge the collected pieces into the last frame."""
        if self._more:
            last = self._unsent[-1]
            assert isinstance(last, EventFrame)
            assert isinstance(last.event, Text | Thinking)
            whole = msgspec.structs.replace(last.event, text=last.event.text + "".join(self._more))
            self._unsent[-1] = msgspec.structs.replace(last, event=whole)
            self._more.clear()
            self._more_text = 0

    def _number(self) -> NumberedLine:
        self._merge()
        self._last += 1
        line = NumberedLine(
            self._last, encode(msgspec.structs.replace(self._unsent.popleft(), n=self._last))
        )
        self._kept.append(line)
        return line

    def _next(self) -> bytes:
        if self._flying_bytes > MAX_UNACKNOWLEDGED:
            return b""
        if self._sent < self._spool.last:
            lines = self._spool.read()
        else:
            lines = (
                [line for line in self._kept if line.n > self._sent]
                if self._sent < self._last
                else []
            )
            room = MAX_UNACKNOWLEDGED - self._flying_bytes - sum(len(line.data) for line in lines)
            while self._unsent and room >= 0:
                lines.append(self._number())
                room -= len(lines[-1].data)
            if not self._unsent:
                self._unsent_text = 0
        for line in lines:
            self._sent = line.n
            self._flying.append((line.n, len(line.data)))
            self._flying_bytes += len(line.data)
        return b"".join(line.data for line in lines)


def _continuation(before: Numbered, more: int, frame: Numbered) -> str:
    """Text by which this frame continues the one before, which has `more` characters already; empty
    if it does not.
    """
    if (
        not isinstance(before, EventFrame)
        or not isinstance(frame, EventFrame)
        or before.turn_id != frame.turn_id
    ):
        return ""
    old, new = before.event, frame.event
    if (
        not isinstance(old, Text | Thinking)
        or not isinstance(new, Text | Thinking)
        or type(old) is not type(new)
    ):
        return ""
    fits = len(old.text) + more + len(new.text) <= MAX_TEXT
    return new.text if old.message_id == new.message_id and fits else ""
