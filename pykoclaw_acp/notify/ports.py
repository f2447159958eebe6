"""What notices need from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykoclaw_acp.model.notices import (
    DeliveryTarget,
    DueNotification,
    EndedTurn,
    Notice,
    NotificationOutcome,
    WaitingRequest,
)
from pykoclaw_acp.system.clock import Clock


class NoticeStore(Protocol):
    """Notices in the database. Writes wait while it cannot be written."""

    @property
    def clock(self) -> Clock:
        """The data directory's own clock."""

    async def begin(self) -> tuple[list[str], list[str]]:
        """Turns that ended, and permission requests that became pending, without a notice, since
        notices are on; from now on if they were off.
        """

    async def ended_turn(self, turn_id: str) -> EndedTurn | None:
        """An ended turn of a person's session, or of a task's; None if it has a notice already, or
        cannot be read.
        """

    async def waiting_request(self, ask_id: str) -> WaitingRequest | None:
        """A pending request of a person's session, or of a task's; None if it has a notice already,
        or cannot be read.
        """

    async def is_pending(self, ask_id: str) -> bool:
        """Whether the request is pending."""

    async def add(
        self, notice: Notice, body: str, keys: Sequence[str], deliveries: Sequence[DeliveryTarget]
    ) -> bool:
        """Record a notice, what `keys` are to accept, and its deliveries, together; False if it
        exists, or its session was deleted.
        """

    async def settle_until(self, moment: int) -> None:
        """What ended until then (ms, own clock) was decided, but for ends that waited for the
        database.
        """

    async def remove_others(self, keys: Sequence[str]) -> None:
        """Targets that are not among these will not be asked again."""

    async def due(self, key: str, until: int) -> list[DueNotification]:
        """Notifications that a target is to be told until then (ms, own clock); some of them."""

    async def next_due(self, key: str) -> int | None:
        """When the target is to be told the next one (ms, own clock)."""

    async def is_wanted(self, notice_id: str) -> bool:
        """Whether the notice's session was not deleted."""

    async def note_outcome(
        self, one: DueNotification, outcome: NotificationOutcome, reason: str | None = None
    ) -> None:
        """The target accepted the notice, or will not be asked again."""

    async def note_failure(self, one: DueNotification, reason: str, again: int) -> None:
        """The target did not accept the notice; it is tried again then (ms, own clock)."""
