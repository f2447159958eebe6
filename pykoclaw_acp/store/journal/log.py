"""Sessions' logs, over `store/events.py`."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged, PlanEntry, TitleChanged
from pykoclaw_acp.model.log import Logged, TurnsPlace
from pykoclaw_acp.model.seams import CutMessage
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.store import events, last_turns, seams, session_options, sessions
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Unit


class SqlLogStore(SqlStore):
    """Implements `sessions.ports.LogStore`."""

    async def append(
        self,
        session_id: str,
        said: Sequence[Event],
        *,
        options: SessionOptions | None = None,
        patient: bool = False,
    ) -> list[int]:
        """Log events that belong to no turn, and store the session's options with them."""
        choices = all(isinstance(one, TitleChanged | ModeChanged | ConfigChanged) for one in said)
        used = sessions.chosen if choices else sessions.used
        kept = () if options is None else (session_options.keep(session_id, options),)
        follow = sessions.follow(session_id, said)
        statements = (*follow, used(session_id, self.clock.now()), *kept)
        return await self._commit(
            Unit(statements, events.rows(session_id, None, said)), patient=patient
        )

    async def last_plan(self, session_id: str, upto: int | None = None) -> tuple[PlanEntry, ...]:
        """The entries of the newest plan in the newest part of the log."""
        return await events.last_plan(self._database, session_id, upto)

    async def read(self, session_id: str, after: int, limit: int) -> list[Logged]:
        """The events after a cursor, in order."""
        return await events.read(self._database, session_id, after, limit)

    async def plan_goes_on(self, session_id: str, seq: int) -> bool:
        """Whether the same imported turn has a later list of tasks than the one at this place."""
        return await events.plan_goes_on(self._database, session_id, seq)

    async def last_turns(self, session_id: str, turns: int) -> TurnsPlace:
        """Where the newest `turns` turns begin; at 0 if there are no more."""
        return await last_turns.find(self._database, session_id, turns)

    async def in_effect(self, session_id: str, upto: int) -> list[Logged]:
        """The newest events up to this place that still hold there."""
        return await last_turns.in_effect(self._database, session_id, upto)

    async def said_before(self, session_id: str, seq: int) -> CutMessage | None:
        """The message of Claude's that the newest event up to `seq` is a part of, if it is one."""
        return await seams.said_before(self._database, session_id, seq, self.clock.now())
