"""How long a value may be on a connection: SQLite makes one of 900 MB in a single step, which nothing
can interrupt.

The standard library has `Connection.setlimit`. `pysqlite3` has not, so its SQLite is called directly.
"""

from __future__ import annotations

import ctypes
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from pykoclaw_acp.store.sqlite import sqlite3

LONGEST: Final = 4 * 1024 * 1024  # bytes of a value, and of a row

_LENGTH: Final = 0  # SQLITE_LIMIT_LENGTH
_KNOWN: Final = "0.6."  # releases of pysqlite3 whose connections begin with their `sqlite3 *`


def limit(connection: sqlite3.Connection) -> bool:
    """Let no value be longer than `LONGEST`; returns whether that could be done."""
    if hasattr(connection, "setlimit"):
        connection.setlimit(_LENGTH, LONGEST)
    elif not _limit_directly(connection):
        return False
    return _is_limited(connection)


def _limit_directly(connection: sqlite3.Connection) -> bool:
    engine = sys.modules.get("pysqlite3._sqlite3")
    if engine is None or engine.__file__ is None or not _is_known():
        return False
    library = ctypes.PyDLL(engine.__file__)
    try:
        find, set_limit = library.sqlite3_vfs_find, library.sqlite3_limit
    except AttributeError:  # linked with the system's library
        return False
    find.argtypes, find.restype = [ctypes.c_char_p], ctypes.c_void_p
    set_limit.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    pointer = ctypes.c_void_p.from_address(id(connection) + object.__basicsize__).value
    # A `sqlite3` begins with its VFS: a sign that it is one.
    if not pointer or ctypes.c_void_p.from_address(pointer).value != find(None):
        return False
    set_limit(pointer, _LENGTH, LONGEST)
    return True


def _is_known() -> bool:
    try:
        return version("pysqlite3").startswith(_KNOWN)
    except PackageNotFoundError:  # another distribution of it
        return False


def _is_limited(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT length(zeroblob(?) || '')", (LONGEST + 1,)).fetchall()
    except sqlite3.DataError:
        return True
    return False
