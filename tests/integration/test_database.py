# ruff: noqa: ASYNC240 - a test may look at a file while it does nothing else
"""The database file: how it is created, opened, shared and closed, and what keeps us
from using it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.errors import DatabaseUnusable, StoreUnavailable
from pykoclaw_acp.store.changes import Changes
from pykoclaw_acp.store.database import Database, DatabaseClosed, NewEvent, Statement, Unit
from pykoclaw_acp.store.engine import Engine
from pykoclaw_acp.store.sqlite import ENGINE, sqlite3
from tests.databases import files_of, on_writer, opened
from tests.integration.rows import NEW_SESSION, SESSION, create
from tests.waiting import eventually

LONG_QUERY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT count(*) FROM n"

fixed_engine = pytest.mark.skipif(
    ENGINE.affected, reason="only a fixed engine uses WAL on a new file"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    database = await opened(path)
    yield database
    await database.close()


@pytest.fixture
def affected_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pykoclaw_acp.store.opening.ENGINE", Engine("sqlite3", (3, 40, 1), affected=True)
    )


def event(payload: str = "{}") -> NewEvent:
    return NewEvent(SESSION, None, "text", payload)


def files(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in sorted(path.parent.iterdir())}


async def pragma(database: Database, name: str) -> Any:
    """The value on a reader, for what is a property of the file or of all our connections."""
    return (await database.read(f"PRAGMA {name}"))[0][0]


# Opening and closing


@fixed_engine
async def test_a_new_file_is_private_and_wal(path: Path) -> None:
    previous = os.umask(0)
    try:
        database = await opened(path)
    finally:
        os.umask(previous)
    try:
        await database.commit(NEW_SESSION)
        modes = {entry.name: entry.stat().st_mode & 0o777 for entry in path.parent.iterdir()}
        assert modes == {"pykoclaw.db": 0o600, "pykoclaw.db-wal": 0o600, "pykoclaw.db-shm": 0o600}
        assert await pragma(database, "journal_mode") == "wal"
        assert await pragma(database, "synchronous") == 1
        assert await pragma(database, "foreign_keys") == 0
        assert await pragma(database, "busy_timeout") == 750, "clients are answered within 1 s"
        assert await pragma(database, "journal_size_limit") == 64 * 1024 * 1024
    finally:
        await database.close()
    assert list(files(path)) == ["pykoclaw.db"]


async def test_database_behind_a_link_is_watched_there(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "disk"
    real.mkdir()
    path.symlink_to(real / "pykoclaw.db")
    database = await opened(path)
    changed = asyncio.Event()
    changes = Changes(database.path)
    changes.tell(changed)
    watching = asyncio.create_task(changes.run())
    try:
        with closing(sqlite3.connect(path)) as other:
            other.execute("INSERT INTO conversations (name, created_at) VALUES ('wa-1', '2026')")
            other.commit()
        await asyncio.wait_for(changed.wait(), 60)
        assert sorted(files(real / "pykoclaw.db")) == [
            "pykoclaw.db", "pykoclaw.db-shm", "pykoclaw.db-wal"]  # fmt: skip
        (real / "backup.db").write_bytes(b"")
        (tmp_path / "new").symlink_to(real / "backup.db")
        (tmp_path / "new").rename(path)
        with pytest.raises(StoreUnavailable) as refused:
            await database.commit(NEW_SESSION)
        assert (refused.value.state, str(path) in refused.value.message) == ("gone", True)
    finally:
        watching.cancel()
        await database.close()


async def test_every_connection_has_foreign_keys_off(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite may be built with them on."""
    connect = sqlite3.connect

    def built_otherwise(*given: Any, **named: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*given, **named)
        made.execute("PRAGMA foreign_keys=ON")
        return made

    monkeypatch.setattr(sqlite3, "connect", built_otherwise)
    database = await opened(path)
    try:
        assert await pragma(database, "foreign_keys") == 0
        further = await database.connect()
        ask = "PRAGMA foreign_keys"
        assert await further.run(lambda one: one.execute(ask).fetchone()) == (0,)
    finally:
        await database.close()


async def test_rows_of_missing_tasks_can_be_written(database: Database) -> None:
    """What `pykoclaw send` enqueues has no task row."""
    insert = (
        "INSERT INTO delivery_queue (id, task_id, conversation, channel_prefix, message, created_at) "
        "VALUES ('d', 'send-cli', 'acp-11111111', 'acp', 'news', '2025-04-01T00:00:00+00:00')"
    )
    log = (
        "INSERT INTO task_run_logs (task_id, run_at, duration_ms, status) "
        "VALUES ('cancelled', '2025-04-01T00:00:00+00:00', 1, 'success')"
    )
    await database.commit(Unit((Statement(insert), Statement(log))))
    assert await database.read("SELECT task_id FROM delivery_queue") == [("send-cli",)]


@fixed_engine
async def test_a_fixed_engine_makes_an_existing_file_wal(path: Path) -> None:
    create(path, "DELETE")
    database = await opened(path)
    try:
        assert await pragma(database, "journal_mode") == "wal"
    finally:
        await database.close()


@fixed_engine
async def test_the_change_to_wal_waits_for_a_writer(path: Path) -> None:
    create(path, "DELETE")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.create_task(opened(path))
        asyncio.get_running_loop().call_later(0.3, other.execute, "COMMIT")
        database = await opening
        try:
            assert await pragma(database, "journal_mode") == "wal"
        finally:
            await database.close()


@fixed_engine
async def test_file_that_cannot_become_wal_is_used_unchanged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await opened(path)).close()
    monkeypatch.setattr("pykoclaw_acp.store.journal_mode.BUSY_TIMEOUT", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode=DELETE")
        other.execute("BEGIN IMMEDIATE")
        database = await opened(path)
        try:
            assert await pragma(database, "journal_mode") == "delete"
            assert await pragma(database, "synchronous") == 2
            other.execute("COMMIT")
            await database.condition.writable()
            await database.commit(NEW_SESSION)
        finally:
            await database.close()


@pytest.mark.usefixtures("affected_engine")
async def test_affected_engine_avoids_wal_and_syncs_every_commit(path: Path) -> None:
    database = await opened(path)
    try:
        await database.commit(NEW_SESSION)
        assert await pragma(database, "journal_mode") == "delete"
        assert await pragma(database, "synchronous") == 2
        assert await database.commit(Unit(events=(event(),), durable=True)) == [1]
    finally:
        await database.close()


@pytest.mark.usefixtures("affected_engine")
async def test_affected_engine_keeps_wal_without_checkpoint_in_commit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykoclaw_acp.store.checkpoints.STEP", 1_000_000)
    monkeypatch.setattr("pykoclaw_acp.store.checkpoints.QUIET", 1_000)
    create(path, "WAL")
    # Somebody else has the file open, so that our closing it does not remove the log.
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_autocheckpoint=0")
        assert len(other.execute("SELECT * FROM conversations").fetchall()) == 200
        database = await opened(path)
        try:
            assert await pragma(database, "journal_mode") == "wal"
            await database.commit(NEW_SESSION)
            untouched = path.read_bytes()
            # Far more than the 1000 pages after which SQLite checkpoints by itself.
            for _ in range(12):
                await database.commit(Unit(events=(event("x" * 1_000_000),)))
            assert path.read_bytes() == untouched
        finally:
            await database.close()
        assert path.with_name("pykoclaw.db-wal").stat().st_size == 0
        assert path.stat().st_size > 12_000_000
        assert other.execute("SELECT count(*) FROM acp_log").fetchall() == [(12,)]


WAL_WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
print(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0], flush=True)
connection.execute("INSERT INTO conversations (name, created_at) VALUES ('wa-1', '2026')")
print("written", flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("affected_engine")
async def test_file_that_becomes_wal_is_opened_anew(path: Path) -> None:
    database = await opened(path)
    await database.commit(NEW_SESSION)
    assert not database.reopen_wanted.is_set()
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = (sys.executable, "-c", WAL_WRITER, str(path))
    other = await asyncio.create_subprocess_exec(*command, **pipes)
    try:
        assert other.stdout is not None
        assert await other.stdout.readexactly(12) == b"wal\nwritten\n"
        await database.commit(Unit(events=(event(),)))
        assert database.reopen_wanted.is_set()
        assert await automatic_checkpoints(database) == 0
        await database.close()
        database = await opened(path)
        assert database.journal_mode.mode == "wal"
        assert await automatic_checkpoints(database) == 0
        await database.commit(Unit(events=(event(),)))
        assert not database.reopen_wanted.is_set()
    finally:
        await database.close()
        other.kill()
        await other.wait()


async def automatic_checkpoints(database: Database) -> Any:
    """After how many pages SQLite checkpoints by itself; 0: never."""
    ask = "PRAGMA wal_autocheckpoint"
    return (await on_writer(database, lambda connection: connection.execute(ask).fetchone()))[0]


async def test_queued_units_are_committed_before_close(path: Path) -> None:
    database = await opened(path)
    await database.commit(NEW_SESSION)
    commits = [
        asyncio.create_task(database.commit(Unit(events=(event("x" * 1000),)))) for _ in range(5000)
    ]
    await asyncio.sleep(0)  # they have called, and wait
    await asyncio.gather(database.close(), database.close())
    assert [await commit for commit in commits] == [[seq] for seq in range(1, 5001)]
    with pytest.raises(DatabaseClosed):
        await database.commit(Unit(events=(event(),)))
    with pytest.raises(DatabaseClosed):
        await database.read("SELECT 1")
    await database.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT max(seq), count(*) FROM acp_log").fetchone() == (
            5000,
            5000,
        )


async def test_requested_reads_are_answered_before_close(path: Path) -> None:
    database = await opened(path)
    query = LONG_QUERY.replace("3000000", "100000")
    reads = [asyncio.create_task(database.read(query)) for _ in range(10)]
    await asyncio.sleep(0)
    await database.close()
    assert [await read for read in reads] == [[(100_000,)]] * 10


async def test_closing_survives_the_cancellation_of_its_caller(path: Path) -> None:
    database = await opened(path)
    closer = asyncio.create_task(database.close())
    await asyncio.sleep(0)
    closer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closer
    await database.close()
    assert list(files(path)) == ["pykoclaw.db"]


async def test_closing_does_not_wait_for_another_writer(path: Path) -> None:
    database = await opened(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(8):
            await database.close()
        other.execute("COMMIT")


# Reading


async def test_reads_see_what_was_committed(database: Database) -> None:
    await database.commit(NEW_SESSION)
    for seq in range(1, 50):
        await database.commit(Unit(events=(event(),)))
        assert await database.read("SELECT max(seq) FROM acp_log") == [(seq,)]


async def holding(
    database: Database, begun: threading.Event, release: threading.Event
) -> asyncio.Task[list[tuple[Any, ...]]]:
    """A read that goes on until it is released: the number of sessions as it began."""

    def hold() -> bool:
        begun.set()
        return release.wait(60)

    for reader in files_of(database).readers:
        await reader.run(lambda connection: connection.create_function("held", 0, hold))
    query = "SELECT (SELECT count(*) FROM acp_sessions), held()"
    return asyncio.create_task(database.read(query))


async def test_slow_read_blocks_no_other_read_or_commit(database: Database) -> None:
    begun, release = threading.Event(), threading.Event()
    slow = await holding(database, begun, release)
    await eventually(begun.is_set)
    await asyncio.wait_for(database.commit(NEW_SESSION), 60)
    assert await database.read("SELECT count(*) FROM acp_sessions") == [(1,)]
    assert not slow.done()
    release.set()
    assert await slow == [(0, 1)]


async def test_cancelled_read_does_not_delay_next_ones(database: Database) -> None:
    begun, release = threading.Event(), threading.Event()
    cancelled = await holding(database, begun, release)
    await eventually(begun.is_set)
    cancelled.cancel()
    for _ in range(5):
        assert await asyncio.wait_for(database.read("SELECT 1"), 60) == [(1,)]
    release.set()


async def test_a_cancelled_read_gives_its_reader_back(database: Database) -> None:
    for _ in range(3):
        slow = asyncio.create_task(database.read(LONG_QUERY.replace("3000000", "300000")))
        await asyncio.sleep(0)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
    assert await asyncio.gather(*(database.read("SELECT 1") for _ in range(5))) == [[(1,)]] * 5


async def test_read_cannot_write_and_invalid_read_raises(database: Database) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await database.read("DELETE FROM acp_sessions")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await database.read("SELECT * FROM missing")
    assert await database.read("SELECT 1") == [(1,)]


# Files that cannot be used


async def refusal(path: Path) -> str:
    """What opening says, which names the file."""
    with pytest.raises(DatabaseUnusable) as caught:
        await (await opened(path)).close()
    assert str(path) in str(caught.value)
    return str(caught.value)


def not_a_database(path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1000)


def a_few_bytes(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)


def cut_inside_a_page(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1000)


def damaged_schema(path: Path) -> None:
    data = path.read_bytes()
    assert b"CREATE TABLE conversations" in data
    path.write_bytes(data.replace(b"CREATE TABLE conversations", b"CREATE TABLE (onversations"))


def a_page_of_zeros(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:8192] = bytes(4096)
    path.write_bytes(data)


def newer_file_format(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[18:20] = b"\x09\x09"  # the read and write version of https://sqlite.org/fileformat.html
    path.write_bytes(data)


DAMAGES = [
    not_a_database,
    a_few_bytes,
    cut_in_half,
    cut_inside_a_page,
    damaged_schema,
    a_page_of_zeros,
    newer_file_format,
]


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_file_is_named_and_untouched(
    path: Path, mode: str, damage: Callable[[Path], None]
) -> None:
    create(path, mode)
    damage(path)
    before = files(path)
    message = await refusal(path)
    assert "is damaged: " in message
    assert "It was not touched. Restore a backup" in message
    assert f"sqlite3 {path} .recover" in message
    assert files(path) == before


async def test_damaged_file_with_killed_writers_log_stays_untouched(path: Path) -> None:
    create(path, "WAL")
    killed_writer(path, "INSERT INTO conversations VALUES ('acp-1', NULL, NULL, '2025', NULL)")
    assert path.with_name("pykoclaw.db-wal").stat().st_size > 0
    a_page_of_zeros(path)
    before = files(path)
    message = await refusal(path)
    assert "is damaged: " in message
    assert "may belong to that one: move them away and try again. Otherwise restore" in message
    assert files(path) == before


async def test_log_without_its_database_is_kept(path: Path) -> None:
    create(path, "WAL")
    killed_writer(path, "INSERT INTO conversations VALUES ('acp-1', NULL, NULL, '2025', NULL)")
    path.unlink()
    before = files(path)
    assert "its write-ahead log is there" in await refusal(path)
    assert files(path) == before


async def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    assert "No such file or directory" in await refusal(tmp_path / "missing" / "pykoclaw.db")


async def test_directory_in_place_of_file_is_named(path: Path) -> None:
    path.mkdir()
    assert "cannot be used" in await refusal(path)


# What a killed writer leaves is not damage


def killed_writer(path: Path, sql: str, *, before_commit: bool = False) -> None:
    """A process that writes to the file with pykoclaw's own means and is killed, after its commit
    or before it.
    """
    code = (
        "import os, signal, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "connection.execute('PRAGMA cache_spill=1')\n"
        "connection.execute('PRAGMA cache_size=1')\n"
        "connection.execute(sys.argv[2])\n"
        f"{'' if before_commit else 'connection.commit()'}\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = subprocess.run([sys.executable, "-c", code, str(path), sql], timeout=60, check=False)
    assert result.returncode == -signal.SIGKILL


async def test_the_log_of_a_killed_writer_is_recovered(path: Path) -> None:
    create(path, "WAL")
    killed_writer(path, "INSERT INTO conversations VALUES ('acp-1', NULL, NULL, '2025', NULL)")
    database = await opened(path)
    try:
        assert await database.read("SELECT count(*) FROM conversations") == [(201,)]
    finally:
        await database.close()


async def test_a_log_whose_index_is_gone_is_recovered(path: Path) -> None:
    create(path, "WAL")
    killed_writer(path, "INSERT INTO conversations VALUES ('acp-1', NULL, NULL, '2025', NULL)")
    path.with_name("pykoclaw.db-shm").unlink()
    database = await opened(path)
    try:
        assert await database.read("SELECT count(*) FROM conversations") == [(201,)]
    finally:
        await database.close()


async def test_killed_writers_partial_transaction_is_rolled_back(path: Path) -> None:
    create(path, "DELETE")
    whole = path.read_bytes()
    killed_writer(path, "UPDATE conversations SET system_prompt_hash = 'lost'", before_commit=True)
    assert path.with_name("pykoclaw.db-journal").stat().st_size > 0
    assert path.read_bytes() != whole
    database = await opened(path)
    try:
        assert await database.read(
            "SELECT DISTINCT length(system_prompt_hash) FROM conversations"
        ) == [(400,)]
    finally:
        await database.close()
