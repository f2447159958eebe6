"""Another program's side of `delivery_queue`: connections of its own, in Python's default
transaction mode.
"""

from __future__ import annotations

import uuid
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pykoclaw_acp.store.sqlite import sqlite3


def enqueue(
    path: Path,
    conversation: str,
    message: Any,
    *,
    task: str = "send-cli",
    prefix: str = "acp",
    at: str | None = None,
) -> str:
    """A row as pykoclaw's `enqueue_delivery` writes it; returns its id."""
    delivery_id = uuid.uuid4().hex[:12]
    now = at or datetime.now(UTC).isoformat()
    with closing(sqlite3.connect(path)) as other:
        other.execute(
            "INSERT INTO delivery_queue (id, task_id, task_run_log_id, conversation, channel_prefix, message, status,"
            " created_at) VALUES (?, ?, NULL, ?, ?, ?, 'pending', ?)",
            (delivery_id, task, conversation, prefix, message, now),
        )
        other.commit()
    return delivery_id


def execute(path: Path, sql: str, *parameters: Any) -> None:
    """A statement of another program, committed."""
    with closing(sqlite3.connect(path)) as other:
        other.execute(sql, parameters)
        other.commit()


def fetch(path: Path, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Rows, as another program reads them."""
    with closing(sqlite3.connect(path)) as other:
        return other.execute(sql, parameters).fetchall()


def status(path: Path, delivery_id: str) -> str:
    """Where a delivery stands."""
    ((found,),) = fetch(path, "SELECT status FROM delivery_queue WHERE id = ?", delivery_id)
    return str(found)
