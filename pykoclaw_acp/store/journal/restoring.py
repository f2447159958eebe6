"""Sessions that are made of an export, in the database; hidden until they are whole, as forks are
(`store/forking.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Final

from pykoclaw_acp.model import blobs as model_blobs
from pykoclaw_acp.model.events import Event, UserMessage
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import blobs, events, notes, session_environment, sessions
from pykoclaw_acp.store.journal.detaching import Detaching
from pykoclaw_acp.store.journal.making import SqlMakingStore
from pykoclaw_acp.store.units import Statement, Unit
from pykoclaw_acp.tasks import in_pieces

_HIDE: Final = "UPDATE acp_sessions SET deleted_at = 0 WHERE acp_session_id = ?"
_SHOW: Final = (
    "UPDATE acp_sessions SET deleted_at = NULL, prompted_at = ?, updated_at = ?, used_clock = ?"
    " WHERE acp_session_id = ? AND deleted_at = 0"
)


class SqlRestoreStore(SqlMakingStore):
    """Implements `sessions.ports.restoring.RestoreStore`."""

    async def begin_restoring(self, record: SessionRecord) -> None:
        """Insert the session, hidden; its conversation follows with the end."""
        self.require_writable()
        session, _, *more = sessions.insert(record, self.clock.now())
        begun = session_environment.begin(record.session_id, record.environment)
        hide = Statement(_HIDE, (record.session_id,), rows=1)
        await self._commit(Unit((session, *more, *begun, hide)))

    async def restore(
        self, session_id: str, at: int, said: Sequence[Event], data: Mapping[str, bytes]
    ) -> None:
        """Append events."""
        detaching = Detaching(dict(data))
        light = await in_pieces(_light(detaching, said))
        prompts = [one.content for one in light if isinstance(one, UserMessage)]
        names = dict.fromkeys([*detaching.data, *model_blobs.names(prompts)])
        rows = tuple(
            events.imported(session_id, f"import:{n}", event) for n, event in enumerate(light, at)
        )
        async with self._database.blobs.kept(detaching.data):
            await self._commit(Unit(tuple(blobs.use(session_id, names)), rows))

    async def end_restoring(
        self, record: SessionRecord, said: Sequence[Event], note: Note | None
    ) -> None:
        """Show the session."""
        own, at, clock = record.session_id, sessions.now_ms(), self.clock.now()
        _, conversation, *_ = sessions.insert(record, clock)
        statements = [Statement(_SHOW, (at, at, clock, own), rows=1), conversation]
        statements += sessions.follow(own, said)
        if note is not None:
            statements.append(notes.add(own, note.note_id, note.text))
        await self._commit(Unit(tuple(statements), events.rows(own, None, said), durable=True))


def _light(detaching: Detaching, said: Sequence[Event]) -> Generator[None, None, list[Event]]:
    """The events without their images, in steps."""
    done: list[Event] = []
    for event in said:
        done.append((yield from detaching.event(event)))
        yield
    return done
