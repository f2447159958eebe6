"""Sessions, over `store/sessions.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from pykoclaw_acp.errors import Conflict, SessionUnreadable
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import (
    deletion,
    events,
    limit_waits,
    merging,
    readable,
    session_environment,
    sessions,
    turns,
    workers,
)
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Unit

if TYPE_CHECKING:
    from pykoclaw_acp.model.away import AwayPolicy


class SqlSessionStore(SqlStore):
    """Implements `sessions.ports.SessionStore`."""

    async def create(self, record: SessionRecord) -> None:
        """Insert a session and its conversation, durably."""
        begun = session_environment.begin(record.session_id, record.environment)
        inserted = sessions.insert(record, self.clock.now())
        await self._commit(Unit(statements=(*inserted, *begun), durable=True))

    async def find(self, session_id: str) -> SessionRecord | None:
        """The session that this id stands for; raises SessionUnreadable."""
        try:
            record = await sessions.find(self._database, session_id)
            if record is not None:
                record.environment = await session_environment.find(
                    self._database, record.session_id
                )
        except readable.ERRORS as error:
            raise SessionUnreadable(
                f"What the database has of the session {session_id} is damaged ({type(error).__name__}: {error})."
                " Nothing of it was changed, and other sessions go on. Restore a backup, or repair its row in"
                " acp_sessions.",
                {"sessionId": session_id},
            ) from error
        return record

    async def find_created(self, request_key: str) -> str | None:
        """Id of the session that this request has created."""
        return await sessions.find_created(self._database, request_key)

    async def was_taken(self, request_key: str) -> bool:
        """Whether this request has made a session or a turn."""
        return await self.find_created(request_key) is not None or await turns.exists(
            self._database, request_key
        )

    async def id_taken(self, session_id: str) -> bool:
        """Whether a session has or had this id, or a conversation a Claude session of it."""
        return await sessions.id_taken(self._database, session_id)

    async def name_taken(self, name: str) -> bool:
        """Whether a conversation of any channel has this name."""
        return await sessions.name_taken(self._database, name)

    async def current_seq(self, session_id: str, seq: int) -> int:
        """The `seq` that an event of this id's log has now."""
        return await merging.moved(self._database, session_id, seq)

    async def inherited_end(self, session_id: str) -> int | None:
        """Where the session's log ended before this process wrote to it; None: it has not."""
        rows = await self._database.read(
            "SELECT log_key FROM acp_sessions WHERE acp_session_id = ?", (session_id,)
        )
        return self._database.inherited.get(rows[0][0]) if rows else None

    async def reopen(self, record: SessionRecord, said: Sequence[Event] = ()) -> list[int]:
        """Reopen the session with the record's directories and environment, and log events with it."""
        session_id, now = record.session_id, self.clock.now()
        kept = session_environment.keep(session_id, record.environment)
        used = (sessions.used(session_id, now),) if said else ()
        unit = Unit(
            (sessions.reopen(record, now), kept, *used), events.rows(session_id, None, said)
        )
        return await self._commit(unit, patient=True)

    async def outdate_worker(self, session_id: str, *, spare: bool) -> None:
        """The next prompt is not for the worker that the session has."""
        await self._run(workers.outdate(session_id, spare=spare), patient=True)

    async def mark_closed(self, session_id: str) -> None:
        """The client has closed the session, which waits for nothing any more."""
        unit = Unit((sessions.close(session_id), limit_waits.forget(session_id)))
        await self._commit(unit)

    async def set_away_policy(
        self, session_id: str, policy: AwayPolicy | None, *, patient: bool = False
    ) -> None:
        """The session's own away policy."""
        await self._run(sessions.set_away_policy(session_id, policy), patient=patient)

    async def set_steering(self, session_id: str, *, steers: bool) -> None:
        """Whether prompts go into the running turn unless they say otherwise."""
        await self._run(sessions.set_steering(session_id, steers=steers))

    async def delete(
        self,
        session_id: str,
        hidden: Callable[[], object] = lambda: None,
        transcripts: Collection[str] = (),
    ) -> None:
        """Hide the session for ever, and delete its contents."""
        await deletion.delete(self._database, session_id, hidden, transcripts)

    async def unused(self, before: int) -> list[str]:
        """Sessions that may be pruned."""
        return await sessions.unused(self._database, before)

    async def prune(
        self, session_id: str, before: int, hidden: Callable[[], object] = lambda: None
    ) -> bool:
        """Hide the session, if it is still unused, and delete the contents."""
        try:
            unit = Unit(statements=sessions.prune(session_id, before), renumbers=True)
            await self._commit(unit)
        except Conflict:
            return False
        hidden()
        await deletion.empty(self._database, session_id)
        return True
