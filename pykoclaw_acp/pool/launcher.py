"""Where workers come from: the seam behind which local processes stand today."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from pykoclaw_acp.channel.frames import FromWorker, ToWorker
from pykoclaw_acp.channel.processes import LeftWorker, WorkerProcess
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity


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

    def detach(self) -> None:
        """Send and receive nothing any more: `batches` ends with what was received; the worker sees the end."""

    async def close(self) -> None:
        """Give up the line and everything that belongs to it."""


class Launcher(Protocol):
    """Makes workers; `clean` ends what a dead one left behind."""

    async def warm(self) -> None:
        """Prepare, so that the first launch is fast."""

    async def launch(self, spec: LaunchSpec) -> Channel:
        """A new worker; raises LaunchFailed."""

    async def attach(self, left: LeftWorker) -> Channel:
        """The line to a worker that another daemon launched; raises LaunchFailed when it is gone."""

    def spooled(self, identity: WorkerIdentity, after: int) -> Iterable[list[FromWorker]]:
        """Batches of what a dead worker has left on disk, as `leftovers.read_spool`."""

    async def end(self, process: WorkerProcess, grace: float) -> None:
        """End a worker that there is no line to: SIGTERM, after `grace` (s) SIGKILL."""

    async def clean(self, identity: WorkerIdentity, grace: float, *, keep_spool: bool = False) -> None:
        """Nothing of this dead worker may live on: its processes, socket, spool and temporary files.

        `keep_spool`: it could not be taken yet. Processes get SIGTERM, and after `grace` (s) SIGKILL.
        """

    async def probe(self) -> None:
        """Returns when launches are possible, for all it knows; raises RestartWanted when only a new daemon can."""

    async def close(self) -> None:
        """Give back everything but workers that outlive their daemon."""
