"""Whether the log has what is delivered already, as a turn that another program ran: from its
transcript.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

import structlog

from pykoclaw_acp.model.deliveries import Delivery, ImportedDelivery, is_of_run
from pykoclaw_acp.retries import passes
from pykoclaw_acp.sessions.ports import DeliveryStore
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.system import disks
from pykoclaw_acp.transcripts.times import written_at

LOOKS: Final = (0.0, 0.3)  # s before each look for the transcript of what is delivered
MOST_LOOKS: Final = 8  # sessions of which the transcripts are looked at together

log: Final = structlog.get_logger()


@dataclass(slots=True)
class FoundTurns:
    """Turns that said what is delivered, by delivery, the newest first."""

    missing: list[str]  # deliveries of what was said in the conversation, without a turn until now
    turns: dict[str, list[ImportedDelivery]] = field(default_factory=dict)
    last_seq: int = -1  # the log's newest event as the turns were looked for


class DeliveredTurns:
    """Finds the turns of which deliveries are results. Each turn counts once."""

    def __init__(self, store: DeliveryStore) -> None:
        self._store = store
        self._room = asyncio.Semaphore(MOST_LOOKS)
        self._used: dict[str, int] = {}  # where the newest turn began that counted, by session

    async def find(self, session: Session, delivery_ids: Iterable[str]) -> FoundTurns:
        """Look for the turns of these deliveries. A program enqueues its answer when Claude has
        written that down, or is about to.
        """
        found = FoundTurns([one for one in delivery_ids if await self._own(one) is not None])
        if found.missing:
            async with self._room:
                for pause in LOOKS:
                    if found.missing:
                        await asyncio.sleep(pause)
                        await self._look(session, found)
        return found

    async def find_later(self, session: Session, found: FoundTurns) -> None:
        """Look again if anything happened: a turn that ran may have kept others from being taken in."""
        if found.missing and session.last_seq != found.last_seq:
            await self._look(session, found)

    async def _look(self, session: Session, found: FoundTurns) -> None:
        await session.others.look_if_possible()
        if session.last_seq == found.last_seq:
            return
        found.last_seq = session.last_seq
        for one in found.missing:
            if turns := await self._turns_of(session, one):
                found.turns[one] = turns
        found.missing = [one for one in found.missing if one not in found.turns]

    async def _turns_of(self, session: Session, delivery_id: str) -> list[ImportedDelivery]:
        """Turns that said this, at the time of its run: at another time it was another run's."""
        if (delivery := await self._own(delivery_id)) is None:
            return []
        try:
            said = await self._store.taken_in(session.id, delivery, self._used.get(session.id, 0))
            return [one for one in said if is_of_run(delivery, await _said_at(one))]
        except Exception as error:  # what is shown twice is read, what is not shown is lost
            if passes(error):
                raise
            log.exception(
                "A delivery is shown without a look for its turn",
                action="delivery_not_compared",
                delivery=delivery_id,
            )
            return []

    async def _own(self, delivery_id: str) -> Delivery | None:
        """The delivery, if it was said in the conversation that it is for and can be read."""
        try:
            delivery = await self._store.delivery(delivery_id)
        except Exception as error:  # which its delivery meets, too, and counts
            if passes(error):
                raise
            return None
        return delivery if delivery is not None and delivery.own else None

    async def standing_for(
        self, session: Session, delivery: Delivery, found: FoundTurns
    ) -> ImportedDelivery | None:
        """The turn that is this delivery's; None if it is to be shown."""
        used = self._used.get(session.id, 0)
        turns = found.turns.get(delivery.delivery_id, ())
        turn = next((one for one in turns if one.seq > used), None)
        if turn is None or await self._store.has_twin(delivery):  # which may be what it stands for
            return None
        return turn

    def use(self, session: Session, turn: ImportedDelivery) -> None:
        """This turn stood for a delivery."""
        self._used[session.id] = turn.seq


async def _said_at(one: ImportedDelivery) -> datetime | None:
    """When a turn said it; None if its transcript does not tell, or its disk does not answer."""
    try:
        return await disks.call(one.path, partial(written_at, one.path, one.entry))
    except TimeoutError:
        return None
