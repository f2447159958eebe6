"""What all parts of the database have in common."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.system.clock import Clock


class Store(Protocol):
    """A part of the database, as sessions see it. Every method that writes returns after the
    commit.

    While the database cannot be written, a method that carries out a request raises
    StoreUnavailable at once. One that records what has happened already waits instead; its
    docstring or its parameter `patient` says so. All raise StoreClosed once the server stops.
    """

    @property
    def clock(self) -> Clock:
        """The data directory's own clock, which decides about ages and deadlines."""

    @property
    def troubles(self) -> int:
        """How many times the database has become unwritable."""

    def require_writable(self) -> None:
        """Raises StoreUnavailable while the database cannot be written."""

    async def writable(self) -> None:
        """Wait until the database can be written."""

    async def note_time(self) -> None:
        """Record the reading of the own clock, from which the next boot counts on."""
