"""`acp_cursors`: how far each process of a client was shown a session, per id and front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pykoclaw_acp.model.cursors import Cursor, CursorChange
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms

_OWN: Final = "acp_session_id = ? AND client = ? AND instance = ? AND front = ?"


def change(one: CursorChange) -> Statement:
    """Replace or delete a cursor; one that is not `whole` only moves its seq forward."""
    key = (one.session_id, one.client, one.client_process, one.front)
    cursor = one.cursor
    if cursor is None:
        return Statement(f"DELETE FROM acp_cursors WHERE {_OWN}", key)  # noqa: S608  constant
    return Statement(
        "INSERT INTO acp_cursors"
        " (acp_session_id, client, instance, front, seq, used_by, least, beside, spare_clock, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (acp_session_id, client, instance, front) DO UPDATE SET seq = excluded.seq,"
        " used_by = excluded.used_by, least = excluded.least, beside = excluded.beside,"
        " spare_clock = excluded.spare_clock,"
        " ended_clock = CASE WHEN excluded.spare_clock IS NULL THEN NULL ELSE acp_cursors.ended_clock END,"
        " updated_at = excluded.updated_at WHERE excluded.seq > acp_cursors.seq OR ? = 1",
        (
            *key,
            cursor.seq,
            cursor.used_by,
            cursor.least,
            cursor.beside,
            cursor.spare,
            now_ms(),
            int(one.whole),
        ),
    )


async def of(database: Database, session_id: str, client: str) -> list[Cursor]:
    """Cursors of all processes of a client in a session."""
    rows = await database.read(
        "SELECT instance, front, seq, used_by, least, beside, spare_clock FROM acp_cursors"
        " WHERE acp_session_id = ? AND client = ?",
        (session_id, client),
    )
    return [Cursor(*row) for row in rows]


async def client_processes(database: Database) -> list[str]:
    """Client processes that have cursors."""
    return [
        client_process
        for (client_process,) in await database.read("SELECT DISTINCT instance FROM acp_cursors")
    ]


def age(ended: Sequence[str], living: Sequence[str], now: int, before: int) -> Iterator[Statement]:
    """Mark processes as ended or living at `now` (ms, own clock); delete cursors left
    by `before`.
    """
    for client_process in ended:
        yield Statement(
            "UPDATE acp_cursors SET ended_clock = ? WHERE instance = ? AND ended_clock IS NULL",
            (now, client_process),
        )
    for client_process in living:
        yield Statement(
            "UPDATE acp_cursors SET ended_clock = NULL, spare_clock = NULL WHERE instance = ?"
            " AND (ended_clock IS NOT NULL OR spare_clock IS NOT NULL)",
            (client_process,),
        )
    yield Statement(
        "DELETE FROM acp_cursors WHERE ended_clock <= ? OR spare_clock <= ?", (before, before)
    )
