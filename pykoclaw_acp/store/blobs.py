"""`acp_blobs`: which session uses which blob; and what happens to the files of those that none uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.units import Statement

AT_ONCE: Final = 500  # blobs that are looked at in one statement
_USED: Final = (
    "SELECT 1 FROM acp_blobs o JOIN acp_sessions s ON s.acp_session_id = o.acp_session_id"
    " WHERE o.sha256 = b.sha256 AND COALESCE(s.deleted_at, 0) = 0"  # 0: it is being made
    " AND s.pruned_at IS NULL"
)
_LAST: Final = (
    "SELECT b.sha256 FROM acp_blobs b WHERE b.acp_session_id = ? AND b.sha256 > ?"  # noqa: S608  constants
    f" AND NOT EXISTS ({_USED}) ORDER BY b.sha256 LIMIT {AT_ONCE}"
)


def use(session_id: str, names: Iterable[str]) -> Iterator[Statement]:
    """The session uses these blobs."""
    for name in names:
        yield Statement(
            "INSERT INTO acp_blobs (acp_session_id, sha256) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (session_id, name),
        )


def share(session_id: str, other: str) -> Statement:
    """Another session uses all that this one uses: it has a copy of its log."""
    return Statement(
        "INSERT INTO acp_blobs (acp_session_id, sha256) SELECT ?, sha256 FROM acp_blobs"
        " WHERE acp_session_id = ? ON CONFLICT DO NOTHING",
        (other, session_id),
    )


async def remove_unused(database: Database, session_id: str) -> None:
    """Remove the files that only this hidden session, and others that are hidden, have used.

    Its rows stay, so that an interrupted removal is done again.
    """
    after = ""
    async with database.blobs.removing() as remove:
        while found := await database.read(_LAST, (session_id, after)):
            remove(name for (name,) in found)
            after = found[-1][0]


async def remove_orphans(database: Database) -> None:
    """Remove old files that no session has ever referred to: whoever wrote them died before the
    commit.
    """
    names = await database.blobs.old()
    for at in range(0, len(names), AT_ONCE):
        some = names[at : at + AT_ONCE]
        marks = ", ".join("?" * len(some))
        async with database.blobs.removing() as remove:
            rows = await database.read(
                f"SELECT DISTINCT sha256 FROM acp_blobs WHERE sha256 IN ({marks})",  # noqa: S608
                tuple(some),
            )
            used = {name for (name,) in rows}
            remove(name for name in some if name not in used)
