"""A session's log of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykoclaw_acp.model.events import Event, PlanEntry
from pykoclaw_acp.model.log import Logged, TurnsPlace
from pykoclaw_acp.model.seams import CutMessage
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.sessions.ports.store import Store


class LogStore(Store, Protocol):
    """Events under seqs from 1, without a gap."""

    async def append(
        self,
        session_id: str,
        events: Sequence[Event],
        *,
        options: SessionOptions | None = None,
        patient: bool = False,
    ) -> list[int]:
        """Log events that belong to no turn, and with them, if any are given, the session's options;
        returns their seqs. Raises Conflict if there is no such session, or it was deleted.
        """

    async def last_plan(self, session_id: str, upto: int | None = None) -> tuple[PlanEntry, ...]:
        """The entries of the newest plan in the newest part of the log, or of the log up to this
        place; empty if there is none.
        """

    async def read(self, session_id: str, after: int, limit: int) -> list[Logged]:
        """The events after a cursor, in order, `limit` rows at most; pieces of a message may come
        as one event.
        """

    async def plan_goes_on(self, session_id: str, seq: int) -> bool:
        """Whether the same imported turn has a later list of tasks than the one at this place."""

    async def last_turns(self, session_id: str, turns: int) -> TurnsPlace:
        """Where the newest `turns` turns begin; at 0 if there are no more."""

    async def in_effect(self, session_id: str, upto: int) -> list[Logged]:
        """The newest events up to this place that still hold there: calls of tools that run, of the
        newest ones, with what they have shown; a plan that is not done; the title.
        """

    async def said_before(self, session_id: str, seq: int) -> CutMessage | None:
        """The message of Claude's that the newest event up to `seq` is a part of, if it is one."""
