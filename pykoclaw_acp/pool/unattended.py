"""Workers and their files without a launcher: for commands while no daemon runs, and for a daemon
that starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pykoclaw_acp.link.places import Places


class UnattendedWorkers(Protocol):
    """What the launchers of a data directory have launched, seen without them."""

    def holds(self, data: str) -> bool:
        """Whether a live worker has its data directory there."""

    def processes(self) -> Mapping[str, int]:
        """The number of processes of each worker, by its session and epoch as `<session>:<epoch>`."""

    def end(self, grace: float) -> int:
        """End all processes of the workers, blocking; after `grace` (s) they are killed. Returns
        the number of workers.
        """

    def damaged_spools(self) -> list[str]:
        """Where the damaged spools are kept, the oldest first."""


def unattended(places: Places) -> UnattendedWorkers:
    """The workers of this data directory."""
    from pykoclaw_acp.pool.local_unattended import LocalUnattendedWorkers

    return LocalUnattendedWorkers(places)
