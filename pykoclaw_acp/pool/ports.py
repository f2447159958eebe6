"""What the pool needs: the rows of its workers, and the settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pykoclaw_acp.channel.processes import LeftWorker, WorkerProcess
from pykoclaw_acp.channel.spec import LaunchSpec


class Ledger(Protocol):
    """Where it is written down which workers there are."""

    async def next_epoch(self, session_id: str) -> int:
        """The session's next epoch, committed; raises SpoolPending while there is a row of a worker of an older one."""

    async def left(self, session_id: str) -> list[LeftWorker]:
        """The session's workers whose rows are there, the oldest first."""

    async def worker_started(self, spec: LaunchSpec, process: WorkerProcess) -> None:
        """A worker lives."""

    async def worker_gone(self, session_id: str, epoch: int) -> None:
        """It does not any more, and what it has left is in the log."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Counts, times (s) and sizes (bytes) of config.py, and where things are.

    `directory` has the sockets, spools and temporary files of the instance's workers; `data` is the data directory.
    """

    directory: Path
    max_workers: int
    idle_timeout: float
    worker_start_timeout: float
    stall_timeout: float
    stop_grace: float
    orphan_grace: float
    spool_limit: int
    data: str
