"""`acp_surroundings`: the account of a session, and what a client gave it that is no secret."""

from __future__ import annotations

import json

from pykoclaw_acp.model.surroundings import Surroundings
from pykoclaw_acp.store.database import Database, Statement


def keep(session_id: str, surroundings: Surroundings) -> Statement:
    """Store those of a session that may have had others."""
    if surroundings == Surroundings():
        return Statement("DELETE FROM acp_surroundings WHERE acp_session_id = ?", (session_id,))
    return Statement(
        "INSERT INTO acp_surroundings (acp_session_id, account, variables, secrets) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (acp_session_id) DO UPDATE SET"
        " account = excluded.account, variables = excluded.variables, secrets = excluded.secrets",
        (
            session_id,
            surroundings.account,
            json.dumps(dict(surroundings.variables), sort_keys=True),
            json.dumps(surroundings.secrets),
        ),
    )


def begin(session_id: str, surroundings: Surroundings) -> tuple[Statement, ...]:
    """Return the statements that store a new session's surroundings: none if they are the default
    ones.
    """
    return () if surroundings == Surroundings() else (keep(session_id, surroundings),)


async def find(database: Database, session_id: str) -> Surroundings:
    """Return a session's surroundings; the default ones if nothing is stored."""
    rows = await database.read(
        "SELECT account, variables, secrets FROM acp_surroundings WHERE acp_session_id = ?",
        (session_id,),
    )
    if not rows:
        return Surroundings()
    account, variables, secrets = rows[0]
    return Surroundings(account, json.loads(variables), tuple(json.loads(secrets)))
