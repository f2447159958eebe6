"""Database files of each age, as pykoclaw and the earlier plugin have left them. All in DELETE
journal mode, unless a scheduler has run.
"""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tests.double import tables, whatsapp
from tests.double.handle import init_db
from tests.double.sqlite import sqlite3

LONG_AGO: Final = "2025-03-01T10:20:30.123456+00:00"
TWO_COLUMNS: Final = (
    "CREATE TABLE acp_sessions (acp_session_id TEXT PRIMARY KEY, conversation_name TEXT NOT NULL)"
)
FIRST_SCHEMA: Final = """
CREATE TABLE conversations (name TEXT PRIMARY KEY, session_id TEXT, cwd TEXT, created_at TEXT NOT NULL);
CREATE TABLE scheduled_tasks (id TEXT PRIMARY KEY, conversation TEXT NOT NULL, prompt TEXT NOT NULL,
    schedule_type TEXT NOT NULL, schedule_value TEXT NOT NULL, next_run TEXT, last_run TEXT, last_result TEXT,
    status TEXT DEFAULT 'active', created_at TEXT NOT NULL);
CREATE TABLE task_run_logs (id INTEGER PRIMARY KEY AUTOINCREMENT, task_id TEXT NOT NULL, run_at TEXT NOT NULL,
    duration_ms INTEGER NOT NULL, status TEXT NOT NULL, result TEXT, error TEXT,
    FOREIGN KEY (task_id) REFERENCES scheduled_tasks(id));
CREATE INDEX idx_next_run ON scheduled_tasks(next_run);
CREATE INDEX idx_status ON scheduled_tasks(status);
CREATE INDEX idx_task_run_logs ON task_run_logs(task_id, run_at);
"""


def current(data: Path) -> Path:
    """An empty database, as any command of pykoclaw makes it; its path."""
    path = data / "pykoclaw.db"
    init_db(path).close()
    return path


def by_original(data: Path, session_id: str, claude_id: str | None = None) -> str:
    """A conversation of the earlier plugin under this ACP session id; its name.

    There is no mapping: the name has the first eight digits, `claude_id` is another id, and the
    directory is the conversation's own, whatever its client's was.
    """
    path = current(data)
    name = f"acp-{session_id[:8]}"
    cwd = data / "conversations" / name
    cwd.mkdir(parents=True, exist_ok=True)
    insert(
        path,
        "conversations",
        name=name,
        session_id=claude_id or str(uuid.uuid4()),
        cwd=str(cwd),
        created_at=LONG_AGO,
        system_prompt_hash=None,
    )
    return name


def first_schema(data: Path) -> Path:
    """A database before any column was added: four columns of `conversations`, tasks without
    context mode and target, no deliveries; with a row of each.
    """
    path = data / "pykoclaw.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FIRST_SCHEMA)
    insert(
        path,
        "conversations",
        name="acp-01234567",
        session_id=str(uuid.uuid4()),
        cwd=str(data / "conversations/acp-01234567"),
        created_at=LONG_AGO,
    )
    insert(
        path,
        "scheduled_tasks",
        id="0a1b2c3d",
        conversation="acp-01234567",
        prompt="Water the plants.",
        schedule_type="cron",
        schedule_value="0 9 * * *",
        next_run="2999-01-01T09:00:00+00:00",
        created_at=LONG_AGO,
    )
    insert(
        path,
        "task_run_logs",
        task_id="0a1b2c3d",
        run_at=LONG_AGO,
        duration_ms=12,
        status="success",
        result="Watered.",
    )
    return path


def two_columns(data: Path, *session_ids: str) -> Path:
    """The table that the earlier plugin planned: ACP ids and the names of their conversations."""
    path = current(data)
    for session_id in session_ids:
        by_original(data, session_id)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(TWO_COLUMNS)
        connection.commit()
    for session_id in session_ids:
        name = f"acp-{session_id[:8]}"
        insert(path, "acp_sessions", acp_session_id=session_id, conversation_name=name)
    return path


def with_whatsapp(data: Path, jid: str = "123@g.us") -> str:
    """The bot's tables and a chat with its conversation, whose system prompt has a hash; the
    conversation's name.
    """
    path = current(data)
    name = whatsapp.conversation("Andy", jid)
    with closing(init_db(path)) as db:
        db.executescript(whatsapp.TABLES)
        whatsapp.receive(db, jid, "Ann", "Hello.")
        cwd = data / "conversations" / name
        cwd.mkdir(parents=True, exist_ok=True)
        tables.upsert_conversation(db, name, str(uuid.uuid4()), str(cwd), "0123456789abcdef")
    return name


def odd_rows(data: Path) -> Path:
    """Rows that pykoclaw writes and that look wrong: deliveries without a task, an empty message, a
    target that nobody has, a conversation whose session was forgotten.
    """
    path = current(data)
    rows = (
        ("send-cli", "acp-01234567", "acp", "From send."),
        ("0badc0de", "acp-01234567", "acp", ""),
        ("0badc0de", f"acp-{uuid.uuid4()}", "acp", "For a full id."),
        ("0badc0de", "daily-report", "daily", "For a channel that does not exist."),
    )
    with closing(init_db(path)) as db:
        for row in rows:
            tables.enqueue_delivery(db, *row)
        tables.upsert_conversation(db, "wa-andy-1@g.us", None, str(data))
        for value in ("junk", "2999-01-01T00:00:00Z", "2999-01-01T00:00:00", "2999-01-01"):
            tables.create_task(
                db,
                conversation="notes",
                prompt="Once.",
                schedule_type="once",
                schedule_value=value,
                next_run=value,
            )
    return path


def large(data: Path, rows: int = 200_000) -> Path:
    """So many rows, spread over the four tables of pykoclaw."""
    path = current(data)
    quarter = rows // 4
    with closing(sqlite3.connect(path)) as connection:
        connection.executemany(
            "INSERT INTO conversations VALUES (?, ?, ?, ?, NULL)",
            (
                (f"acp-{n:08x}", f"session-{n}", f"{data}/conversations/acp-{n:08x}", LONG_AGO)
                for n in range(quarter)
            ),
        )
        connection.executemany(
            "INSERT INTO scheduled_tasks (id, conversation, prompt, schedule_type, schedule_value, next_run,"
            " created_at) VALUES (?, ?, 'Look.', 'cron', '0 9 * * *', '2999-01-01T09:00:00+00:00', ?)",
            ((f"{n:08x}", f"acp-{n:08x}", LONG_AGO) for n in range(quarter)),
        )
        connection.executemany(
            "INSERT INTO task_run_logs (task_id, run_at, duration_ms, status, result)"
            " VALUES (?, ?, 1, 'success', 'Looked.')",
            ((f"{n:08x}", LONG_AGO) for n in range(quarter)),
        )
        connection.executemany(
            "INSERT INTO delivery_queue (id, task_id, conversation, channel_prefix, message, status, created_at,"
            " delivered_at) VALUES (?, ?, ?, 'acp', 'Looked.', 'delivered', ?, ?)",
            (
                (f"{n:012x}", f"{n:08x}", f"acp-{n:08x}", LONG_AGO, LONG_AGO)
                for n in range(rows - 3 * quarter)
            ),
        )
        connection.commit()
    return path


def insert(path: Path, table: str, **values: Any) -> None:
    """One row, as it is."""
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", (*values.values(),))
        connection.commit()


def contents(path: Path, *names: str) -> dict[str, list[dict[str, Any]]]:
    """All rows of these tables; of pykoclaw's four, and of the bot's, without names."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as connection:
        connection.row_factory = sqlite3.Row
        existing = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name in names or (not names and not name.startswith(("acp_", "sqlite_")))
        ]
        return {
            name: [dict(row) for row in connection.execute(f"SELECT * FROM {name} ORDER BY rowid")]
            for name in existing
        }
