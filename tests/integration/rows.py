"""Statements that make a session's rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from pykoclaw_acp.store.database import Database, Statement, Unit
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = await Database.open(path)
    yield database
    await database.close()


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
