"""Forks and rewinding, over `store/branches.py` and `store/forking.py`."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.model.branches import Fork, ForkedAt, ForkPoint, RewindPoint, Rewound
from pykoclaw_acp.model.events import Event, OpenTools
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import branches, events, forking, limit_waits, permissions, sessions
from pykoclaw_acp.store.journal.making import SqlMakingStore
from pykoclaw_acp.store.units import Unit


class SqlBranchStore(SqlMakingStore):
    """Implements `sessions.ports.branches.BranchStore`."""

    async def point(
        self, record: SessionRecord, last_seq: int, message_id: str | None
    ) -> ForkPoint:
        """The end of the turn of a message, or of the last turn that has ended."""
        return await branches.point(self._database, record, last_seq, message_id)

    async def rewind_point(self, record: SessionRecord, message_id: str | None) -> RewindPoint:
        """The beginning of the turn of a message; without one, of the newest prompt."""
        return await branches.rewind_point(self._database, record, message_id)

    async def rewound(self, request_key: str) -> Rewound | None:
        """What the rewind of this request has changed."""
        return await branches.rewound(self._database, request_key)

    async def begin_rewind(self, session_id: str, planned: Rewound) -> None:
        """Keep what a rewind is about to change."""
        await self._commit(Unit((branches.begin_rewind(session_id, planned),), durable=True))

    async def begun_rewind(self, session_id: str) -> Rewound | None:
        """What a rewind of the session that is not done was about to change."""
        return await branches.rewound(self._database, branches.begun(session_id))

    async def rewind(
        self,
        session_id: str,
        point: RewindPoint,
        said: Sequence[Event],
        done: Rewound,
        *,
        note: Note | None,
        request_key: str | None,
    ) -> list[int]:
        """Let Claude forget what came from there on, when it is prompted next; nothing goes on with
        it by itself, or by an answer to a parked request. Waits while the database cannot be written.
        """
        statements = (
            *branches.rewind(session_id, point, done, note, request_key),
            limit_waits.forget(session_id),
            permissions.interrupt_parked(session_id),
        )
        rows = events.rows(session_id, None, said)
        return await self._commit(Unit(statements, rows, durable=True), patient=True)

    async def parked(self, session_id: str, before: str) -> set[str]:
        """Ids of the session's parked requests that a rewind to this turn leaves pending."""
        return await permissions.parked_before(self._database, session_id, before)

    async def open_tools(self, session_id: str, upto: int) -> OpenTools:
        """Tool calls up to this place that end later, or not at all."""
        return await events.open_tools_upto(self._database, session_id, upto)

    async def find_created(self, request_key: str) -> str | None:
        """Id of the session that this request has created."""
        return await sessions.find_created(self._database, request_key)

    async def forked_at(self, session_id: str) -> ForkedAt | None:
        """Where this fork was made."""
        return await forking.forked_at(self._database, session_id)

    async def fork(self, fork: Fork) -> None:
        """Make a fork."""
        await forking.fork(self._database, fork, self.clock.now())
