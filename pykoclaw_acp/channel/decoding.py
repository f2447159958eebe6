"""Frames of workers, also of versions whose frames are not known here."""

from __future__ import annotations

from typing import Final

import msgspec

from pykoclaw_acp.channel.frames import FromWorker, Ready, Skipped, TurnEnded, from_worker
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.failures import TurnFailure

ENDED_UNREADABLY: Final = (
    "The turn ended under another version of pykoclaw-acp, and it cannot be read how."
)


class _FrameHead(msgspec.Struct, kw_only=True):
    """Fields that every version can read; those from `pid` on are of Ready, some of TurnEnded."""

    frame: str
    epoch: int
    n: int = 0
    pid: int = 0
    protocol: int = 0
    claude_session_id: str = ""
    fresh: bool = False
    turn_id: str | None = None
    asks: list[str] = []
    background: int = 0


_head: Final = msgspec.json.Decoder(_FrameHead)


def decode_from_worker(line: bytes) -> FromWorker:
    """Decode a worker's frame; an unknown one becomes Skipped, except the end of a turn.

    Raises ValueError for what is no frame.
    """
    try:
        return from_worker.decode(line)
    except msgspec.ValidationError:
        head = _head.decode(line)
    if head.frame == "turn_ended" and head.turn_id and head.claude_session_id:
        error = TurnFailure(ErrorKind.WORKER_FOREIGN, ENDED_UNREADABLY)
        return TurnEnded(
            epoch=head.epoch,
            n=head.n,
            turn_id=head.turn_id,
            stop_reason=None,
            claude_session_id=head.claude_session_id,
            error=error,
        )
    if head.frame != "ready":
        return Skipped(epoch=head.epoch, n=head.n)
    return Ready(
        epoch=head.epoch,
        pid=head.pid,
        protocol=head.protocol,
        claude_session_id=head.claude_session_id,
        fresh=head.fresh,
        turn_id=head.turn_id,
        asks=head.asks,
        background=head.background,
    )
