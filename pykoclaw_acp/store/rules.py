"""`acp_rules` and `acp_session_rules`: what people have allowed in directories, for later sessions
too, and in sessions.
"""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.model.permissions import Settlement
from pykoclaw_acp.model.rules import LastingRule
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms

# Nothing is inserted unless the settlement is the one that counts.
_COUNTS: Final = "FROM acp_permissions WHERE permission_id = ? AND option_id = ?"
_IN_DIRECTORY: Final = (
    f"INSERT INTO acp_rules (path, rule, granted_by, created_at) SELECT ?, ?, ?, ? {_COUNTS}"
    " ON CONFLICT (path, rule) DO NOTHING"
)
_IN_SESSION: Final = (
    "INSERT INTO acp_session_rules (acp_session_id, rule, granted_by, created_at)"
    f" SELECT acp_session_id, ?, ?, ? {_COUNTS} ON CONFLICT (acp_session_id, rule) DO NOTHING"
)


def grant(settled: Settlement) -> tuple[Statement, ...]:
    """Let the rules of a settlement hold, in its directory or else in its session; to follow it in
    its transaction.
    """
    sql, where = (_IN_DIRECTORY, (settled.path,)) if settled.path else (_IN_SESSION, ())
    counts = (settled.permission_id, settled.option_id)
    by = settled.answered_by or ""
    return tuple(Statement(sql, (*where, rule, by, now_ms(), *counts)) for rule in settled.rules)


def remove(rule: LastingRule) -> Statement:
    """Let a rule hold no longer."""
    if rule.session is None:
        return Statement(
            "DELETE FROM acp_rules WHERE path = ? AND rule = ?", (rule.path, rule.rule)
        )
    return Statement(
        "DELETE FROM acp_session_rules WHERE acp_session_id = ? AND rule = ?",
        (rule.session, rule.rule),
    )


def move(session_id: str, owner: str) -> tuple[Statement, ...]:
    """The rules of a session that became an alias are those of its owner."""
    return (
        Statement(
            "INSERT INTO acp_session_rules (acp_session_id, rule, granted_by, created_at)"
            " SELECT ?, rule, granted_by, created_at FROM acp_session_rules"
            " WHERE acp_session_id = ? ON CONFLICT (acp_session_id, rule) DO NOTHING",
            (owner, session_id),
        ),
        Statement("DELETE FROM acp_session_rules WHERE acp_session_id = ?", (session_id,)),
    )


async def of(database: Database, path: str, session_id: str) -> tuple[str, ...]:
    """The rules of a directory, and of a session there."""
    rows = await database.read(
        "SELECT rule FROM acp_rules WHERE path = ? UNION"
        " SELECT rule FROM acp_session_rules WHERE acp_session_id = ? ORDER BY rule",
        (path, session_id),
    )
    return tuple(rule for (rule,) in rows)


async def listing(database: Database) -> list[LastingRule]:
    """All rules."""
    rows = await database.read(
        "SELECT path, rule, granted_by, created_at, NULL AS session FROM acp_rules UNION ALL"
        " SELECT COALESCE(s.cwd, ''), r.rule, r.granted_by, r.created_at, r.acp_session_id"
        " FROM acp_session_rules r JOIN acp_sessions s ON s.acp_session_id = r.acp_session_id"
        " WHERE s.deleted_at IS NULL ORDER BY 1, 5, 2",
        (),
    )
    return [LastingRule(*row) for row in rows]
