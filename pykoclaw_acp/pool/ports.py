"""What the pool needs from outside: the table of workers, and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pykoclaw_acp.channel.database import DatabaseAnswer, DatabaseCall
from pykoclaw_acp.channel.processes import WorkerHandle, WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec


class WorkerStore(Protocol):
    """The table of workers."""

    async def next_epoch(self, session_id: str) -> int:
        """The session's next epoch, committed; raises SpoolPending while an older worker of the
        session has a row.
        """

    async def left(self, session_id: str) -> list[WorkerRecord]:
        """The session's workers that have rows, the oldest first."""

    async def worker_started(self, spec: LaunchSpec, handle: WorkerHandle) -> None:
        """Insert the worker's row."""

    async def transcript_begun(self, session_id: str, claude_session_id: str) -> None:
        """The worker has begun a Claude session under another id than the session's. Waits while
        the database cannot be written.
        """

    async def worker_gone(self, session_id: str, epoch: int) -> None:
        """Delete the worker's row: its process is gone, and its spool is in the log."""


class CallTaker(Protocol):
    """Runs what workers ask of the database for their tools and plugins."""

    async def take(self, call: DatabaseCall) -> DatabaseAnswer:
        """The answer, which may be an error; never raises."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of the pool (counts, seconds, bytes), and the instance and the data directory that its
    workers are for. `scheduler`: as in Hello.
    """

    instance: str
    data: str
    max_workers: int
    idle_timeout: float
    worker_start_timeout: float
    stall_timeout: float
    stop_grace: float
    orphan_grace: float
    spool_limit: int
    scheduler: str
