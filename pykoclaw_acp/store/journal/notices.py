"""Notices, over `store/notices.py`."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.notices import (
    DeliveryTarget,
    DueNotification,
    EndedTurn,
    Notice,
    NotificationOutcome,
    WaitingRequest,
)
from pykoclaw_acp.store import notices, permissions
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Unit


class SqlNoticeStore(SqlStore):
    """Implements `notify.ports.NoticeStore`."""

    async def begin(self) -> tuple[list[str], list[str]]:
        """Turns that ended, and permission requests that became pending, without a notice, since
        notices are on; from now on if they were off.
        """
        since = await notices.since(self._database)
        if since is None:
            await self._run(notices.switch_on(self.clock.now()), patient=True)
            return [], await notices.missed_requests(self._database)
        turns = await notices.missed_turns(self._database, since)
        return turns, await notices.missed_requests(self._database)

    async def forget_old(self) -> None:
        """Delete notices of long ago that nobody has to accept or to answer any more."""
        await notices.forget_old(self._database, self.clock.now() - notices.KEPT)

    async def switch_off(self) -> None:
        """The setting names nobody: what waits is not told later, either."""
        if not await notices.is_off(self._database):
            await self._commit(Unit(notices.switch_off()), patient=True)

    async def ended_turn(self, turn_id: str) -> EndedTurn | None:
        """An ended turn of a person's session; None if it has a notice already, or cannot be read."""
        return await notices.ended_turn(self._database, turn_id)

    async def waiting_request(self, ask_id: str) -> WaitingRequest | None:
        """A pending request of a person's session; None if it has a notice already, or cannot be
        read.
        """
        return await notices.waiting_request(self._database, ask_id)

    async def is_pending(self, ask_id: str) -> bool:
        """Whether the request is pending."""
        return await permissions.is_open(self._database, ask_id)

    async def add(
        self, notice: Notice, body: str, keys: Sequence[str], deliveries: Sequence[DeliveryTarget]
    ) -> bool:
        """Record a notice, what `keys` are to accept, and its deliveries, together; False if it
        exists, or its session was deleted.
        """
        now = self.clock.now()
        statements = (
            notices.insert(notice, body, now),
            *(notices.ask(notice, key, now) for key in keys),
            *(notices.deliver(notice, target) for target in deliveries),
        )
        try:
            await self._commit(Unit(statements, durable=True), patient=True)
        except Conflict:
            return False
        return True

    async def settle_until(self, moment: int) -> None:
        """What ended until then (ms, own clock) was decided; no effect if the database could not be
        written since then: ends that waited for it come only now.
        """
        await self.writable()
        if self.clock.at(round(self._database.condition.since * 1000)) <= moment:
            await self._run(notices.settle_until(moment), patient=True)

    async def remove_others(self, keys: Sequence[str]) -> None:
        """Targets that are not among these will not be asked again."""
        await self._run(notices.remove_others(keys), patient=True)

    async def due(self, key: str, until: int) -> list[DueNotification]:
        """Notifications that a target is to be told until then (ms, own clock); some of them."""
        return await notices.due(self._database, key, until)

    async def next_due(self, key: str) -> int | None:
        """When the target is to be told the next one (ms, own clock)."""
        return await notices.next_due(self._database, key)

    async def is_wanted(self, notice_id: str) -> bool:
        """Whether the notice's session was not deleted."""
        return await notices.is_wanted(self._database, notice_id)

    async def note_outcome(
        self, one: DueNotification, outcome: NotificationOutcome, reason: str | None = None
    ) -> None:
        """The target accepted the notice, or will not be asked again."""
        await self._run(notices.note_outcome(one, outcome, reason), patient=True)

    async def note_failure(self, one: DueNotification, reason: str, again: int) -> None:
        """The target did not accept the notice; it is tried again then (ms, own clock)."""
        await self._run(notices.note_failure(one, reason, again), patient=True)
