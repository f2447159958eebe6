"""`acp_surroundings`: the account of a session, and what a client gave it that is no secret."""

from __future__ import annotations

import json

from pykoclaw_acp.model.session_environment import StoredEnvironment
from pykoclaw_acp.store.database import Database, Statement


def keep(session_id: str, environment: StoredEnvironment) -> Statement:
    """Store those of a session that may have had others."""
    if environment == StoredEnvironment():
        return Statement("DELETE FROM acp_surroundings WHERE acp_session_id = ?", (session_id,))
    return Statement(
        "INSERT INTO acp_surroundings (acp_session_id, account, variables, secrets) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (acp_session_id) DO UPDATE SET"
        " account = excluded.account, variables = excluded.variables, secrets = excluded.secrets",
        (
            session_id,
            environment.account,
            json.dumps(dict(environment.variables), sort_keys=True),
            json.dumps(environment.secrets),
        ),
    )


def begin(session_id: str, environment: StoredEnvironment) -> tuple[Statement, ...]:
    """Return the statements that store a new session's environment: none if it is the default
    one.
    """
    return () if environment == StoredEnvironment() else (keep(session_id, environment),)


async def find(database: Database, session_id: str) -> StoredEnvironment:
    """Return a session's environment; the default one if nothing is stored."""
    rows = await database.read(
        "SELECT account, variables, secrets FROM acp_surroundings WHERE acp_session_id = ?",
        (session_id,),
    )
    if not rows:
        return StoredEnvironment()
    account, variables, secrets = rows[0]
    return StoredEnvironment(account, json.loads(variables), tuple(json.loads(secrets)))
