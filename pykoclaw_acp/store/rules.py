"""`acp_rules`: what people have allowed in directories, for later sessions too."""

from __future__ import annotations

from pykoclaw_acp.model.permissions import Settlement
from pykoclaw_acp.model.rules import LastingRule
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms


def grant(settled: Settlement) -> tuple[Statement, ...]:
    """Let the rules of a settlement last, if it is the one that counts; to follow it in its
    transaction.
    """
    return tuple(
        Statement(
            "INSERT INTO acp_rules (path, rule, granted_by, created_at) SELECT ?, ?, ?, ?"
            " WHERE EXISTS (SELECT 1 FROM acp_permissions WHERE permission_id = ? AND option_id = ?)"
            " ON CONFLICT (path, rule) DO NOTHING",
            (
                settled.path,
                rule,
                settled.answered_by or "",
                now_ms(),
                settled.permission_id,
                settled.option_id,
            ),
        )
        for rule in settled.rules
    )


def remove(path: str, rule: str) -> Statement:
    """Let a rule last no longer."""
    return Statement("DELETE FROM acp_rules WHERE path = ? AND rule = ?", (path, rule))


async def of(database: Database, path: str) -> tuple[str, ...]:
    """The rules of a directory."""
    rows = await database.read("SELECT rule FROM acp_rules WHERE path = ? ORDER BY rule", (path,))
    return tuple(rule for (rule,) in rows)


async def listing(database: Database) -> list[LastingRule]:
    """All rules."""
    rows = await database.read(
        "SELECT path, rule, granted_by, created_at FROM acp_rules ORDER BY path, rule", ()
    )
    return [LastingRule(*row) for row in rows]
