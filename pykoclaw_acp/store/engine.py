"""The SQLite library of this process: exactly one, and if possible one without the
WAL-reset bug.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

# Modules that `import sqlite3` loads.
_STANDARD_MODULES = frozenset({"sqlite3", "sqlite3.dbapi2", "_sqlite3"})


@dataclass(frozen=True, slots=True)
class Engine:
    """The SQLite library that `import sqlite3` gives in this process."""

    name: str
    """The module that it comes from: `pysqlite3` or `sqlite3`."""
    version: tuple[int, int, int]
    affected: bool
    """Whether it has the WAL-reset bug (see `wal_reset_affected`)."""


def wal_reset_affected(version: tuple[int, int, int]) -> bool:
    """Whether this SQLite can corrupt a WAL file that several processes write
    (https://sqlite.org/wal.html#walresetbug).

    The bug is in 3.7.0 to 3.51.2; 3.51.3 fixed it, and so did the back-ports 3.50.7 and 3.44.6.
    """
    if not (3, 7, 0) <= version < (3, 51, 3):
        return False
    return not ((3, 50, 7) <= version < (3, 51, 0) or (3, 44, 6) <= version < (3, 45, 0))


def is_shut_out() -> bool:
    """Whether `install` would raise RuntimeError: another engine was loaded before ours."""
    if not _STANDARD_MODULES & sys.modules.keys():
        return False
    from importlib.util import find_spec

    loaded = getattr(sys.modules.get("sqlite3"), "__name__", None)
    return loaded != "pysqlite3" and find_spec("pysqlite3") is not None


def install() -> Engine:
    """Make `import sqlite3` import `pysqlite3` in this process, if that is installed; returns the
    engine in use.

    May be called any number of times. Raises RuntimeError if the standard `sqlite3` was imported
    before: with two engines in one process, closing a file in one drops the POSIX locks that the
    other holds on it
    (https://sqlite.org/howtocorrupt.html#_multiple_copies_of_sqlite_linked_into_the_same_application).
    """
    try:
        import pysqlite3
        import pysqlite3.dbapi2
    except ImportError:
        import sqlite3

        return _describe("sqlite3", sqlite3.sqlite_version_info)
    if sys.modules.get("sqlite3") is not pysqlite3:
        if loaded := sorted(_STANDARD_MODULES & sys.modules.keys()):
            raise RuntimeError(
                f"{', '.join(loaded)} was imported before pykoclaw_acp.store.engine.install()"
            )
        sys.modules["sqlite3"] = pysqlite3
        sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2
    return _describe("pysqlite3", pysqlite3.sqlite_version_info)


def _describe(name: str, version: tuple[int, int, int]) -> Engine:
    return Engine(name, version, wal_reset_affected(version))
