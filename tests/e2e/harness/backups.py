"""Backups of a stack's database: made while it is in use, and put back."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from pykoclaw_acp.store.sqlite import sqlite3
from tests.e2e.harness.stack import Stack


def back_up(stack: Stack) -> Path:
    """A copy of the database, which may be in use."""
    path = stack.root / "backup.db"
    database = stack.data / "pykoclaw.db"
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
    return path


def put_back(stack: Stack, backup: Path) -> None:
    """Replace the database, which nobody uses."""
    for name in ("pykoclaw.db", "pykoclaw.db-wal", "pykoclaw.db-shm"):
        (stack.data / name).unlink(missing_ok=True)
    shutil.copy(backup, stack.data / "pykoclaw.db")
