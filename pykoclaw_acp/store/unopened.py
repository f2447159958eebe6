"""Conversations of ACP clients that have no session: those of the earlier plugin.

There are as many conversations of ACP clients as sessions, and nearly all have one. They are
looked through once; after that, only those that were added since.
"""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.model.conversations import OWN
from pykoclaw_acp.store.readers import Rows
from pykoclaw_acp.store.sql import HAS_SESSION

_LAST: Final = "SELECT rowid, name FROM conversations ORDER BY rowid DESC LIMIT 1"
_NAMED: Final = "SELECT name FROM conversations WHERE rowid = ?"
_ADDED: Final = (
    "SELECT c.name FROM conversations c WHERE c.rowid > ?"  # noqa: S608  constants
    f" AND +c.name >= '{OWN}-' AND +c.name < '{OWN}.' AND NOT {HAS_SESSION}"
)
_Row = tuple[int, object]


class Unopened:
    """The names; one whose conversation got a session since may be among them."""

    def __init__(self) -> None:
        self._seen: tuple[_Row | None, frozenset[str]] = (None, frozenset())

    def names(self, read: Rows) -> frozenset[str]:
        """Return the names that are in the table now. May be called from any thread."""
        last, names = self._seen
        rows = read(_LAST, ())
        newest: _Row | None = rows[0] if rows else None
        if newest == last:
            return names
        if last is None or read(_NAMED, (last[0],)) != [(last[1],)]:  # rows were numbered anew
            last, names = None, frozenset()
        added = read(_ADDED, (0 if last is None else last[0],))
        names |= {name for (name,) in added if isinstance(name, str)}
        self._seen = (newest, names)
        return names
