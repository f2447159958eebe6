"""The twin of `sessions.ports.NoteStore`."""

from __future__ import annotations

from pykoclaw_acp.model.prompt_text import Note
from tests.twins.base import MemoryStore


class MemoryNoteStore(MemoryStore):
    async def add_note(self, session_id: str, note: Note) -> None:
        def add() -> None:
            self.database.notes.setdefault(note.note_id, (session_id, note.text))

        await self.database.write(add, patient=True)

    async def pending_notes(self, session_id: str) -> list[Note]:
        tables = self.database.read()
        return [
            Note(note_id, text)
            for note_id, (owner, text) in tables.notes.items()
            if owner == session_id and self._pending(note_id)
        ][:100]

    async def untold_notes(self, session_id: str) -> list[Note]:
        """Those that are pending, and those that the turn which runs has carried."""
        tables = self.database.read()
        running = {row.turn_id for row in tables.turns.values() if row.unfinished}
        return [
            Note(note_id, text)
            for note_id, (owner, text) in tables.notes.items()
            if owner == session_id
            and (self._pending(note_id) or tables.carriers[note_id] in running)
        ]

    def _pending(self, note_id: str) -> bool:
        carrier = self.database.carriers.get(note_id)
        if carrier is None:
            return True
        row = self.database.turns.get(carrier)
        return row is not None and not row.unfinished and not row.started

    async def carried_notes(self, turn_id: str) -> list[Note]:
        tables = self.database.read()
        return [
            Note(note_id, text)
            for note_id, (_, text) in tables.notes.items()
            if tables.carriers.get(note_id) == turn_id
        ]
