"""`acp_limit_waits`: sessions that go on by themselves when a usage limit ends."""

from __future__ import annotations

from pykoclaw_acp.model.limit_waits import LimitWait, goes_on_from
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sql import CLIENT


def add(wait: LimitWait) -> Statement:
    """Let the session wait, but not once more if a person has prompted since it went on. To be part
    of the transaction that ends its turn.
    """
    return Statement(
        "INSERT INTO acp_limit_waits (acp_session_id, turn_id, due, tries) SELECT ?, ?, ?, ? WHERE ? = 0"  # noqa: S608
        " OR NOT EXISTS (SELECT 1 FROM acp_turns t JOIN acp_turns l ON l.acp_session_id = t.acp_session_id"
        f" AND l.position > t.position WHERE t.turn_id = ? AND l.origin = {CLIENT} AND l.task_id IS NULL)"
        " ON CONFLICT (acp_session_id) DO UPDATE SET turn_id = excluded.turn_id, due = excluded.due,"
        " tries = excluded.tries",
        (wait.session_id, wait.turn_id, wait.due, wait.tries, wait.tries, wait.turn_id),
    )


def drop(session_id: str, turn_id: str) -> Statement:
    """End the wait; fails with Conflict if there is none any more."""
    return Statement(
        "DELETE FROM acp_limit_waits WHERE acp_session_id = ? AND turn_id = ?",
        (session_id, turn_id),
        rows=1,
    )


def accepted(turn: Turn) -> tuple[Statement, ...]:
    """What accepting the turn ends: it is what the session waits for, or takes its place.

    To be part of the transaction that accepts it, so that a session goes on once. Scheduled tasks
    leave the wait as it is.
    """
    if (waited := goes_on_from(turn.keys.request)) is not None:
        return (drop(turn.session_id, waited),)
    if turn.task_id is not None:
        return ()
    return (forget(turn.session_id),)


def answered(session_id: str, turn_id: str) -> Statement:
    """End the wait of a session in which this turn was answered, if a person had prompted it: also
    before the wait began, as behind the turn that the limit has stopped.
    """
    return Statement(
        "DELETE FROM acp_limit_waits WHERE acp_session_id = ? AND EXISTS"
        " (SELECT 1 FROM acp_turns t WHERE t.turn_id = ? AND t.fingerprint IS NOT NULL)",
        (session_id, turn_id),
    )


def forget(session_id: str) -> Statement:
    """End the wait of a session that may have none."""
    return Statement("DELETE FROM acp_limit_waits WHERE acp_session_id = ?", (session_id,))


def forget_all() -> Statement:
    """End all waits."""
    return Statement("DELETE FROM acp_limit_waits")


async def every(database: Database) -> list[LimitWait]:
    """All sessions that wait and were not deleted, the first to go on first."""
    rows = await database.read(
        "SELECT w.acp_session_id, w.turn_id, w.due, w.tries FROM acp_limit_waits w JOIN acp_sessions s"
        " ON s.acp_session_id = w.acp_session_id WHERE s.deleted_at IS NULL ORDER BY w.due LIMIT 1000"
    )
    return [LimitWait(*row) for row in rows]


async def of_session(database: Database, session_id: str) -> LimitWait | None:
    """What the session waits for, if it does."""
    rows = await database.read(
        "SELECT acp_session_id, turn_id, due, tries FROM acp_limit_waits WHERE acp_session_id = ?",
        (session_id,),
    )
    return LimitWait(*rows[0]) if rows else None
