"""What the pool needs: the rows of its workers, and the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pykoclaw_acp.channel.processes import WorkerHandle, WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec


class Ledger(Protocol):
    """Where it is written down which workers there are."""

    async def next_epoch(self, session_id: str) -> int:
        """The session's next epoch, committed; raises SpoolPending while there is a row of a worker of an older one."""

    async def left(self, session_id: str) -> list[WorkerRecord]:
        """The session's workers whose rows are there, the oldest first."""

    async def worker_started(self, spec: LaunchSpec, handle: WorkerHandle) -> None:
        """A worker lives."""

    async def worker_gone(self, session_id: str, epoch: int) -> None:
        """It does not any more, and what it has left is in the log."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Counts, times (s) and sizes (bytes) of config.py; whose workers they are, and for which data directory."""

    instance: str
    data: str
    max_workers: int
    idle_timeout: float
    worker_start_timeout: float
    stall_timeout: float
    stop_grace: float
    orphan_grace: float
    spool_limit: int
