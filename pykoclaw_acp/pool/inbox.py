"""What a worker says, sorted: what is to be committed, and what it says about itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.database import DatabaseCall
from pykoclaw_acp.channel.frames import (
    PROTOCOL,
    Background,
    FromWorker,
    Heartbeat,
    Lost,
    Numbered,
    Offered,
    Place,
    Pong,
    Ready,
    Skipped,
    check_order,
)
from pykoclaw_acp.channel.requests import WorkerReply
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.pool.occupation import Occupation

# A tuple, as a union would be made anew for each frame
_UNNUMBERED: Final = (Offered, Heartbeat, Place, Pong, DatabaseCall, WorkerReply)

log: Final = structlog.get_logger()


class Inbox:
    """Frames up to `committed` are in the log. `last_words`: the worker cannot go on, or could not
    when it died.
    """

    def __init__(self, epoch: int, committed: int, occupation: Occupation) -> None:
        self.committed = committed
        self.foreign = False  # it speaks another version of the protocol
        self.greeted = False  # it has answered its Hello
        self.last_words: TurnFailure | None = None
        self._epoch = epoch
        self._occupation = occupation
        self._greeting: Ready | None = None

    def sort(self, batch: Sequence[FromWorker]) -> list[Numbered]:
        """The frames to commit; raises ValueError if one is missing.

        A worker whose frame cannot be understood is of another version, under whatever number of the
        protocol.
        """
        last = self.committed
        numbered: list[Numbered] = []
        for frame in batch:
            if frame.epoch != self._epoch:
                continue
            if isinstance(frame, Ready):
                crash_points.reached("worker_ready")
                self.foreign = frame.protocol != PROTOCOL
                self._occupation.background = frame.background
                self._greeting, self.greeted = frame, True
            elif isinstance(frame, Lost):
                self.last_words = frame.failure
            elif not isinstance(frame, _UNNUMBERED) and frame.n:
                check_order(frame, last)
                self._note_unknown(frame)
                last = frame.n
                numbered.append(frame)
                if isinstance(frame, Background):
                    self._occupation.note_background(frame.running)
        return numbered

    def split(self, frames: list[Numbered]) -> tuple[list[Numbered], ...]:
        """The frames before the answer to Hello, which says what is so after them, and those
        behind it.
        """
        if (greeting := self._greeting) is None:
            return (frames,)
        before = [one for one in frames if one.n <= greeting.upto]
        return before, frames[len(before) :]

    def _note_unknown(self, frame: FromWorker) -> None:
        if isinstance(frame, Skipped) and not self.foreign:
            self.foreign = True
            log.error(
                "A worker sent a message that this version does not know; restart the daemon",
                action="frame_unknown",
                epoch=self._epoch,
                frame=frame.n,
            )

    def take_greeting(self) -> Ready | None:
        """The answer to Hello, once, as soon as everything that the worker had told before is
        committed.
        """
        greeting = self._greeting
        if greeting is None or self.committed < greeting.upto:
            return None
        self._greeting = None
        return greeting
