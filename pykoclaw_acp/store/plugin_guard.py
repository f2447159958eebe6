"""What statements of plugins may do, and for how long: SQLite asks this before it compiles one, and
while one runs.
"""

from __future__ import annotations

import re
import time
from typing import Final

from pykoclaw_acp.store import value_limit
from pykoclaw_acp.store.sqlite import sqlite3

OWN_PREFIX: Final = "acp_"
SHARED: Final = frozenset({"conversations", "scheduled_tasks", "task_run_logs", "delivery_queue"})
STEPS: Final = 100  # of SQLite's virtual machine between two looks at the clock
# What makes a long value of short ones in one step; refused where their length cannot be limited.
MAKERS: Final = frozenset({"zeroblob", "randomblob", "printf", "format", "replace", "hex", "quote"})

_MAY_READ: Final = frozenset({"select", "values", "with", "explain", "pragma"})
_CHANGES: Final = frozenset({"insert", "replace", "update", "delete", "create", "alter", "drop"})
_ALLOWED: Final = _MAY_READ | _CHANGES
_SCHEMA_PRAGMAS: Final = frozenset(
    {
        "table_info",
        "table_xinfo",
        "table_list",
        "index_list",
        "index_info",
        "index_xinfo",
        "foreign_key_list",
        "data_version",  # what FTS5 asks itself
    }
)
_HARMLESS: Final = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_TRANSACTION,  # ours: no word of `_ALLOWED` begins or ends one
    }
)
_WRITES: Final = frozenset(
    {
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_VTABLE,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_TRIGGER,
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_VTABLE,
        sqlite3.SQLITE_DROP_VIEW,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_DROP_TRIGGER,
        sqlite3.SQLITE_REINDEX,  # of an index that is being made
    }
)
_OF_SHARED: Final = {
    sqlite3.SQLITE_DROP_TABLE: "drop",
    sqlite3.SQLITE_CREATE_TRIGGER: "put a trigger on",
    sqlite3.SQLITE_DROP_INDEX: "drop an index of",
}
_SPACE: Final = r"(?:[\s\ufeff]|--[^\n]*(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z))"
_SPACES: Final = re.compile(rf"{_SPACE}++")
_BEGINNING: Final = re.compile(rf"{_SPACE}*+([A-Za-z]*)")
_NAME: Final = r'(?:[\w$]+|"[^"]*"|`[^`]*`|\[[^\]]*\]|\'[^\']*\')'
_ADD_COLUMN: Final = re.compile(
    rf"{_SPACE}*+alter{_SPACE}++table{_SPACE}*+(?:{_NAME}{_SPACE}*+\.{_SPACE}*+)?{_NAME}{_SPACE}*+add\b"
    r"(?!.*\b(?:check|constraint)\b)",
    re.IGNORECASE | re.DOTALL,
)
_PLAIN_INDEX: Final = re.compile(  # on columns: nothing in it can refuse a row
    rf"{_SPACE}*+create{_SPACE}++index\b[^()]*\((?:[\w$,\"`\[\]]|{_SPACE})*+\)[\s;]*\Z",
    re.IGNORECASE,
)
# How a statement must be written that changes a shared table, and what plugins may do there.
_PLAINLY: Final = {
    sqlite3.SQLITE_CREATE_INDEX: (_PLAIN_INDEX, "put only plain indexes on {}"),
    sqlite3.SQLITE_ALTER_TABLE: (_ADD_COLUMN, "only add columns to {}, without CHECK"),
}


class StatementRefused(Exception):
    """A statement that no plugin may run; the message says which, and what to do instead."""


def word(sql: str) -> str:
    """The statement's first word, in lower case; raises StatementRefused if it is not one that plugins may
    use.
    """
    found = _BEGINNING.match(sql)
    first = found[1].lower() if found else ""
    if first in _ALLOWED and not (first == "alter" and OWN_PREFIX in sql.lower()):
        return first
    if first in ("begin", "commit", "end", "rollback", "savepoint", "release"):
        raise StatementRefused("A plugin's transaction is `with db.transaction()`, not SQL.")
    raise StatementRefused(f"Plugins may not run {first.upper() or 'this'} in the shared database.")


def words(sql: str) -> list[str]:
    """The statement in lower case, in words, without comments and semicolons; those in its literals are
    taken for such.
    """
    return _SPACES.sub(" ", sql).replace(";", " ").lower().split()


def may_read(first: str) -> bool:
    """Whether a statement that begins with this word may be one that only reads."""
    return first in _MAY_READ


class Guard:
    """The rules of one connection. `refused` is why SQLite refused the statement; `wants_write`: it
    did because the connection only reads.
    """

    def __init__(self, connection: sqlite3.Connection, *, reads_only: bool) -> None:
        self.refused = ""
        self.wants_write = False
        self.expired = False
        self._reads_only = reads_only
        self._stopped = False
        self._bounds = False
        self._deadline = 0.0
        self._sql = ""
        self._limited = value_limit.limit(connection)
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(self._look, STEPS)
        if reads_only:
            connection.execute("PRAGMA query_only=ON")

    def start(self, seconds: float) -> None:
        """Begin a statement, or a batch of them, that may take so long."""
        self.refused, self.wants_write, self.expired = "", False, self._stopped
        self._deadline = time.monotonic() + seconds
        self._bounds = True

    def rest(self) -> None:
        """Interrupt nothing until the next `start`: the program's own statements run to their end."""
        self._bounds = False

    def stop(self) -> None:
        """End what runs, and whatever is started from now on; may be called in any thread."""
        self._stopped = True

    def begin(self, sql: str) -> None:
        """Begin a statement of the batch; raises sqlite3.OperationalError if the time is up."""
        self._sql = sql
        if self._look():
            raise sqlite3.OperationalError("interrupted")

    def _look(self) -> bool:
        if not self._bounds:
            return False
        self.expired = self.expired or self._stopped or time.monotonic() > self._deadline
        return self.expired

    def _authorize(
        self, action: int, first: str | None, second: str | None, base: str | None, _: str | None
    ) -> int:
        if (
            action == sqlite3.SQLITE_FUNCTION
            and not self._limited
            and (second or "").lower() in MAKERS
        ):
            return self._refuse(f"Plugins may not use {second}() with this SQLite library.")
        if action in _HARMLESS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_PRAGMA:
            if (first or "").lower() in _SCHEMA_PRAGMAS or not self._deadline:
                return sqlite3.SQLITE_OK
            return self._refuse(f"Plugins may not use PRAGMA {first} in the shared database.")
        if action not in _WRITES:
            return self._refuse("Plugins may not do this in the shared database.")
        names = {name.lower() for name in (first, second) if name}
        if own := next((name for name in names if name.startswith(OWN_PREFIX)), None):
            return self._refuse(
                f"Plugins may not change {own}: the names acp_… belong to pykoclaw-acp."
            )
        if action in _OF_SHARED and (shared := next(iter(names & SHARED), None)):
            return self._refuse(
                f"Plugins may not {_OF_SHARED[action]} {shared}, which all programs share."
            )
        if action in _PLAINLY and (shared := next(iter(names & SHARED), None)):
            form, allowed = _PLAINLY[action]
            if not form.match(self._sql):
                return self._refuse(f"Plugins may {allowed.format(shared)}: all programs share it.")
        if base == "temp":
            return self._refuse("Plugins may make nothing temporary in the shared database.")
        if self._reads_only:
            self.wants_write = True
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _refuse(self, why: str) -> int:
        self.refused = why
        return sqlite3.SQLITE_DENY
