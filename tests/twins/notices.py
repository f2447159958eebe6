"""The twin of `notify.ports.NoticeStore`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from pykoclaw_acp.model.notices import (
    DeliveryTarget,
    DueNotification,
    EndedTurn,
    Notice,
    NoticeSession,
    NotificationOutcome,
    WaitingRequest,
)
from pykoclaw_acp.model.permissions import RequestPolicy
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.store.notices import AT_A_TIME, TASK_ID
from tests.twins.base import MemoryStore
from tests.twins.database import TurnRow
from tests.twins.rows import NoticeRow, NotificationRow, QueuedDelivery


class MemoryNoticeStore(MemoryStore):
    async def begin(self) -> tuple[list[str], list[str]]:
        tables = self.database.read()
        questions = [
            ask_id
            for ask_id, one in tables.requests.items()
            if one.outcome is None
            and one.policy != RequestPolicy.ATTENDED
            and self._place(one.session_id) is not None
            and f"question-{ask_id}" not in tables.notices
        ]
        since = tables.noticing_since
        if since is None:

            def switch_on() -> None:
                tables.noticing_since = self.clock.now()

            await self.database.write(switch_on, patient=True)
            return [], questions
        ended = [
            (one.ended_clock, one.turn_id)
            for one in tables.turns.values()
            if one.ended_clock is not None
            and one.ended_clock >= since
            and one.state != TurnState.CANCELLED
            and self._place(one.session_id) is not None
            and f"turn-{one.turn_id}" not in tables.notices
        ]
        return [turn_id for _, turn_id in sorted(ended, key=lambda one: one[0])], questions

    def _place(self, session_id: str) -> NoticeSession | None:
        """The session, if it is a person's, or that of a run."""
        rows = self.database.sessions
        row = rows.get(session_id)
        if row is None or row.deleted:
            return None
        runs = [one.run for one in self.database.runs.values()]
        tasks = [one.task for one in runs if one.aside and one.session_id == session_id]
        one, name = row.record, row.record.conversation_name
        if one.auxiliary:
            if not tasks:
                return None
            name = tasks[0].conversation
        titles = [
            other.record.title
            for other in rows.values()
            if tasks and other.record.conversation_name == tasks[0].conversation
            if other.alias_of is None and not other.deleted
        ]
        return NoticeSession(session_id, name, one.title or next(iter(titles), None), one.cwd)

    def _of_task(self, session_id: str, turn_id: str | None) -> bool:
        turn = self.database.turns.get(turn_id or "")
        auxiliary = self.database.sessions[session_id].record.auxiliary
        return auxiliary or (turn is not None and turn.task_id is not None)

    async def ended_turn(self, turn_id: str) -> EndedTurn | None:
        tables = self.database.read()
        row = tables.turns.get(turn_id)
        if row is None or row.outcome is None or f"turn-{turn_id}" in tables.notices:
            return None
        place = self._place(row.session_id)
        outcome = replace(
            row.outcome,
            usage=None,
            claude_session_id=None,
            last_uuid=None,
            goes_on_at=None,
            tries=0,
        )
        if place is None:
            return None
        of_task = self._of_task(row.session_id, turn_id)
        delivered = of_task and row.state == TurnState.DONE
        watched = row.answered or delivered or self._shown(row)
        return EndedTurn(turn_id, place, outcome, row.ended_at, watched, of_task=of_task)

    def _shown(self, turn: TurnRow) -> bool:
        """Whether some client was shown the turn's end, under any id of the session."""
        sessions = self.database.sessions
        ids = {key for key, one in sessions.items() if turn.session_id in (key, one.alias_of)}
        cursors = self.database.cursors.items()
        return any(key[0] in ids and one.seq >= turn.last_seq for key, one in cursors)

    async def waiting_request(self, ask_id: str) -> WaitingRequest | None:
        tables = self.database.read()
        one = tables.requests.get(ask_id)
        if one is None or one.outcome is not None or f"question-{ask_id}" in tables.notices:
            return None
        place = self._place(one.session_id)
        if place is None:
            return None
        of_task = self._of_task(one.session_id, one.turn_id)
        return WaitingRequest(place, one.request, one.policy, one.asked_at, of_task=of_task)

    async def is_pending(self, ask_id: str) -> bool:
        known = self.database.read().requests.get(ask_id)
        return known is not None and known.outcome is None

    async def add(
        self, notice: Notice, body: str, keys: Sequence[str], deliveries: Sequence[DeliveryTarget]
    ) -> bool:
        def add() -> bool:
            tables, one = self.database, notice.notice_id
            if one in tables.notices or self._is_gone(notice):
                return False
            tables.notices[one] = NoticeRow(notice, body, self.clock.now())
            for key in keys:
                tables.notifications[one, key] = NotificationRow(self.clock.now())
            for target in deliveries:
                self._deliver(notice, target)
            return True

        return await self.database.write(add, patient=True)

    def _is_gone(self, notice: Notice) -> bool:
        row = self.database.sessions.get(notice.place.session_id)
        return row is not None and row.gone

    def _deliver(self, notice: Notice, target: DeliveryTarget) -> None:
        """Under an id of the notice and the conversation, so that it is there once."""
        to = target.conversation
        made = hashlib.sha256(f"{notice.notice_id} {to}".encode()).hexdigest()[:12]
        if all(row.delivery_id != made for row in self.database.delivery_queue.values()):
            self.database.enqueue(QueuedDelivery(made, to, notice.text, target.prefix, TASK_ID))

    async def settle_until(self, moment: int) -> None:
        def settle() -> None:
            since = self.database.noticing_since
            self.database.noticing_since = None if since is None else max(since, moment)

        await self.database.write(settle, patient=True)

    async def remove_others(self, keys: Sequence[str]) -> None:
        def remove() -> None:
            rows = self.database.notifications
            for key, row in rows.items():
                if row.outcome is None and key[1] not in keys:
                    rows[key] = replace(row, outcome=NotificationOutcome.REMOVED)

        await self.database.write(remove, patient=True)

    async def due(self, key: str, until: int) -> list[DueNotification]:
        tables = self.database.read()
        waiting = [
            (row.due, one, row)
            for one, row in tables.notifications.items()
            if row.outcome is None and row.due <= until and one[1] == key
        ]
        found: list[DueNotification] = []
        for _, (notice_id, target), row in sorted(waiting, key=lambda one: one[0])[:AT_A_TIME]:
            notice = tables.notices[notice_id]
            age, kind = max(until - notice.made, 0) / 1000, notice.notice.kind
            found.append(DueNotification(notice_id, target, kind, notice.body, row.attempts, age))
        return found

    async def next_due(self, key: str) -> int | None:
        rows = self.database.read().notifications.items()
        waiting = (row.due for one, row in rows if row.outcome is None and one[1] == key)
        return min(waiting, default=None)

    async def is_wanted(self, notice_id: str) -> bool:
        row = self.database.read().notices.get(notice_id)
        return row is not None and not self._is_gone(row.notice)

    async def note_outcome(
        self, one: DueNotification, outcome: NotificationOutcome, reason: str | None = None
    ) -> None:
        def note() -> None:
            row = self.database.notifications.get((one.notice_id, one.target))
            if row is not None and row.outcome is None:
                self.database.notifications[one.notice_id, one.target] = replace(
                    row, outcome=outcome, attempts=row.attempts + 1
                )

        await self.database.write(note, patient=True)

    async def note_failure(self, one: DueNotification, reason: str, again: int) -> None:
        def note() -> None:
            row = self.database.notifications.get((one.notice_id, one.target))
            if row is not None:
                self.database.notifications[one.notice_id, one.target] = replace(
                    row, due=again, attempts=row.attempts + 1
                )

        await self.database.write(note, patient=True)
