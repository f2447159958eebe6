"""`acp_trust`: which directories the user trusts, with which content.

The columns are those of `model.trust.Trusted`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pykoclaw_acp.model.trust import FIRST_USE, Trusted
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sql import places
from pykoclaw_acp.system.paths import upwards

_COLUMNS: Final = "path, content, dotenv, granted_by, created_at"


def add(path: str, content: str, by: str, dotenv: str | None = None) -> Statement:
    """Trust a directory with this content; the newest decision on its `./.env` counts."""
    return Statement(
        "INSERT INTO acp_trust (path, content, dotenv, granted_by, created_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (path, content) DO UPDATE SET dotenv = COALESCE(excluded.dotenv, acp_trust.dotenv)",
        (path, content, dotenv, by, now_ms()),
    )


def used(path: str) -> Statement:
    """Delete the row that trusts the first use."""
    return Statement("DELETE FROM acp_trust WHERE path = ? AND content = ?", (path, FIRST_USE))


def remove(path: str) -> Statement:
    """Withdraw trust in a directory."""
    return Statement("DELETE FROM acp_trust WHERE path = ?", (path,))


async def of(database: Database, paths: Collection[str]) -> list[Trusted]:
    """Rows of these paths and of the directories above them."""
    wanted = sorted({above for path in paths for above in upwards(path)})
    if not wanted:
        return []
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM acp_trust WHERE path IN {places(wanted)}",  # noqa: S608  constant
        (*wanted,),
    )
    return [Trusted(*row) for row in rows]


async def listing(database: Database) -> Sequence[Trusted]:
    """All rows."""
    rows = await database.read(f"SELECT {_COLUMNS} FROM acp_trust ORDER BY path, created_at", ())  # noqa: S608
    return [Trusted(*row) for row in rows]
