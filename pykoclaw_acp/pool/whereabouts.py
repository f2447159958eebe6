"""Which data directory a worker works for: a read-only view that disturbs neither the worker nor
its daemon.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pykoclaw_acp.channel.frames import Place
from pykoclaw_acp.channel.processes import WorkerProcess, WorkerRecord
from pykoclaw_acp.link.records import Site

Direction = Literal["here", "elsewhere", "deleted", "unknown"]


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where a worker's data directory is, compared with ours; `answer` is what it said, None if it
    said nothing.
    """

    direction: Direction
    attached: bool = False  # it serves a daemon, which is not this one
    answer: Place | None = None


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A live worker that has no row; `cookie` is what its children have in their environment, None
    if it has none.
    """

    process: WorkerProcess
    direction: Direction
    cookie: str | None


class Whereabouts(Protocol):
    """Sees workers from outside."""

    def lives(self, worker: WorkerRecord) -> bool:
        """Whether it lives, and is not about to end."""

    async def locate(self, worker: WorkerRecord, here: Site) -> Sighting:
        """Where the data directory of this worker is, which lives."""

    def survey(self, here: Site, listed: Collection[WorkerRecord]) -> list[Unlisted]:
        """All live workers of this user but those `listed`."""

    def launched_for(self, worker: WorkerRecord) -> str:
        """The data directory that the worker was launched for; what is known instead if that is
        not.
        """

    def memory(self, workers: Sequence[WorkerRecord]) -> list[int | None]:
        """Bytes that each worker uses, with all that it has started; None if it does not live, or
        that cannot be read.
        """

    def server_memory(self, workers: Collection[WorkerRecord]) -> int | None:
        """Bytes that this process uses, with what launches `workers` for it and without them; None
        if that cannot be read.
        """

    def sessions(self, workers: Collection[WorkerRecord]) -> dict[tuple[int, int], str]:
        """Sessions by pid and start time, of those workers that are processes of this boot of this
        machine.
        """
