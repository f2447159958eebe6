"""What the import and the index of transcripts need of the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from pykoclaw_acp.model.found_transcripts import FoundTranscript
from pykoclaw_acp.model.imports import (
    ImportedPiece,
    KnownTranscripts,
    TranscriptTurn,
)
from pykoclaw_acp.model.log import Logged


class ImportStore(Protocol):
    """Transcripts of sessions, their turns, and the log that they are imported into."""

    async def known_transcripts(
        self, session_id: str, named: Collection[str], newest: int
    ) -> KnownTranscripts:
        """Transcripts of a session that were looked at: the followed one, those of the Claude
        sessions `named`, and so many that were written last.
        """

    async def transcript_paths(self, session_id: str) -> dict[str, str]:
        """The paths of all transcripts of a session, by their Claude sessions."""

    async def transcript_turns(self, session_id: str, limit: int) -> list[TranscriptTurn]:
        """Turns of the session's transcripts, in the order in which they were seen; the newest
        ones.
        """

    async def own_turns(self, session_id: str, *, new: bool) -> list[str]:
        """Turns that Claude was given by this session, which are not known from transcripts if
        `new`.
        """

    async def background_messages(self, session_id: str, limit: int) -> tuple[list[str], bool]:
        """Ids of messages and tool calls with which turns began that Claude began by itself, and of
        the entries with which they ended, of the newest `limit` of them; and whether one of them
        has not ended. Also those with which as many turns of clients began: Claude may have begun
        one of its own at the same moment, whose words are in theirs.
        """

    async def scheduled_prompts(self, conversation: str) -> list[str]:
        """Prompts of the scheduled tasks of a conversation."""

    async def imported(self, session_id: str, sources: Collection[str]) -> set[str]:
        """Return those of these sources of events that the session's log has."""

    async def commit_piece(self, session_id: str, piece: ImportedPiece) -> list[Logged]:
        """Append the events of a piece, under the next seqs, with all that it says. A person's prompt
        in it ends the session's wait for a usage limit; then a note follows the events. Waits while
        the database cannot be written.

        Raises RowRefused if one of them was imported before, Conflict if there is no such session,
        or it was deleted.
        """

    async def follow_transcript(
        self, session_id: str, claude_session_id: str, *, told: bool
    ) -> None:
        """The session follows this Claude session. `told`: of no turn so far of another one Claude has
        to be told. Waits while the database cannot be written.
        """

    async def mark_told(
        self, session_id: str, turns: Collection[tuple[str, str | None]], note_id: str
    ) -> None:
        """Claude is told of these turns, up to these entries, by a note. Waits while the database
        cannot be written.
        """


class FoundStore(Protocol):
    """The index of transcripts."""

    async def transcript_folders(self) -> dict[str, str]:
        """Folders that were looked at, each with its digest."""

    async def known_in_folder(self, folder: str) -> dict[str, str]:
        """Size and time of a folder's transcripts as they are known, by name."""

    async def keep_found(
        self,
        folder: str,
        found: Sequence[FoundTranscript],
        gone: Collection[str],
        digest: str | None,
    ) -> None:
        """Keep what was found; sessions of ours that were continued elsewhere are newer from now on.
        `gone`: names. `digest`: of the folder, when all of it was looked at.
        """

    async def forget_folder(self, folder: str) -> None:
        """The folder is gone."""
