"""Imported transcripts, over `store/imports.py`."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from typing import Final

import structlog

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.imports import ImportedPiece, KnownTranscripts, TranscriptTurn
from pykoclaw_acp.model.limit_waits import given_up
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.store import blobs, events, imports, limit_waits, sessions
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.journal.detaching import Detaching
from pykoclaw_acp.store.units import NewEvent, Unit
from pykoclaw_acp.tasks import in_pieces

_WEIGHT: Final = 32 * 1024  # characters of rows that are made in one step
_STEP: Final = 500  # characters that a row costs besides

log: Final = structlog.get_logger()


class SqlImportStore(SqlStore):
    """Implements `transcripts.ports.ImportStore`."""

    async def known_transcripts(
        self, session_id: str, named: Collection[str], newest: int
    ) -> KnownTranscripts:
        """Transcripts of a session that were looked at."""
        return await imports.known(self._database, session_id, named, newest)

    async def transcript_paths(self, session_id: str) -> dict[str, str]:
        """The paths of all transcripts of a session, by their Claude sessions."""
        return await imports.paths(self._database, session_id)

    async def transcript_turns(self, session_id: str, limit: int) -> list[TranscriptTurn]:
        """Turns of the session's transcripts, in the order in which they were seen."""
        return await imports.turns(self._database, session_id, limit)

    async def own_turns(self, session_id: str, *, new: bool) -> list[str]:
        """Turns that Claude was given by this session."""
        return await imports.own(self._database, session_id, new=new)

    async def background_messages(self, session_id: str, limit: int) -> tuple[list[str], bool]:
        """Ids with which turns began and ended that Claude began by itself; and whether one has not
        ended.
        """
        return await imports.background(self._database, session_id, limit)

    async def scheduled_prompts(self, conversation: str) -> list[str]:
        """Prompts of the scheduled tasks of a conversation."""
        return await imports.scheduled(self._database, conversation)

    async def imported(self, session_id: str, sources: Collection[str]) -> set[str]:
        """Return those of these sources of events that the session's log has."""
        return await imports.imported(self._database, session_id, sources)

    async def commit_piece(self, session_id: str, piece: ImportedPiece) -> list[Logged]:
        """Append the events of a piece, with all that it says, and a note if it ends a wait."""
        wait = None
        if piece.has_persons_prompt:
            wait = await limit_waits.of_session(self._database, session_id)
        notes = () if wait is None else given_up(wait.turn_id)
        own = await imports.rewound(self._database, session_id, piece.rewound)
        detaching = Detaching()
        light = [
            (source, await in_pieces(detaching.event(event))) for source, event in piece.events
        ]

        async def commit(said: Sequence[tuple[str, Event]], names: Iterable[str]) -> list[Logged]:
            rows = (
                *await in_pieces(_rows(session_id, said)),
                *events.rows(session_id, None, notes),
            )
            statements = (
                *sessions.follow(session_id, [event for _, event in said]),
                *imports.piece(session_id, piece, own),
                *blobs.use(session_id, names),
            )
            seqs = await self._commit(Unit(statements, rows), patient=True)
            if wait is not None:
                log.info(
                    "A session waits no more", action="limit_wait_given_up", session=session_id
                )
            logged = (*(event for _, event in said), *notes)
            return [
                Logged(seq, None, event, len(row.payload))
                for seq, row, event in zip(seqs, rows, logged, strict=True)
            ]

        try:
            async with self._database.blobs.kept(detaching.data):
                return await commit(light, detaching.data)
        except StoreUnavailable:  # no file can be written: the rows have the bytes
            return await commit(piece.events, ())

    async def follow_transcript(
        self, session_id: str, claude_session_id: str, *, told: bool
    ) -> None:
        """The session follows this Claude session."""
        more = (imports.all_told(session_id, but=claude_session_id),) if told else ()
        statements = (imports.follow(session_id, claude_session_id), *more)
        await self._commit(Unit(statements), patient=True)

    async def mark_told(
        self, session_id: str, turns: Collection[tuple[str, str | None]], note_id: str
    ) -> None:
        """Claude is told of these turns by a note."""
        await self._commit(Unit(imports.told(session_id, turns, note_id)), patient=True)


def _rows(
    session_id: str, said: Sequence[tuple[str, Event]]
) -> Generator[None, None, tuple[NewEvent, ...]]:
    done: list[NewEvent] = []
    weight = 0
    for source, event in said:
        done.append(events.imported(session_id, source, event))
        weight += _STEP + len(done[-1].payload)
        if weight > _WEIGHT:
            weight = 0
            yield
    return tuple(done)
