"""`acp_trust`: which directories the user trusts, with which content.

The columns are those of `model.trust.Trusted`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pykoclaw_acp.model.permissions import Workspace
from pykoclaw_acp.model.trust import FIRST_USE, Trusted, WithoutTrust
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sql import places
from pykoclaw_acp.system.paths import upwards

_COLUMNS: Final = "path, content, dotenv, granted_by, created_at, files"


def add(
    path: str,
    content: str,
    by: str,
    dotenv: str | None = None,
    files: Mapping[str, str] | None = None,
) -> Statement:
    """Trust a directory with this content; the newest decision on its `./.env` counts."""
    return Statement(
        "INSERT INTO acp_trust (path, content, dotenv, granted_by, created_at, files) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (path, content) DO UPDATE SET dotenv = COALESCE(excluded.dotenv, acp_trust.dotenv),"
        " files = COALESCE(excluded.files, acp_trust.files)",
        (path, content, dotenv, by, now_ms(), None if files is None else json.dumps(dict(files))),
    )


def grant(one: Workspace, by: str) -> tuple[Statement, ...]:
    """Trust a directory with what was found in it."""
    files = one.files or None
    return add(one.path, one.content, by, files=files), settled(one.path)


def note_digests(one: Workspace) -> Statement:
    """Keep the digests of a directory that is trusted with this content and without them."""
    return Statement(
        "UPDATE acp_trust SET files = ? WHERE path = ? AND content = ? AND files IS NULL",
        (json.dumps(one.files), one.path, one.content),
    )


def run_without(one: Workspace, by: str) -> Statement:
    """The choice was to run without what acts there."""
    return Statement(
        "INSERT INTO acp_run_without (path, content, decided_by, created_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (path) DO UPDATE SET content = excluded.content, decided_by = excluded.decided_by,"
        " created_at = excluded.created_at",
        (one.path, one.content, by, now_ms()),
    )


def settled(path: str) -> Statement:
    """An earlier choice to run without what acts there does not stand any more."""
    return Statement("DELETE FROM acp_run_without WHERE path = ?", (path,))


def used(path: str) -> Statement:
    """Delete the row that trusts the first use."""
    return Statement("DELETE FROM acp_trust WHERE path = ? AND content = ?", (path, FIRST_USE))


def remove(path: str) -> tuple[Statement, ...]:
    """Withdraw trust in a directory, and forget a choice to run without what acts there."""
    return Statement("DELETE FROM acp_trust WHERE path = ?", (path,)), settled(path)


async def of(database: Database, paths: Collection[str]) -> list[Trusted]:
    """Rows of these paths and of the directories above them."""
    wanted = sorted({above for path in paths for above in upwards(path)})
    if not wanted:
        return []
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM acp_trust WHERE path IN {places(wanted)}",  # noqa: S608  constant
        (*wanted,),
    )
    return [_trusted(row) for row in rows]


async def listing(database: Database) -> Sequence[Trusted]:
    """All rows."""
    rows = await database.read(f"SELECT {_COLUMNS} FROM acp_trust ORDER BY path, created_at", ())  # noqa: S608
    return [_trusted(row) for row in rows]


async def without(database: Database) -> list[WithoutTrust]:
    """Directories in which Claude runs without what acts there."""
    rows = await database.read(
        "SELECT path, content, decided_by, created_at FROM acp_run_without ORDER BY path", ()
    )
    return [WithoutTrust(*row) for row in rows]


def _trusted(row: tuple[Any, ...]) -> Trusted:
    path, content, dotenv, by, at, files = row
    try:
        said = None if files is None else json.loads(files)
    except ValueError:
        said = None
    return Trusted(path, content, dotenv, by, at, said if isinstance(said, dict) else None)
