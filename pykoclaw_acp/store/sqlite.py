"""The one place that imports `sqlite3`: after the engine was chosen."""

from __future__ import annotations

from pykoclaw_acp.store import engine

ENGINE = engine.install()

import sqlite3  # noqa: E402

__all__ = ["ENGINE", "result_code", "sqlite3"]


def result_code(error: BaseException) -> int:
    """SQLite's primary result code (https://sqlite.org/rescode.html); 0 if the error is not
    SQLite's own.
    """
    # pysqlite3 gives primary codes, the standard library extended ones, whose low byte is the
    # primary one.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
