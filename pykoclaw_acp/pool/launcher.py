"""Where workers come from: the seam behind which local processes stand today."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from pykoclaw_acp.worker.frames import FromWorker, ToWorker
from pykoclaw_acp.worker.spec import LaunchSpec


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """Which process a worker is: a pid alone could be another one's tomorrow."""

    pid: int
    start_time: int
    boot_id: str


class LaunchFailed(Exception):
    """No worker could be launched; the message says why."""


class Channel(Protocol):
    """The line to one live worker."""

    process: WorkerProcess

    async def send(self, frame: ToWorker) -> None:
        """Write a frame; raises ConnectionError when the worker is gone."""

    def batches(self) -> AsyncIterator[list[FromWorker]]:
        """Frames in order, as they come; ends when the worker is gone."""

    async def gone(self) -> None:
        """Wait until the worker's process has ended."""

    def kill(self) -> None:
        """End the worker's process at once."""

    def terminate(self) -> None:
        """Ask the worker's process to end."""

    async def close(self) -> None:
        """Give up the line and everything that belongs to it."""


class Launcher(Protocol):
    """Makes workers; `clean` ends what a dead one left behind."""

    async def warm(self) -> None:
        """Prepare, so that the first launch is fast."""

    async def launch(self, spec: LaunchSpec) -> Channel:
        """A new worker; raises LaunchFailed."""

    async def clean(self, spec: LaunchSpec, grace: float) -> None:
        """Nothing of this dead worker may live on: its processes, socket and temporary files.

        Processes get SIGTERM, and after `grace` (s) SIGKILL.
        """

    async def close(self) -> None:
        """Give back everything."""
