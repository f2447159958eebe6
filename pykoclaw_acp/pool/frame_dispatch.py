"""What a worker says besides what is committed: each frame goes to the one that it is for."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.channel.database import DatabaseCall
from pykoclaw_acp.channel.frames import FromWorker, Heartbeat, Offered, Pong
from pykoclaw_acp.channel.requests import WorkerReply
from pykoclaw_acp.channel.spec import WorkerIdentity
from pykoclaw_acp.pool.callers import Caller
from pykoclaw_acp.pool.listener import WorkerListener
from pykoclaw_acp.pool.liveness import Liveness
from pykoclaw_acp.system.memory import KillWatch


class FrameDispatch:
    """Hands on the frames of one worker. `kills` says later what its death is put down to."""

    def __init__(
        self,
        worker: WorkerIdentity,
        liveness: Liveness,
        caller: Caller,
        listener: WorkerListener,
        kills: KillWatch,
    ) -> None:
        self._kills = kills
        self._worker = worker
        self._liveness = liveness
        self._caller = caller
        self._listener = listener

    def take(self, batch: Sequence[FromWorker]) -> None:
        """Hand on those that are not numbered; frames of another epoch count for nothing."""
        for frame in batch:
            if frame.epoch != self._worker.epoch:
                continue
            match frame:
                case Heartbeat():
                    self._kills.renew()
                    self._listener.heard(self._worker.session_id, hangs=frame.hangs)
                case Pong():
                    self._liveness.pong()
                case DatabaseCall():
                    self._caller.take(frame)
                case WorkerReply():
                    self._listener.replied(self._worker.session_id, frame)
                case Offered():
                    self._listener.offered(self._worker.session_id, frame.offer)
