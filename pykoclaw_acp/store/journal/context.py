"""What Claude remembers, over `store/branches.py` and `store/notes.py`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from pykoclaw_acp.model.branches import Branch, RewindPoint, Rewound
from pykoclaw_acp.model.contexts import TurnEnd, entry_uuid
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import branches, events, notes
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.sql import CLIENT, DONE, UNFINISHED
from pykoclaw_acp.store.units import Statement, Unit

_ENDS: Final = (
    # What they have taken up stands soon after them: there is no index of `taken_by`.
    "SELECT n.turn_id, n.last_uuid, n.well, n.first, (SELECT json_group_array(x.turn_id) FROM acp_turns x"  # noqa: S608
    " WHERE x.acp_session_id = n.acp_session_id AND x.position BETWEEN n.position + 1 AND n.position + 200"
    " AND x.taken_by = n.turn_id) FROM (SELECT turn_id, last_uuid, stop_reason = 'end_turn' AS well,"
    " COALESCE(first_seq, 0) AS first, acp_session_id, position, created_at FROM acp_turns"
    " WHERE acp_session_id = ? AND claude_session_id = ?"
    f" AND state = {DONE} AND origin = {CLIENT} AND last_uuid IS NOT NULL AND taken_by IS NULL"
    " AND rewound_at IS NULL AND lost_at IS NULL"
    """ AND prompt NOT LIKE '%"text":"/%' AND prompt NOT LIKE '%"text": "/%'"""
    " AND prompt NOT LIKE '%<user_request>\\n/%'"
    # A prompt that a hook has stopped is in no transcript, and has the last entry of the turn before.
    " AND (position IS NULL OR position IN"
    " (SELECT MIN(position) FROM acp_turns WHERE acp_session_id = ? GROUP BY last_uuid))"
    " ORDER BY COALESCE(position, 0) DESC, created_at DESC LIMIT ?) AS n"
    " ORDER BY COALESCE(n.position, 0) DESC, n.created_at DESC"
)
_LOSE: Final = "UPDATE acp_turns SET lost_at = ? WHERE turn_id = ? AND lost_at IS NULL"
_LOSE_ALL: Final = (
    "UPDATE acp_turns SET lost_at = ? WHERE acp_session_id = ? AND lost_at IS NULL"  # noqa: S608
    f" AND state NOT IN {UNFINISHED}"
)
_LOSE_IMPORTED: Final = (
    "UPDATE acp_transcript_turns SET lost_at = ?"
    " WHERE acp_session_id = ? AND own = 0 AND lost_at IS NULL"
)
_FORGOTTEN: Final = (
    "SELECT turn_id FROM acp_turns WHERE acp_session_id = ? AND rewound_at IS NOT NULL"
    " UNION ALL SELECT prompt_uuid FROM acp_transcript_turns WHERE acp_session_id = ?"
    " AND rewound_at IS NOT NULL"
)


class SqlContextStore(SqlStore):
    """Implements `sessions.ports.context.ContextStore`."""

    async def newest_ends(self, session_id: str, claude_id: str, limit: int) -> list[TurnEnd]:
        """The newest turns that this Claude session must hold, the newest first."""
        rows = await self._database.read(_ENDS, (session_id, claude_id, session_id, limit))
        return [
            TurnEnd(turn, last, bool(well), first, tuple(msgspec.json.decode(taken)))
            for turn, last, well, first, taken in rows
        ]

    async def forgotten(self, session_id: str) -> set[str]:
        """Ids of the prompts of turns that were rewound."""
        rows = await self._database.read(_FORGOTTEN, (session_id, session_id))
        return {entry_uuid(turn) for (turn,) in rows}

    async def doubtful_carriers(self, session_id: str) -> list[str]:
        """Turns that did not end well, whose prompts carried notes."""
        return await notes.doubtful_carriers(self._database, session_id)

    async def give_notes_again(self, turn_ids: Collection[str]) -> None:
        """The notes that these prompts carried are pending again."""
        unit = Unit(tuple(notes.give_again(turn_id) for turn_id in turn_ids))
        await self._commit(unit, patient=True)

    async def has_note(self, note_id: str) -> bool:
        """Whether there is a note with this id."""
        return bool(
            await self._database.read("SELECT 1 FROM acp_notes WHERE note_id = ?", (note_id,))
        )

    async def refused(self, record: SessionRecord) -> RewindPoint | None:
        """The beginning of the newest turn, if Claude has refused its prompt."""
        return await branches.refused(self._database, record)

    async def forget_refused(
        self, session_id: str, point: RewindPoint, note: Note | None, said: Sequence[Event]
    ) -> list[int]:
        """Let Claude forget a turn that it has refused, and tell it of the note."""
        done = Rewound(point.turn_id, point.turns, [], None, None)
        statements = tuple(branches.rewind(session_id, point, done, note, None))
        rows = events.rows(session_id, None, said)
        return await self._commit(Unit(statements, rows, durable=True), patient=True)

    async def lose_context(
        self,
        session_id: str,
        branch: Branch | None,
        note: Note | None,
        said: Sequence[Event],
        lost: Collection[str] = (),
    ) -> list[int]:
        """Let the next Claude session begin at `branch`, with a note, without these turns, of which
        it is told again what it was told with them; with a branch, without any.
        """
        statements = [] if branch is None else [branches.save(session_id, branch)]
        if note is not None:
            statements.append(notes.add(session_id, note.note_id, note.text))
        now = self.clock.now()
        statements += [Statement(_LOSE, (now, turn_id)) for turn_id in lost]
        statements += [notes.give_again(turn_id) for turn_id in lost]
        if branch is not None:
            statements += [Statement(sql, (now, session_id)) for sql in (_LOSE_ALL, _LOSE_IMPORTED)]
        rows = events.rows(session_id, None, said)
        return await self._commit(Unit(tuple(statements), rows, durable=True), patient=True)
