"""Sessions that exist as Claude's transcripts only: begun in a terminal, or by another agent."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from pykoclaw_acp.model.found_transcripts import FoundTranscript, Removed
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions.ports.store import Store


class FoundTranscripts(Protocol):
    """Claude's transcripts, in files."""

    async def refresh(self) -> None:
        """A list is asked for: look for what is new, and wait for that a moment at most."""

    async def find(self, claude_session_id: str) -> FoundTranscript | None:
        """The transcript of this session as it is now; None if it is of no session of its own."""

    async def remove(self, claude_session_ids: Collection[str]) -> Removed:
        """Delete the transcripts of these sessions, as far as that is possible."""


class TranscriptSessions(Store, Protocol):
    """Sessions for transcripts, in the database."""

    async def conversation_following(self, claude_session_id: str) -> str | None:
        """A conversation without a session whose row names this Claude session."""

    async def adopt_transcript(self, record: SessionRecord, updated_at: int) -> None:
        """Insert a session for the transcript that has its id, and its conversation.

        Raises Conflict or RowRefused if a session has the transcript, or had it and was deleted.
        """

    async def branched_off(self, claude_session_ids: Collection[str]) -> set[str]:
        """Return those of these Claude sessions at which another one may yet begin, as that of a fork
        that was not prompted, or is rewound to a turn of its source's.
        """

    async def begun_transcripts(self, session_id: str) -> set[str]:
        """Claude sessions that the session's workers have begun under other ids than its own."""

    async def bury_transcript(self, claude_session_id: str, *, remove: bool = False) -> None:
        """The transcript makes no session any more, unless one has it; `remove`: it is to be removed."""

    async def transcripts_to_remove(self) -> set[str]:
        """Deleted Claude sessions whose transcripts are to be removed, and are not yet."""

    async def transcripts_removed(self, claude_session_ids: Collection[str]) -> None:
        """Record that the transcripts of these Claude sessions were removed."""
