"""Columns that pykoclaw has added to its tables since it made them first.

A database may come from before them. pykoclaw adds them at its next start; whoever starts first
does it here in the same words.
"""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.store.sqlite import sqlite3

_ADDED: Final = (
    ("scheduled_tasks", "context_mode", "TEXT DEFAULT 'group'"),
    ("scheduled_tasks", "target_conversation", "TEXT"),
    ("conversations", "system_prompt_hash", "TEXT"),
)


def complete(connection: sqlite3.Connection) -> None:
    """Add the columns that are missing.

    `connection` is in autocommit mode. Raises sqlite3.Error; nothing is kept of what failed.
    """
    if not _missing(connection):
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        for table, column, declaration in _missing(connection):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {declaration}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _missing(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    found = []
    for table, column, declaration in _ADDED:
        names = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if names and column not in names:
            found.append((table, column, declaration))
    return found
