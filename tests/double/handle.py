"""The handle that pykoclaw gives to its own code and to plugins, and how it opens a file."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.double.record import Record
from tests.double.sqlite import sqlite3

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS conversations (name TEXT PRIMARY KEY, session_id TEXT, cwd TEXT, created_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS scheduled_tasks (id TEXT PRIMARY KEY, conversation TEXT NOT NULL, prompt TEXT NOT NULL,
    schedule_type TEXT NOT NULL, schedule_value TEXT NOT NULL, context_mode TEXT DEFAULT 'group',
    target_conversation TEXT, next_run TEXT, last_run TEXT, last_result TEXT, status TEXT DEFAULT 'active',
    created_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS task_run_logs (id INTEGER PRIMARY KEY AUTOINCREMENT, task_id TEXT NOT NULL,
    run_at TEXT NOT NULL, duration_ms INTEGER NOT NULL, status TEXT NOT NULL, result TEXT, error TEXT,
    FOREIGN KEY (task_id) REFERENCES scheduled_tasks(id));
CREATE TABLE IF NOT EXISTS delivery_queue (id TEXT PRIMARY KEY, task_id TEXT NOT NULL, task_run_log_id INTEGER,
    conversation TEXT NOT NULL, channel_prefix TEXT NOT NULL, message TEXT NOT NULL, status TEXT DEFAULT 'pending',
    created_at TEXT NOT NULL, delivered_at TEXT, FOREIGN KEY (task_id) REFERENCES scheduled_tasks(id));
CREATE INDEX IF NOT EXISTS idx_next_run ON scheduled_tasks(next_run);
CREATE INDEX IF NOT EXISTS idx_status ON scheduled_tasks(status);
CREATE INDEX IF NOT EXISTS idx_task_run_logs ON task_run_logs(task_id, run_at);
CREATE INDEX IF NOT EXISTS idx_delivery_queue_status ON delivery_queue(channel_prefix, status);
"""
ADDED: Final = (
    ("scheduled_tasks", "context_mode TEXT DEFAULT 'group'"),
    ("scheduled_tasks", "target_conversation TEXT"),
    ("conversations", "system_prompt_hash TEXT"),
)
"""Columns that came later, in the order in which they are added at each start."""


class Handle:
    """One connection behind a lock, as plugins get it: there is no `cursor()`, no `with db:`, no
    `total_changes`, and rows are fetched outside of the lock.
    """

    def __init__(self, connection: sqlite3.Connection, record: Record | None = None) -> None:
        self.record = record or Record()
        self._connection = connection
        self._lock = threading.Lock()

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        with self._lock:
            return self._connection.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any]) -> sqlite3.Cursor:
        with self._lock:
            return self._connection.executemany(sql, parameters)

    def executescript(self, script: str) -> sqlite3.Cursor:
        with self._lock:
            return self._connection.executescript(script)

    def commit(self) -> None:
        with self._lock:
            self._connection.commit()

    def rollback(self) -> None:
        with self._lock:
            self._connection.rollback()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """The connection itself, locked until the end of the block; then commit or roll back."""
        with self._lock:
            try:
                yield self._connection
                self._connection.commit()
            except BaseException:
                self._connection.rollback()
                raise

    @property
    def row_factory(self) -> Any:
        return self._connection.row_factory

    @row_factory.setter
    def row_factory(self, value: Any) -> None:
        self._connection.row_factory = value


def init_db(path: Path, record: Record | None = None) -> Handle:
    """Open a file as each start of each command does: default time limit of 5 s, default
    transaction mode, no pragma, the schema in one script, later columns one by one.

    A column that cannot be added is passed over in silence, whatever the reason; here it is
    recorded as `alter_swallowed`. A lock during the script is raised.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(str(path), check_same_thread=False)
    connection.row_factory = sqlite3.Row
    db = Handle(connection, record)
    db.executescript(SCHEMA)
    db.commit()
    for table, column in ADDED:
        try:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
            db.commit()
        except sqlite3.OperationalError as error:
            db.record.add("alter_swallowed", column=f"{table}.{column}", error=str(error))
    return db


def use_wal(db: Handle) -> None:
    """Switch the file to WAL, as the scheduler and the bot do once after their start.

    SQLite refuses to switch a file at once while anybody writes it, without a wait. On a file that
    is not in WAL that happens to programs which start together, whether ours is one of them or not.
    Their supervisor would start them again; here each refusal is recorded as `wal_refused`.
    """
    while True:
        (before,) = db.execute("PRAGMA journal_mode").fetchone()
        try:
            db.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if before == "wal":
                raise
            db.record.add("wal_refused")
            time.sleep(0.01)
        else:
            return
