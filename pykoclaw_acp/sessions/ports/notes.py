"""Notes for Claude."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.sessions.ports.store import Store


class NoteStore(Store, Protocol):
    """What Claude is to learn with the next prompt of a session. `TurnJournal.dispatch` takes notes."""

    async def add_note(self, session_id: str, note: Note) -> None:
        """Add a note, unless there is one with its id. Waits while the database cannot be written."""

    async def pending_notes(self, session_id: str) -> list[Note]:
        """Notes that Claude was not given, in their order; at most 100.

        A note that left with a prompt which Claude never took up is pending again.
        """

    async def carried_notes(self, turn_id: str) -> list[Note]:
        """Notes that the prompt of this turn carries, in their order."""
