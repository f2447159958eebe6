"""The seam between workers and what they run on: everything about processes, sockets and files is
behind it.

Local processes (`local.py`) are the first implementation; the tests have one in memory, under the
same contract.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pykoclaw_acp.channel.frames import FromWorker, ToWorker
from pykoclaw_acp.channel.processes import WorkerHandle, WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.pool.whereabouts import Unlisted, Whereabouts

Deliver = Callable[[list[FromWorker]], Awaitable[None]]


class Channel(Protocol):
    """The line to one live worker."""

    handle: WorkerHandle

    @property
    def labels(self) -> Mapping[str, int | str]:
        """Fields of the worker's log lines: which process it is, for instance."""

    async def send(self, frame: ToWorker) -> None:
        """Write a frame; raises ConnectionError when the worker is gone."""

    def batches(self) -> AsyncIterator[list[FromWorker]]:
        """Frames in order, as they come; ends when the worker is gone."""

    async def gone(self) -> None:
        """Wait until the worker has ended."""

    def kill(self) -> None:
        """End the worker at once."""

    def terminate(self) -> None:
        """Ask the worker to end."""

    def detach(self) -> None:
        """Send and receive nothing any more: `batches` ends with what was received; the worker sees
        the end.
        """

    async def close(self) -> None:
        """Give up the line and everything that belongs to it."""


@dataclass(frozen=True, slots=True)
class Inheritance:
    """Workers of earlier daemons that are this daemon's.

    `workers` have rows; `choose` says which of those that live go on. `unlisted` live without a
    row, and do not go on. `owns` says whether what a worker of this cookie has started is this
    daemon's.
    """

    workers: Sequence[WorkerRecord]
    choose: Callable[[Sequence[WorkerRecord]], Collection[WorkerRecord]]
    unlisted: Sequence[Unlisted] = ()
    owns: Callable[[str], bool] = lambda _: False


class Launcher(Protocol):
    """Launches workers, finds those of earlier daemons, and removes what dead ones have left."""

    whereabouts: Whereabouts

    async def warm(self) -> None:
        """Prepare, so that the first launch is fast."""

    async def launch(self, spec: LaunchSpec) -> Channel:
        """A new worker; raises LaunchFailed."""

    async def recover(self, inherited: Inheritance) -> list[WorkerRecord]:
        """End the claimed workers that do not go on, with all that they have started; returns those
        that do.
        """

    async def attach(self, worker: WorkerRecord) -> Channel:
        """The line to a worker that another daemon launched; raises LaunchFailed when
        it is gone.
        """

    async def end(self, worker: WorkerRecord, grace: float) -> None:
        """End a worker that there is no line to: ask it, after `grace` (s) kill it."""

    async def deliver_spool(self, worker: WorkerIdentity, after: int, into: Deliver) -> None:
        """Hand `into` what a dead worker has told after frame `after`, and nobody has taken; raises
        what `into` does.

        A Gap takes the place of frames that cannot be read, or that `into` refuses. Raises OSError
        if the spool cannot be read now.
        """

    async def clean(
        self, worker: WorkerIdentity, grace: float, *, keep_spool: bool = False
    ) -> None:
        """End what a dead worker has started, which gets `grace` (s) for it, and `discard` the
        worker.
        """

    async def discard(self, worker: WorkerIdentity, *, keep_spool: bool = False) -> None:
        """Remove what a dead worker has left; `keep_spool`: that could not be taken yet."""

    async def damaged_spools(self, instances: Collection[str]) -> list[str]:
        """Where spools of workers of these instances are kept that could not be read whole, the
        oldest first.
        """

    async def prepare(
        self, instance: str, kept: Collection[WorkerRecord], *, spare: bool = False
    ) -> None:
        """Make room for the instance's workers, and remove what is neither of `kept` ones nor to be
        spared.

        Raises ConfigurationError if others can use it.
        """

    async def probe(self) -> None:
        """Returns when launches are possible, for all it knows; raises RestartWanted when only a
        new daemon can.
        """

    async def close(self) -> None:
        """Give back everything but workers that outlive their daemon."""
