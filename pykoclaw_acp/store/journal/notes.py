"""Notes for Claude, over `store/notes.py`."""

from __future__ import annotations

from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.store import notes
from pykoclaw_acp.store.journal.base import SqlStore


class SqlNoteStore(SqlStore):
    """Implements `sessions.ports.NoteStore`."""

    async def add_note(self, session_id: str, note: Note) -> None:
        """Add a note, unless there is one with its id."""
        await self._run(notes.add(session_id, note.note_id, note.text), patient=True)

    async def pending_notes(self, session_id: str) -> list[Note]:
        """Notes that Claude was not given, in their order."""
        return await notes.pending(self._database, session_id)

    async def carried_notes(self, turn_id: str) -> list[Note]:
        """Notes that the prompt of this turn carries, in their order."""
        return await notes.carried(self._database, turn_id)
