"""Reading of a spool that may be damaged: frames in order, and a Gap where some are missing.

A line that is no frame of this worker is skipped. A Gap is made only where a number is missing, or
the file ends with such a line. Text after a gap gets message ids of its own, so that it is not
merged with text before the gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec

from pykoclaw_acp.channel.decoding import decode_from_worker
from pykoclaw_acp.channel.frames import (
    MAX_FRAME,
    EventFrame,
    FromWorker,
    Gap,
    Numbered,
    TurnStarted,
)
from pykoclaw_acp.model.events import Text, Thinking

SKIP: Final = 1024 * 1024  # bytes of a line that is too long, read at once


def frames(file: BinaryIO, epoch: int, after: int, upto: int = 0) -> Iterator[FromWorker]:
    """The frames of the worker `epoch` after number `after`, from the file's beginning. Raises
    OSError.

    `upto`: the last number, if that is known.
    """
    reader = _Salvager(epoch, after, upto)
    for line in _lines(file):
        yield from reader.take(_decode(line, epoch))
    yield from reader.end()


class _Salvager:
    """Follows the numbers. A jump is believed if no later number contradicts it."""

    def __init__(self, epoch: int, after: int, upto: int) -> None:
        self._epoch = epoch
        self._after = after
        self._upto = upto
        self._last: int | None = None  # number of the last frame
        self._broken = False  # a line since then cannot be read
        self._held: Numbered | None = None
        self._turn: str | None = None
        self._parted = ""  # what ids of messages end with since the last gap

    def take(self, frame: FromWorker | None) -> Iterator[FromWorker]:
        if frame is None or (isinstance(frame, Numbered) and frame.n > self._upto > 0):
            self._broken = True
        elif not isinstance(frame, Numbered):
            yield from self._release()
            yield frame
        else:
            held, self._held = self._held, None
            if held is not None:
                if frame.n > held.n:
                    yield from self._pass(held)
                else:
                    self._broken = True
            if _first(frame) > self._expected:
                self._held = frame
            else:
                yield from self._pass(frame)

    def end(self) -> Iterator[FromWorker]:
        yield from self._release()
        if self._expected <= self._upto or (self._broken and not self._upto):
            yield from self._gap(max(self._expected, self._upto), self._turn)

    def _release(self) -> Iterator[FromWorker]:
        held, self._held = self._held, None
        if held is not None:
            yield from self._pass(held)

    @property
    def _expected(self) -> int:
        return self._after + 1 if self._last is None else self._last + 1

    def _pass(self, frame: Numbered) -> Iterator[FromWorker]:
        if self._last is not None and frame.n <= self._last:
            return  # a duplicate
        turn = frame.turn_id if isinstance(frame, EventFrame | TurnStarted | Gap) else None
        if _first(frame) > self._expected:
            yield from self._gap(_first(frame) - 1, self._turn or turn)
        self._broken = False
        self._last = frame.n
        self._turn = turn or self._turn
        if isinstance(frame, Gap):
            self._parted = f"-after-{frame.n}"
            frame = msgspec.structs.replace(frame, first=max(frame.first, self._after + 1))
        if frame.n > self._after:
            yield self._apart(frame)

    def _gap(self, upto: int, turn_id: str | None) -> Iterator[FromWorker]:
        first = max(self._expected, self._after + 1)
        self._broken = False
        self._last = upto
        self._parted = f"-after-{upto}"
        if upto > self._after:
            yield Gap(epoch=self._epoch, n=upto, first=first, turn_id=turn_id)

    def _apart(self, frame: Numbered) -> Numbered:
        if (
            not self._parted
            or not isinstance(frame, EventFrame)
            or not isinstance(frame.event, Text | Thinking)
        ):
            return frame
        event = msgspec.structs.replace(
            frame.event, message_id=frame.event.message_id + self._parted
        )
        return msgspec.structs.replace(frame, event=event)


def _first(frame: Numbered) -> int:
    return frame.first if isinstance(frame, Gap) else frame.n


def _decode(line: bytes | None, epoch: int) -> FromWorker | None:
    try:
        frame = None if line is None else decode_from_worker(line)
    except ValueError:
        return None
    return frame if frame is not None and frame.epoch == epoch else None


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines; None for one that is longer than any frame."""
    while line := file.readline(MAX_FRAME):
        if len(line) < MAX_FRAME or line.endswith(b"\n"):
            yield line
            continue
        while (rest := file.readline(SKIP)) and not rest.endswith(b"\n"):
            pass
        yield None
