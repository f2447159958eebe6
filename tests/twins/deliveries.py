"""The twin of `sessions.ports.deliveries.DeliveryStore`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model import deliveries as rules
from pykoclaw_acp.model.conversations import NAME_LENGTH, OWN
from pykoclaw_acp.model.deliveries import (
    LONGEST,
    SENT,
    Delivery,
    ImportedDelivery,
    WaitingDeliveries,
)
from pykoclaw_acp.model.events import Event, UserMessage
from pykoclaw_acp.model.imports import chain
from pykoclaw_acp.store.deliveries import PROMPT
from tests.twins.base import MemoryStore
from tests.twins.database import SessionRow
from tests.twins.rows import QueuedDelivery


class MemoryDeliveryStore(MemoryStore):
    async def waiting(self) -> list[WaitingDeliveries]:
        found = self._waiting()
        unnamed = [key for key, row, _ in found if row.delivery_id is None]
        if unnamed:
            await self.database.write(lambda: self._give_ids(unnamed))
        waiting: dict[str, WaitingDeliveries] = {}
        for _, row, owner in sorted(self._waiting(), key=lambda one: one[1].created_at):
            session = owner.alias_of or owner.record.session_id
            of_session = waiting.setdefault(session, WaitingDeliveries(session, owner.gone, []))
            of_session.delivery_ids.append(row.delivery_id or "")
        return list(waiting.values())

    def _waiting(self) -> list[tuple[int, QueuedDelivery, SessionRow]]:
        pending = [
            (key, row)
            for key, row in self.database.read().delivery_queue.items()
            if row.status == "pending"
        ]
        owners = [(key, row, self._owner(row)) for key, row in pending]
        return [(key, row, owner) for key, row, owner in owners if owner is not None]

    def _owner(self, row: QueuedDelivery) -> SessionRow | None:
        """The session that is meant, rather one that was not deleted."""
        found = [
            one for one in self.database.sessions.values() if row.conversation in _names(row, one)
        ]
        return min(found, key=lambda one: one.gone, default=None)

    def _give_ids(self, keys: list[int]) -> None:
        for key in keys:
            self.database.delivery_queue[key] = replace(
                self.database.delivery_queue[key], delivery_id=str(uuid4())
            )

    async def delivery(self, delivery_id: str) -> Delivery | None:
        key = self._pending(delivery_id)
        if key is None:
            return None
        row = self.database.delivery_queue[key]
        task = self.database.tasks.get(row.task_id)
        own = row.task_id == SENT or (task is not None and task.conversation == row.conversation)
        prompt = "" if task is None else task.prompt[:PROMPT]
        text = row.message
        return Delivery(
            delivery_id, row.task_id, text[:LONGEST], len(text), row.created_at, own, prompt
        )

    def _pending(self, delivery_id: str) -> int | None:
        rows = self.database.read().delivery_queue.items()
        mine = (key for key, row in rows if row.delivery_id == delivery_id and _waits(row))
        return next(mine, None)

    async def taken_in(
        self, session_id: str, delivery: Delivery, after: int
    ) -> list[ImportedDelivery]:
        tables = self.database.read()
        sources = {seq: one for (owner, one), seq in tables.sources.items() if owner == session_id}
        found: list[ImportedDelivery] = []
        said: deque[tuple[str, Event | None]] = deque()
        for one in reversed(tables.logs.get(session_id, [])):
            if one.seq <= after or one.seq not in sources:
                continue
            said.appendleft((sources[one.seq].partition(":")[0], one.event))
            if isinstance(one.event, UserMessage):
                prompt = said[0][0]
                turn = tables.transcript_turns.get((session_id, prompt))
                end = rules.end_in(delivery, [event for _, event in said])
                if turn is not None and end is not None:
                    entry = said[end.position][0]
                    transcript = tables.transcripts[session_id, turn.claude_session_id]
                    if end.whole or turn.last_uuid == entry:
                        found.append(ImportedDelivery(one.seq, transcript.path, entry, prompt))
                said.clear()
        return found

    async def has_twin(self, delivery: Delivery) -> bool:
        rows = self.database.read().delivery_queue.values()
        mine = next(row for row in rows if row.delivery_id == delivery.delivery_id)
        same = (mine.channel, mine.task_id, mine.message)
        return any(
            row.status == "delivered"
            and (row.channel, row.task_id, row.message) == same
            and rules.is_of_run(delivery, rules.time_of(row.created_at))
            for row in rows
        )

    async def deliver(
        self, session_id: str, delivery: Delivery, *, known: ImportedDelivery | None = None
    ) -> tuple[list[int], list[Event]]:
        said = rules.shown(delivery) if known is None else []

        def deliver() -> list[int]:
            self._mark(delivery.delivery_id, "delivered")
            if delivery.is_empty or (known and not self._is_lacking(session_id, known)):
                return []
            row = self.database.session(session_id)
            if row.deleted:
                raise Conflict(f"the session {session_id} is gone")
            row.record.prompted, row.record.auxiliary, row.pruned = True, False, False
            self.database.used(session_id)
            note, after = rules.note(delivery), row.record.last_seq if known is None else known.seq
            self.database.notes.setdefault(note.note_id, (session_id, note.text))
            self.database.delivered_after[note.note_id] = after
            return self.database.log(session_id, None, said)

        return await self.database.write(deliver), said

    def _is_lacking(self, session_id: str, turn: ImportedDelivery) -> bool:
        tables = self.database
        if (session_id, turn.prompt) in tables.rewound_turns:
            return False
        if tables.session(session_id).record.branch is not None:
            return True
        row = tables.transcripts.get((session_id, tables.followed.get(session_id) or ""))
        turns = [one for (owner, _), one in tables.transcript_turns.items() if owner == session_id]
        parents = {one.uuid: one.parent for one in turns}
        return row is None or turn.prompt not in chain(parents, row.head)

    def _mark(self, delivery_id: str, status: str) -> None:
        key = self._pending(delivery_id)
        if key is None:
            raise Conflict(f"the delivery {delivery_id} does not wait")
        self.database.delivery_queue[key] = replace(
            self.database.delivery_queue[key], status=status
        )

    async def count_attempt(self, delivery_id: str, reason: str) -> int:
        return await self.database.write(lambda: self._count(delivery_id))

    def _count(self, delivery_id: str) -> int:
        self.database.attempts[delivery_id] = self.database.attempts.get(delivery_id, 0) + 1
        return self.database.attempts[delivery_id]

    async def give_up(self, delivery_id: str, reason: str) -> None:
        def give_up() -> None:
            self._count(delivery_id)
            if self._pending(delivery_id) is not None:
                self._mark(delivery_id, "failed")

        await self.database.write(give_up)


def _waits(row: QueuedDelivery) -> bool:
    return row.status == "pending"


def _names(row: QueuedDelivery, one: SessionRow) -> Iterator[str]:
    """What a delivery may call this session."""
    own = one.record.session_id
    if row.channel == OWN:
        yield from (one.record.conversation_name, f"{OWN}-{own}", own)
    elif len(row.channel) == NAME_LENGTH:  # of a target that is an id alone: its first part
        yield own
