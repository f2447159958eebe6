"""The migrations: the three kinds of file they start from, and what stops them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pykoclaw_acp
from pykoclaw_acp.errors import DatabaseUnusable
from pykoclaw_acp.store import inspection, migrate
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.sqlite import sqlite3
from tests.double import files
from tests.integration.schemas import OUR_TABLES, PYKOCLAW_SCHEMA, TWO_COLUMNS, create, query

PYKOCLAW_TABLES = ("conversations", "scheduled_tasks", "task_run_logs", "delivery_queue")
NAMES = sorted(path.name for path in (Path(__file__).parents[2] / "migrations").glob("*.sql"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def rows(path: Path) -> dict[str, list[Any]]:
    return {table: query(path, f"SELECT * FROM {table} ORDER BY 1") for table in PYKOCLAW_TABLES}


def applied(path: Path) -> list[str]:
    return [name for (name,) in query(path, "SELECT name FROM acp_migrations ORDER BY version")]


async def open_and_close(path: Path) -> None:
    database = await Database.open(path)
    await database.close()


async def test_a_fresh_file_gets_every_table(path: Path) -> None:
    await open_and_close(path)
    tables = {
        name for (name,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    assert tables >= OUR_TABLES | set(PYKOCLAW_TABLES)
    assert applied(path) == NAMES
    await open_and_close(path)
    assert applied(path) == NAMES


async def test_fresh_file_has_tables_identical_to_pykoclaws(path: Path, tmp_path: Path) -> None:
    await open_and_close(path)
    create(tmp_path / "theirs.db", PYKOCLAW_SCHEMA)
    for table in PYKOCLAW_TABLES:
        for pragma in ("table_info", "foreign_key_list"):
            described = f"PRAGMA {pragma}({table})"
            assert query(path, described) == query(tmp_path / "theirs.db", described), described
    indexes = (
        "SELECT m.name, m.tbl_name, i.seqno, i.name FROM sqlite_master m, pragma_index_info(m.name) i "
        "WHERE m.type = 'index' AND m.name LIKE 'idx_%' ORDER BY 1, 3"
    )
    assert query(path, indexes) == query(tmp_path / "theirs.db", indexes)


async def test_pykoclaws_database_keeps_every_row(path: Path) -> None:
    create(path, PYKOCLAW_SCHEMA)
    before = rows(path)
    assert all(before.values())
    await open_and_close(path)
    assert rows(path) == before
    assert applied(path) == NAMES
    assert query(path, "SELECT count(*) FROM acp_sessions") == [(0,)]


async def test_the_two_column_sessions_are_adopted(path: Path) -> None:
    create(path, PYKOCLAW_SCHEMA + TWO_COLUMNS)
    before = rows(path)
    started = time.time_ns() // 1_000_000 - 1000
    await open_and_close(path)
    assert rows(path) == before
    known, unknown = query(
        path,
        "SELECT acp_session_id, conversation_name, cwd, created_at, updated_at, typeof(created_at), last_seq, epoch,"
        " additional_directories, options, title, closed_at, deleted_at FROM acp_sessions ORDER BY 1",
    )
    # 2025-03-01T10:20:30.123 UTC
    assert known == (
        *("11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "acp-11111111", "/home/me/project"),
        *(1740824430123, 1740824430123, "integer", 0, 0, "[]", "{}", None, None, None),
    )
    assert unknown[:3] == ("22222222-bbbb-4bbb-8bbb-bbbbbbbbbbbb", "acp-22222222", None)
    assert started <= unknown[3] == unknown[4] <= time.time_ns() // 1_000_000 + 1000
    assert query(path, "SELECT name FROM sqlite_master WHERE name LIKE '%two_columns%'") == []


async def test_only_known_conversation_directories_get_trust_at_upgrade(path: Path) -> None:
    """The second of the two sessions has no directory that is known; one that is opened later adds
    nothing.
    """
    create(path, PYKOCLAW_SCHEMA + TWO_COLUMNS)
    create(path, "UPDATE conversations SET session_id = 'x' WHERE name = 'acp-11111111';")
    await open_and_close(path)
    assert query(path, "SELECT path, content, dotenv, granted_by FROM acp_trust") == [
        ("/home/me/project", "", None, "upgrade")
    ]
    await open_and_close(path)
    assert len(query(path, "SELECT * FROM acp_trust")) == 1


@pytest.mark.parametrize(("account", "kept"), [("", 1), ("work", 0)])
def test_offers_are_kept_where_nobody_has_accounts(
    path: Path, connection: sqlite3.Connection, account: str, kept: int
) -> None:
    files = migrate.load()
    migrate.apply(connection, [one for one in files if one.version < 56], path)
    connection.execute(
        "INSERT INTO acp_offers (cwd, commands, models, updated_at, configuration, position)"
        " VALUES ('/a', '[]', '[]', 1, '[\"\", [], null]', 1), ('/b', '[]', '[]', 1, NULL, 2)"
    )
    connection.execute("INSERT INTO acp_surroundings VALUES ('s', ?, '{}', '[]')", (account,))
    migrate.apply(connection, files, path)
    assert query(path, "SELECT COUNT(*) FROM acp_offers") == [(kept,)]


async def test_columns_that_pykoclaw_added_later_are_added(path: Path) -> None:
    files.first_schema(path.parent)
    await open_and_close(path)
    columns = query(path, "SELECT name FROM pragma_table_info('conversations')")
    assert ("system_prompt_hash",) in columns
    assert query(path, "SELECT context_mode, target_conversation FROM scheduled_tasks") != []


async def test_an_adopted_session_takes_events_and_turns(path: Path) -> None:
    create(path, PYKOCLAW_SCHEMA + TWO_COLUMNS)
    database = await Database.open(path)
    try:
        turn = (
            "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at) "
            "VALUES ('turn', '11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa', 'client', '[]', 'queued', 1)"
        )
        await database.commit(Unit((Statement(turn, rows=1),)))
        assert await database.read("SELECT state FROM acp_turns") == [("queued",)]
    finally:
        await database.close()


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(Path(pykoclaw_acp.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_simultaneous_migrators_apply_each_migration_once(path: Path) -> None:
    code = (
        "import asyncio, pathlib, sys\n"
        "from pykoclaw_acp.store.database import Database\n"
        "async def main():\n"
        "    database = await Database.open(pathlib.Path(sys.argv[1]))\n"
        "    await database.close()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "asyncio.run(main())\n"
    )
    migrators = [start(code, str(path)) for _ in range(4)]
    for migrator in migrators:
        assert migrator.stdout is not None
        assert migrator.stdout.readline() == "ready\n"
    for migrator in migrators:
        assert migrator.stdin is not None
        migrator.stdin.write("\n")
        migrator.stdin.flush()
    for migrator in migrators:
        _, errors = migrator.communicate(timeout=60)
        assert migrator.returncode == 0, errors
    assert applied(path) == NAMES


def test_database_migrated_elsewhere_is_inspected_as_it_was(path: Path) -> None:
    create(path, PYKOCLAW_SCHEMA + TWO_COLUMNS)
    migrations = migrate.load()

    def migrate_meanwhile(statement: str) -> None:
        if statement.startswith("SELECT sql FROM sqlite_master"):
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                migrate.apply(other, migrations, path)

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.set_trace_callback(migrate_meanwhile)
        inspection.inspect(connection, migrations, path)
    assert applied(path) == NAMES


OLD_PYKOCLAW = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=5)
connection.row_factory = sqlite3.Row
connection.execute("PRAGMA foreign_keys=ON")
upsert = ("INSERT INTO conversations (name, session_id, cwd, created_at) VALUES (?, ?, ?, ?) "
          "ON CONFLICT(name) DO UPDATE SET session_id = excluded.session_id")
connection.execute(upsert, ("wa-491234", "claude-3", None, "2025-04-01T00:00:00+00:00"))
connection.commit()
connection.execute("INSERT INTO task_run_logs (task_id, run_at, duration_ms, status) "
                   "VALUES ('t1', 'now', 1, 'success')")
connection.execute("INSERT INTO delivery_queue (id, task_id, conversation, channel_prefix, message, created_at) "
                   "VALUES ('d2', 't1', 'acp-11111111', 'acp', 'news', '2025-04-01T00:00:00+00:00')")
connection.commit()
for row in connection.execute("SELECT id FROM delivery_queue WHERE channel_prefix = 'wa' AND status = 'pending' "
                              "ORDER BY created_at").fetchall():
    connection.execute("UPDATE delivery_queue SET status = 'delivered' WHERE id = ?", (row["id"],))
connection.commit()
mapping = "SELECT acp_session_id FROM acp_sessions WHERE conversation_name = 'acp-11111111'"
print(connection.execute(mapping).fetchone()[0])
connection.close()
"""


async def test_pykoclaws_code_keeps_working_while_database_is_open(path: Path) -> None:
    create(path, PYKOCLAW_SCHEMA + TWO_COLUMNS)
    database = await Database.open(path)
    try:
        output, errors = start(OLD_PYKOCLAW, str(path)).communicate(timeout=60)
        assert output == "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa\n", errors
        assert await database.read(
            "SELECT session_id FROM conversations WHERE name = 'wa-491234'"
        ) == [("claude-3",)]
        assert await database.read("SELECT id, status FROM delivery_queue ORDER BY id") == [
            ("d1", "delivered"),
            ("d2", "pending"),
        ]
    finally:
        await database.close()


def folder_with(tmp_path: Path, **files: str) -> list[migrate.Migration]:
    folder = tmp_path / "migrations"
    folder.mkdir(exist_ok=True)
    for name, sql in files.items():
        (folder / f"{name.removeprefix('m')}.sql").write_text(sql)
    return migrate.load(folder)


def test_a_changed_migration_is_named(
    path: Path, tmp_path: Path, connection: sqlite3.Connection
) -> None:
    migrate.apply(connection, folder_with(tmp_path, m0001_first="CREATE TABLE a (x TEXT);"), path)
    changed = folder_with(
        tmp_path, m0001_first="CREATE TABLE a (x TEXT, y TEXT);", m0002_second="CREATE TABLE b (x);"
    )
    with pytest.raises(DatabaseUnusable, match=r"0001_first\.sql") as refusal:
        migrate.apply(connection, changed, path)
    assert str(path) in str(refusal.value)
    assert applied(path) == ["0001_first.sql"]


async def test_a_newer_database_is_named_and_untouched(path: Path) -> None:
    await open_and_close(path)
    create(path, "INSERT INTO acp_migrations VALUES (9001, '9001_future.sql', 'f00', 1);")
    before = {entry.name: entry.read_bytes() for entry in path.parent.iterdir()}
    with pytest.raises(DatabaseUnusable, match="made by a newer version") as refusal:
        await Database.open(path)
    assert str(path) in str(refusal.value)
    assert "Install that version" in str(refusal.value)
    assert {entry.name: entry.read_bytes() for entry in path.parent.iterdir()} == before


async def test_a_changed_migration_leaves_the_file_untouched(path: Path) -> None:
    await open_and_close(path)
    create(path, "UPDATE acp_migrations SET sha256 = 'f00' WHERE version = 2;")
    before = {entry.name: entry.read_bytes() for entry in path.parent.iterdir()}
    with pytest.raises(DatabaseUnusable, match=r"0002_acp\.sql"):
        await Database.open(path)
    assert {entry.name: entry.read_bytes() for entry in path.parent.iterdir()} == before


def test_failing_migration_is_undone_and_earlier_ones_stay(
    path: Path, tmp_path: Path, connection: sqlite3.Connection
) -> None:
    migrations = folder_with(
        tmp_path,
        m0001_first="CREATE TABLE a (x TEXT NOT NULL);",
        m0002_second="CREATE TABLE b (x TEXT); INSERT INTO b VALUES ('1'); INSERT INTO a VALUES (NULL);",
    )
    with pytest.raises(DatabaseUnusable, match=r"0002_second\.sql failed.*NOT NULL") as failed:
        migrate.apply(connection, migrations, path)
    assert "Versions of pykoclaw-acp that have 0001_first.sql can go on" in str(failed.value)
    assert applied(path) == ["0001_first.sql"]
    with pytest.raises(DatabaseUnusable, match=r"have 0001_first\.sql can go on"):
        migrate.apply(connection, migrations, path)
    assert query(path, "SELECT name FROM sqlite_master WHERE name = 'b'") == []


def test_statements_are_split_where_sqlite_ends_them(
    path: Path, tmp_path: Path, connection: sqlite3.Connection
) -> None:
    script = """
        -- a comment; with a semicolon
        CREATE TABLE a (x TEXT DEFAULT 'one;two' /* ; */);
        CREATE TRIGGER t AFTER INSERT ON a BEGIN
            INSERT INTO a SELECT 'from; trigger' WHERE NEW.x = 'go';
            UPDATE a SET x = x || '!';
        END;
        INSERT INTO a VALUES ('it''s; go'); INSERT INTO a VALUES ('go')
        -- the end;
    """
    migrate.apply(connection, folder_with(tmp_path, m0001_all=script), path)
    assert query(path, "SELECT x FROM a ORDER BY rowid") == [
        ("it's; go!!",),
        ("go!",),
        ("from; trigger!",),
    ]


def test_only_numbered_files_are_migrations_in_order(tmp_path: Path) -> None:
    migrations = folder_with(
        tmp_path, m0010_later="SELECT 1;", m0002_earlier="SELECT 1;", mREADME="no;", m0003="no;"
    )
    assert [(migration.version, migration.name) for migration in migrations] == [
        (2, "0002_earlier.sql"),
        (10, "0010_later.sql"),
    ]
