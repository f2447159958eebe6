"""Statements that make a session's rows."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pykoclaw_acp.store.database import Statement, Unit
from pykoclaw_acp.store.sqlite import sqlite3

SESSION = "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa"


NEW_SESSION = Unit(
    (
        Statement(
            "INSERT INTO acp_sessions (acp_session_id, conversation_name, created_at, updated_at) "
            "VALUES (?, 'c', 0, 0)",
            (SESSION,),
        ),
    )
)


def create(path: Path, mode: str) -> None:
    """A small database of pykoclaw's, closed."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode={mode}")
        connection.execute(
            "CREATE TABLE conversations (name TEXT PRIMARY KEY, session_id TEXT, cwd TEXT, "
            "created_at TEXT NOT NULL, system_prompt_hash TEXT)"
        )
        connection.executemany(
            "INSERT INTO conversations VALUES (?, NULL, NULL, '2025', ?)",
            [(f"wa-{number}", "x" * 400) for number in range(200)],
        )
        connection.commit()
