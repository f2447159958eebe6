"""`acp_notes`: what Claude is to learn with the next prompt of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.logs import LAST_SEQ
from pykoclaw_acp.store.sql import DONE, UNFINISHED, places

_OF_PENDING: Final = (
    "FROM acp_notes n LEFT JOIN acp_turns t ON t.turn_id = n.turn_id"
    " WHERE n.acp_session_id = ? AND (n.turn_id IS NULL"
    f" OR (t.started_at IS NULL AND t.state NOT IN {UNFINISHED}))"
)
_PENDING: Final = f"SELECT n.note_id, n.text {_OF_PENDING} ORDER BY n.position LIMIT 100"
# A fork's turns and notes have the ids of its source's after its own. A result that the log has as
# a turn has the place of its prompt.
_WITHDRAW: Final = (
    "DELETE FROM acp_notes WHERE acp_session_id = ? AND turn_id IS NULL AND ('/' || note_id LIKE '%/rewound-%'"
    " OR '/' || note_id LIKE '%/refused-%' OR '/' || note_id LIKE '%/fork-%'"
    " OR EXISTS (SELECT 1 FROM acp_transcript_turns x"
    " LEFT JOIN acp_turns t ON t.turn_id IN (x.prompt_uuid, x.acp_session_id || '/' || x.prompt_uuid)"
    " WHERE x.acp_session_id = acp_notes.acp_session_id AND x.told_by = acp_notes.note_id"
    " AND (x.rewound_at IS NOT NULL OR t.rewound_at IS NOT NULL))"
    " OR note_id LIKE '%delivery-%' AND EXISTS (SELECT 1 FROM acp_sessions s"
    " JOIN acp_log l ON l.log_key = s.log_key AND l.seq = acp_notes.after_seq"
    " JOIN acp_transcript_turns r ON r.acp_session_id = s.acp_session_id"
    " AND r.prompt_uuid = SUBSTR(l.source_uuid, 1, INSTR(l.source_uuid, ':') - 1)"
    " WHERE s.acp_session_id = acp_notes.acp_session_id AND r.rewound_at IS NOT NULL))"
)
_DOUBTFUL: Final = (
    "SELECT turn_id FROM acp_turns t WHERE turn_id IN"  # noqa: S608  constant
    " (SELECT turn_id FROM acp_notes WHERE acp_session_id = ? AND turn_id IS NOT NULL)"
    f" AND started_at IS NOT NULL AND state <> {DONE} AND state NOT IN {UNFINISHED}"
    " AND rewound_at IS NULL AND lost_at IS NULL AND NOT EXISTS (SELECT 1 FROM acp_turns l"
    " WHERE l.acp_session_id = t.acp_session_id AND l.position > COALESCE(t.position, 0)"
    f" AND l.state = {DONE} AND l.rewound_at IS NULL AND l.lost_at IS NULL)"
    " ORDER BY COALESCE(position, 0) DESC LIMIT 20"
)
_COPY: Final = (
    "INSERT INTO acp_notes (note_id, acp_session_id, position, text, after_seq)"
    " SELECT ? || '/' || n.note_id, ?, n.position, n.text, n.after_seq"
    " FROM acp_notes n LEFT JOIN acp_turns t ON t.turn_id = n.turn_id WHERE n.acp_session_id = ?"
)
_UNTOLD: Final = f" AND (n.turn_id IS NULL OR t.started_at IS NULL OR t.state IN {UNFINISHED})"
# Of what was shown to the user up to a place, and told to Claude after it. A fork's ids begin with its own.
_DELIVERED: Final = " AND n.after_seq < ? AND n.note_id LIKE '%delivery-%'"
_DELIVERED_LATER: Final = (
    f"{_DELIVERED} AND (n.turn_id IS NULL OR t.started_at IS NULL OR t.first_seq > ?)"
)
_GIVE_DELIVERED_AGAIN: Final = (
    "UPDATE acp_notes AS n SET turn_id = NULL WHERE n.acp_session_id = ? AND EXISTS"  # noqa: S608  constant
    f" (SELECT 1 FROM acp_turns t WHERE t.turn_id = n.turn_id AND t.rewound_at = ?){_DELIVERED}"
)


def add(session_id: str, note_id: str, text: str, after: int | None = None) -> Statement:
    """Add a note; one with this id that exists stays as it is. `after`: the place in the log of what it
    tells of, by default its end.

    To be part of the transaction that writes what the note tells of.
    """
    return Statement(
        "INSERT INTO acp_notes (note_id, acp_session_id, position, text, after_seq) VALUES (?, ?,"  # noqa: S608
        " (SELECT COALESCE(MAX(position), 0) + 1 FROM acp_notes WHERE acp_session_id = ?), ?,"
        f" COALESCE(?, (SELECT {LAST_SEQ} FROM acp_sessions s WHERE s.acp_session_id = ?)))"
        " ON CONFLICT (note_id) DO NOTHING",
        (note_id, session_id, session_id, text, after, session_id),
    )


def withdraw_rewound(session_id: str) -> Statement:
    """Claude is not told any more, by pending notes, of turns that were rewound, nor what a rewind or a
    fork has summed up: what it lacks now is summed up again.
    """
    return Statement(_WITHDRAW, (session_id,))


async def carried(database: Database, turn_id: str) -> list[Note]:
    """Notes that the prompt of this turn carries, in their order."""
    sql = "SELECT note_id, text FROM acp_notes WHERE turn_id = ? ORDER BY position"
    return [Note(*row) for row in await database.read(sql, (turn_id,))]


async def pending(database: Database, session_id: str) -> list[Note]:
    """Notes that Claude was not given, in their order; at most 100.

    A note that left with a prompt which never reached Claude is pending again.
    """
    return [Note(*row) for row in await database.read(_PENDING, (session_id,))]


def move(session_id: str, owner: str) -> Statement:
    """The notes of a session that became an alias are those of its owner; in whose log they have no
    known place.
    """
    return Statement(
        "UPDATE acp_notes SET acp_session_id = ?, after_seq = NULL WHERE acp_session_id = ?",
        (owner, session_id),
    )


def forget_places(session_id: str) -> Statement:
    """The session's log was numbered anew: no place of its notes is known."""
    return Statement(
        "UPDATE acp_notes SET after_seq = NULL WHERE acp_session_id = ?", (session_id,)
    )


def take(notes: Sequence[Note], turn_id: str) -> Statement:
    """The prompt of this turn carries these notes; one may have been withdrawn just now."""
    return Statement(
        f"UPDATE acp_notes SET turn_id = ? WHERE note_id IN {places(notes)}",  # noqa: S608  constant
        (turn_id, *(note.note_id for note in notes)),
    )


async def doubtful_carriers(database: Database, session_id: str) -> list[str]:
    """Turns that did not end well, whose prompts carried notes, the newest first; at most 20. After them
    came none that ended well: its worker had what they carried, or a look before it found it missing.
    """
    return [turn_id for (turn_id,) in await database.read(_DOUBTFUL, (session_id,))]


def copy_pending(source: str, session_id: str) -> Statement:
    """A fork is to be told what its source is still to be told, or just now with the turn that the
    fork leaves out.
    """
    return Statement(_COPY + _UNTOLD, (session_id, session_id, source))


def copy_delivered(source: str, session_id: str, upto: int) -> Statement:
    """A fork from the place `upto` is to be told what was delivered before it, and told to the source
    after it.
    """
    return Statement(_COPY + _DELIVERED_LATER, (session_id, session_id, source, upto, upto))


def give_delivered_again(session_id: str, upto: int, rewound_at: int) -> Statement:
    """What was delivered before the place `upto`, and told with a prompt that this rewind takes back,
    is pending again.
    """
    return Statement(_GIVE_DELIVERED_AGAIN, (session_id, rewound_at, upto))


def give_again(turn_id: str) -> Statement:
    """The notes that the prompt of this turn carried are pending again."""
    return Statement("UPDATE acp_notes SET turn_id = NULL WHERE turn_id = ?", (turn_id,))
