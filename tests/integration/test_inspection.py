"""Whose a database is, and whether it can become ours, is found out before a byte of it
is changed.
"""

from __future__ import annotations

import grp
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pykoclaw_acp.cli import cli
from pykoclaw_acp.errors import (
    DatabaseBusy,
    DatabaseUnusable,
)
from pykoclaw_acp.store import connection
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.inspection import DatabaseForeign, DatabaseIncompatible
from pykoclaw_acp.store.sqlite import sqlite3
from tests.groups import shared_with
from tests.integration.schemas import OUR_TABLES, PYKOCLAW_SCHEMA, TWO_COLUMNS, create, query

FOUR_COLUMNS = "CREATE TABLE conversations (name TEXT PRIMARY KEY, session_id TEXT, cwd TEXT, created_at TEXT NOT NULL)"
FOREIGN = "CREATE TABLE photos (id INTEGER PRIMARY KEY, taken TEXT); INSERT INTO photos VALUES (1, 'today')"
PLUGIN = "CREATE TABLE wa_messages (id TEXT); CREATE TABLE whatever_a_plugin_wants (x)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


def tables(path: Path) -> set[str]:
    return {name for (name,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


async def refused(path: Path, error: type[DatabaseUnusable]) -> str:
    """Opening it is refused, and no byte was changed, and no file left beside it."""
    before = contents(path)
    with pytest.raises(error) as caught:
        await Database.open(path)
    assert (caught.value.exit_code, "was not touched" in str(caught.value)) == (78, True)
    assert contents(path) == before
    return str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        PYKOCLAW_SCHEMA,
        PYKOCLAW_SCHEMA + TWO_COLUMNS,
        FOUR_COLUMNS,  # of an old version, or killed before the next table
        FOUR_COLUMNS + ";" + PLUGIN,
        TWO_COLUMNS,
        "",
    ],
    ids=["today's", "with sessions", "oldest", "with plugins", "sessions alone", "empty"],
)
async def test_pykoclaws_own_is_adopted_unasked(path: Path, schema: str) -> None:
    create(path, schema + ";" if schema else "PRAGMA user_version = 0")
    before = tables(path)
    await (await Database.open(path)).close()
    assert tables(path) >= OUR_TABLES | before


async def test_foreign_database_is_refused_naming_adopting_command(path: Path) -> None:
    create(path, FOREIGN)
    words = await refused(path, DatabaseForeign)
    assert "photos" in words
    assert "`pykoclaw-acp adopt`" in words


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE conversations (id INTEGER PRIMARY KEY, title TEXT)",
        FOUR_COLUMNS + "; CREATE TABLE scheduled_tasks (what TEXT)",
    ],
)
async def test_namesake_of_pykoclaws_table_is_not_pykoclaws_database(
    path: Path, schema: str
) -> None:
    create(path, schema)
    await refused(path, DatabaseForeign)


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE conversations (name TEXT, session_id TEXT, cwd TEXT, created_at TEXT NOT NULL)",  # no key
        "CREATE TABLE conversations (name TEXT PRIMARY KEY, session_id TEXT, cwd TEXT, created_at TEXT, x NOT NULL)",
        FOUR_COLUMNS
        + "; CREATE TABLE acp_sessions (acp_session_id TEXT, conversation_name TEXT, more TEXT)",
        FOUR_COLUMNS + "; CREATE TABLE acp_turns (x)",
        FOUR_COLUMNS + "; CREATE VIEW acp_log AS SELECT 1",
        FOUR_COLUMNS
        + "; CREATE TABLE acp_sessions (acp_session_id TEXT, conversation_name TEXT)"
        + "; INSERT INTO acp_sessions VALUES ('1', NULL)",
        FOUR_COLUMNS + "; CREATE TABLE delivery_queue (id TEXT, conversation TEXT, message TEXT)",
    ],
)
async def test_unmigratable_database_is_refused_before_any_change(path: Path, schema: str) -> None:
    create(path, schema)
    await refused(path, DatabaseIncompatible)


async def test_own_database_with_failing_migrations_is_untouched(path: Path) -> None:
    await (await Database.open(path)).close()
    create(
        path,
        "DELETE FROM acp_migrations WHERE version > 8; DROP TABLE acp_turns; PRAGMA journal_mode=DELETE",
    )
    await refused(path, DatabaseIncompatible)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DROP TABLE conversations", "its table conversations is gone"),
        ("DROP TABLE acp_turns", "its table acp_turns is gone"),
        ("ALTER TABLE conversations RENAME COLUMN cwd TO dir", "conversations has no column cwd"),
    ],
)
async def test_missing_table_is_named_at_the_start(path: Path, change: str, says: str) -> None:
    await (await Database.open(path)).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute(change)
        other.commit()
    with pytest.raises(DatabaseIncompatible, match=says):
        await Database.open(path)


async def test_foreign_database_with_killed_writer_is_refused_too(path: Path) -> None:
    create(path, FOREIGN)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN")
        for _ in range(50):
            writer.execute("INSERT INTO photos (taken) VALUES (hex(randomblob(5000)))")
        killed = contents(path)
    for name, content in killed.items():
        path.with_name(name).write_bytes(content)
    with pytest.raises(DatabaseForeign):
        await Database.open(path)
    assert tables(path) == {"photos"}
    assert query(path, "SELECT * FROM photos") == [(1, "today")]


async def test_database_locked_by_other_program_is_refused_temporarily(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT", 0.5)
    create(path, PYKOCLAW_SCHEMA)
    before = contents(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DatabaseBusy) as caught:
            await Database.open(path)
        other.execute("ROLLBACK")
    assert (caught.value.exit_code, caught.value.kind) == (75, "database_busy")
    assert "keeps the database" in str(caught.value)
    assert contents(path) == before
    await (await Database.open(path)).close()


# --- adopt


def adopt(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYKOCLAW_DATA", str(path.parent))
    return CliRunner().invoke(cli, ["adopt"])


async def test_adopting_command_keeps_existing_data(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(path, FOREIGN)
    result = adopt(path, monkeypatch)
    assert (result.exit_code, "beside its own" in result.output) == (0, True)
    await (await Database.open(path)).close()
    assert tables(path) >= OUR_TABLES | {"photos"}
    assert query(path, "SELECT * FROM photos") == [(1, "today")]


async def test_adopting_command_trusts_the_group_that_is_set(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKOCLAW_GROUP", grp.getgrgid(os.getegid()).gr_name)
    shared_with(monkeypatch, "colleague")
    create(path, FOREIGN)
    path.parent.chmod(0o2770)
    assert adopt(path, monkeypatch).exit_code == 0


def test_the_command_refuses_what_cannot_be_adopted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert adopt(path, monkeypatch).exit_code == 1
    create(path, "CREATE TABLE conversations (id INTEGER PRIMARY KEY, title TEXT)")
    before = path.read_bytes()
    result = adopt(path, monkeypatch)
    assert (result.exit_code, "was not touched" in result.output) == (78, True)
    assert path.read_bytes() == before
