"""The twin of `sessions.ports.restoring.RestoreStore`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from tests.twins.database import SessionRow
from tests.twins.making import MemoryMakingStore


class MemoryRestoreStore(MemoryMakingStore):
    async def begin_restoring(self, record: SessionRecord) -> None:
        def begin() -> None:
            if record.session_id in self.database.sessions:
                raise RowRefused(record.session_id)
            self.database.sessions[record.session_id] = SessionRow(
                replace(record), self.clock.now(), deleted=True, hidden=True
            )

        await self.database.write(begin)

    async def restore(
        self, session_id: str, at: int, events: Sequence[Event], data: Mapping[str, bytes]
    ) -> None:
        def append() -> None:
            sources = [(session_id, f"import:{n}") for n in range(at, at + len(events))]
            if any(one in self.database.sources for one in sources):
                raise RowRefused("an event that was imported before")
            seqs = self.database.log(session_id, None, events)
            self.database.sources.update(zip(sources, seqs, strict=True))
            self.database.blobs.update(data)

        await self.database.write(append)

    async def end_restoring(
        self, record: SessionRecord, said: Sequence[Event], note: Note | None
    ) -> None:
        def show() -> None:
            row = self.database.session(record.session_id)
            if not row.hidden:
                raise Conflict(f"the session {record.session_id} is not being made")
            if record.conversation_name in self.database.claude_sessions:
                raise RowRefused(record.conversation_name)
            row.deleted = row.hidden = False
            row.record.prompted, row.used_clock = True, self.clock.now()
            row.updated_at = time.time_ns() // 1_000_000
            self.database.claude_sessions[record.conversation_name] = None
            self.database.folders[record.conversation_name] = record.cwd
            if note is not None:
                self.database.notes.setdefault(note.note_id, (record.session_id, note.text))
            self.database.log(record.session_id, None, said)

        await self.database.write(show)
