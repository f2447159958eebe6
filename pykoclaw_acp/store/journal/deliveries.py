"""Deliveries, over `store/deliveries.py`: what is shown is committed with what says so."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import structlog

from pykoclaw_acp.model import deliveries as rules
from pykoclaw_acp.model.deliveries import Delivery, ImportedDelivery, WaitingDeliveries
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.store import deliveries, events, imports, notes, sessions
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Unit

MOST_NAMED: Final = 500  # rows in a commit

log: Final = structlog.get_logger()


class SqlDeliveryStore(SqlStore):
    """Implements `sessions.ports.deliveries.DeliveryStore`."""

    async def waiting(self) -> list[WaitingDeliveries]:
        """Deliveries for conversations that have a session, or had one, by session."""
        while True:
            found, unnamed = await deliveries.waiting(self._database)
            if not unnamed:
                return found
            some = unnamed[:MOST_NAMED]
            await self._commit(Unit(tuple(deliveries.give_id(one, str(uuid4())) for one in some)))
            log.warning(
                "Deliveries that had no id, or one that is no text, were given one",
                action="deliveries_named",
                count=len(some),
            )

    async def delivery(self, delivery_id: str) -> Delivery | None:
        """A delivery, if it still waits."""
        return await deliveries.find(self._database, delivery_id)

    async def taken_in(
        self, session_id: str, delivery: Delivery, after: int
    ) -> list[ImportedDelivery]:
        """Imported turns that said what is delivered."""
        return await deliveries.taken_in(self._database, session_id, delivery, after)

    async def has_twin(self, delivery: Delivery) -> bool:
        """Whether the task's result with this text was delivered a moment before."""
        return await deliveries.has_twin(self._database, delivery)

    async def deliver(
        self, session_id: str, delivery: Delivery, *, known: ImportedDelivery | None = None
    ) -> tuple[list[int], list[Event]]:
        """Log the message, add a note for Claude, and mark the delivery as delivered."""
        said = rules.shown(delivery) if known is None else []
        statements = deliveries.delivered(delivery.delivery_id)
        new = known is None or await imports.is_lacking(self._database, session_id, known.prompt)
        if new and not delivery.is_empty:
            note, after = rules.note(delivery), None if known is None else known.seq
            statements = (
                *statements,
                sessions.received(session_id, self.clock.now()),
                notes.add(session_id, note.note_id, note.text, after),
            )
        return await self._commit(Unit(statements, events.rows(session_id, None, said))), said

    async def count_attempt(self, delivery_id: str, reason: str) -> int:
        """Note that a delivery could not be shown; returns how often that has happened."""
        await self._run(deliveries.count_attempt(delivery_id, reason))
        return await deliveries.attempts(self._database, delivery_id)

    async def give_up(self, delivery_id: str, reason: str) -> None:
        """End a delivery as failed."""
        counted = deliveries.count_attempt(delivery_id, reason)
        await self._commit(Unit((counted, deliveries.failed(delivery_id))))
