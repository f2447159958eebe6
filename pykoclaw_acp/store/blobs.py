"""`acp_blobs`: which session uses which blob; and what happens to the files of those that none uses.

`acp_unused_blobs` has since when, by the data directory's own clock, no session uses a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.units import Statement, Unit

AT_ONCE: Final = 500  # blobs that are looked at in one statement
ORPHAN_AGE: Final = 86_400.0  # s; an unused file may belong to a database that is put back
_USED: Final = (
    "SELECT 1 FROM acp_blobs o JOIN acp_sessions s ON s.acp_session_id = o.acp_session_id"
    " WHERE o.sha256 = b.sha256 AND COALESCE(s.deleted_at, 0) = 0"  # 0: it is being made
    " AND s.pruned_at IS NULL"
)
_LAST: Final = (
    "SELECT b.sha256 FROM acp_blobs b WHERE b.acp_session_id = ? AND b.sha256 > ?"  # noqa: S608  constants
    f" AND NOT EXISTS ({_USED}) ORDER BY b.sha256 LIMIT {AT_ONCE}"
)
_NOTE: Final = (
    "INSERT INTO acp_unused_blobs (sha256, since_clock) SELECT value, ?2 FROM json_each(?1)"
    " WHERE TRUE ON CONFLICT DO NOTHING"
)
_FORGET: Final = (
    "DELETE FROM acp_unused_blobs WHERE sha256 IN (SELECT value FROM json_each(?1))"
    " AND since_clock <= ?2"
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
    """Remove files that no session uses, and that none used a day of the machine's running time ago:
    whoever wrote them died before the commit. Others that none uses are noted.
    """
    known = dict(await database.read("SELECT sha256, since_clock FROM acp_unused_blobs"))
    names = await database.blobs.all()
    young: set[str] = set()
    for at in range(0, len(names), AT_ONCE):
        some = names[at : at + AT_ONCE]
        marks = ", ".join("?" * len(some))
        async with database.blobs.removing() as remove:
            rows = await database.read(
                f"SELECT DISTINCT sha256 FROM acp_blobs WHERE sha256 IN ({marks})",  # noqa: S608
                tuple(some),
            )
            unused = set(some).difference(name for (name,) in rows)
            old = {
                name
                for name in unused & known.keys()
                if database.clock.age(known[name]) >= ORPHAN_AGE
            }
            remove(old)
        young |= unused - old
    await _note_unused(database, young - known.keys(), known.keys() - young)


async def _note_unused(database: Database, new: AbstractSet[str], ended: AbstractSet[str]) -> None:
    for sql, names in ((_NOTE, new), (_FORGET, ended)):
        listed = sorted(names)
        for at in range(0, len(listed), AT_ONCE):
            some = (json.dumps(listed[at : at + AT_ONCE]), database.clock.now())
            await database.commit(Unit((Statement(sql, some),)))
