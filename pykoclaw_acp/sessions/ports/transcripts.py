"""The transcripts of Claude sessions, which other programs continue."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from pykoclaw_acp.model.imports import Imported, RowStanding
from pykoclaw_acp.model.turns import SessionRecord

__all__ = ["Imported", "RowStanding", "Transcripts"]


class Transcripts(Protocol):
    """Transcripts, looked at from a session."""

    async def exists(self, claude_session_id: str) -> bool:
        """Whether there is a transcript of this Claude session."""

    async def holding(
        self, record: SessionRecord, claude_session_id: str, uuids: Collection[str]
    ) -> set[str] | None:
        """Which of these entries the transcript of a Claude session holds; None if there is none, or
        it cannot be said.
        """

    async def take_in(
        self, record: SessionRecord, row_session_id: str | None, *, own: Collection[str]
    ) -> Imported:
        """Import what the transcripts hold and the log lacks.

        `row_session_id`: the Claude session in the conversation's row; `own`: ids of this session's
        turns that have not ended. Nothing is parsed if no file has changed. Waits while the
        database cannot be written.
        """

    async def note_told(self, session_id: str) -> None:
        """Write down that the digest of the newest `take_in` is a note of the session. Waits while
        the database cannot be written.

        Until then its turns are in the digests of later looks as well.
        """

    def watch(self, session_id: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` on the loop whenever a transcript of the session changes; returns what
        ends the watching.

        Transcripts are those that the newest `take_in` has found.
        """
