"""Messages that other programs deliver to conversations."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.model.deliveries import Delivery, ImportedDelivery, WaitingDeliveries
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.sessions.ports.store import Store


class DeliveryStore(Store, Protocol):
    """The queue of deliveries, of which each ends `delivered` or `failed`, once."""

    async def waiting(self) -> list[WaitingDeliveries]:
        """Deliveries for conversations that have a session, or had one, by session.

        Those without an id that names them are given one.
        """

    async def delivery(self, delivery_id: str) -> Delivery | None:
        """A delivery, if it still waits."""

    async def taken_in(
        self, session_id: str, delivery: Delivery, after: int
    ) -> list[ImportedDelivery]:
        """Turns above `after` that were imported from a transcript and said what is delivered, the
        newest first.
        """

    async def has_twin(self, delivery: Delivery) -> bool:
        """Whether the task's result with this text was delivered within the time of one run."""

    async def deliver(
        self, session_id: str, delivery: Delivery, *, known: ImportedDelivery | None = None
    ) -> tuple[list[int], list[Event]]:
        """Log the message, add a note for Claude, and mark the delivery as delivered, in one
        commit. `known`: the log has it as this turn; there is a note only if Claude lacks that, and
        it was not rewound.

        Returns the seqs and the events; none of an empty message. Raises Conflict if the delivery
        does not wait any more, or the session is gone.
        """

    async def count_attempt(self, delivery_id: str, reason: str) -> int:
        """Note that a delivery could not be shown; returns how often that has happened."""

    async def give_up(self, delivery_id: str, reason: str) -> None:
        """End a delivery as failed."""
