"""pykoclaw's rows and statements. Each function is one transaction of one statement, except
`delete_task`; a name that is not given is NULL.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from tests.double.handle import Handle

_OPTIONAL: Final = "| None"


@dataclass(frozen=True)
class Conversation:
    name: str
    session_id: str | None
    cwd: str | None
    created_at: str
    system_prompt_hash: str | None


@dataclass(frozen=True)
class Task:
    id: str
    conversation: str
    prompt: str
    schedule_type: str
    schedule_value: str
    context_mode: str
    target_conversation: str | None
    next_run: str | None
    last_run: str | None
    last_result: str | None
    status: str
    created_at: str


@dataclass(frozen=True)
class Delivery:
    id: str
    task_id: str
    task_run_log_id: int | None
    conversation: str
    channel_prefix: str
    message: str
    status: str
    created_at: str
    delivered_at: str | None


Model = TypeVar("Model", Conversation, Task, Delivery)


class BadRow(ValueError):
    """A row that is no model, because of a NULL, for instance. It spoils the whole list."""


def model(kind: type[Model], row: Any) -> Model:
    """A row as its model; columns that the model does not have are ignored. Raises BadRow."""
    values: dict[str, Any] = {}
    for field in fields(kind):
        declared = str(field.type)
        value = row[field.name] if field.name in row.keys() else None  # noqa: SIM118  sqlite3.Row
        wanted = int if declared.startswith("int") else str
        if not isinstance(value, wanted) and not (value is None and declared.endswith(_OPTIONAL)):
            raise BadRow(f"{kind.__name__}.{field.name} is {value!r}")
        values[field.name] = value
    return kind(**values)


def now() -> str:
    return datetime.now(UTC).isoformat()


# --- conversations


def upsert_conversation(
    db: Handle,
    name: str,
    session_id: str | None,
    cwd: str,
    system_prompt_hash: str | None = None,
) -> None:
    db.execute(
        "INSERT INTO conversations (name, session_id, cwd, created_at, system_prompt_hash) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT(name) DO UPDATE SET session_id=excluded.session_id, cwd=excluded.cwd,"
        " system_prompt_hash=excluded.system_prompt_hash",
        (name, session_id, cwd, now(), system_prompt_hash),
    )
    db.commit()
    db.record.add(
        "upserted", name=name, session_id=session_id, cwd=cwd, system_prompt_hash=system_prompt_hash
    )


def get_conversation(db: Handle, name: str) -> Conversation | None:
    row = db.execute("SELECT * FROM conversations WHERE name = ?", (name,)).fetchone()
    return None if row is None else model(Conversation, row)


def list_conversations(db: Handle) -> list[Conversation]:
    rows = db.execute("SELECT * FROM conversations ORDER BY created_at DESC").fetchall()
    return [model(Conversation, row) for row in rows]


# --- tasks


def create_task(
    db: Handle,
    *,
    conversation: str,
    prompt: str,
    schedule_type: str,
    schedule_value: str,
    next_run: str | None,
    context_mode: str = "group",
    target_conversation: str | None = None,
    task_id: str | None = None,
) -> str:
    """The id: eight hexadecimal digits unless given."""
    task_id = task_id or uuid.uuid4().hex[:8]
    db.execute(
        "INSERT INTO scheduled_tasks (id, conversation, prompt, schedule_type, schedule_value, context_mode,"
        " target_conversation, next_run, status, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'active', ?)",
        (
            task_id,
            conversation,
            prompt,
            schedule_type,
            schedule_value,
            context_mode,
            target_conversation,
            next_run,
            now(),
        ),
    )
    db.commit()
    db.record.add("created", task_id=task_id, conversation=conversation)
    return task_id


def get_task(db: Handle, task_id: str) -> Task | None:
    row = db.execute("SELECT * FROM scheduled_tasks WHERE id = ?", (task_id,)).fetchone()
    return None if row is None else model(Task, row)


def get_tasks_for_conversation(db: Handle, conversation: str) -> list[Task]:
    rows = db.execute(
        "SELECT * FROM scheduled_tasks WHERE conversation = ? ORDER BY created_at DESC",
        (conversation,),
    ).fetchall()
    return [model(Task, row) for row in rows]


def get_all_tasks(db: Handle) -> list[Task]:
    rows = db.execute("SELECT * FROM scheduled_tasks ORDER BY created_at DESC").fetchall()
    return [model(Task, row) for row in rows]


def update_task(db: Handle, task_id: str, **changes: str | None) -> None:
    """Whether there is such a task is not looked at."""
    allowed = ("prompt", "schedule_type", "schedule_value", "next_run", "status")
    given = [name for name in allowed if name in changes]
    if not given:
        return
    columns = ", ".join(f"{name} = ?" for name in given)
    db.execute(
        f"UPDATE scheduled_tasks SET {columns} WHERE id = ?",
        (*(changes[name] for name in given), task_id),
    )
    db.commit()
    db.record.add("updated", task_id=task_id, **changes)


def delete_task(db: Handle, task_id: str) -> None:
    """Deliveries of the task stay."""
    with db.transaction() as connection:
        connection.execute("DELETE FROM task_run_logs WHERE task_id = ?", (task_id,))
        connection.execute("DELETE FROM scheduled_tasks WHERE id = ?", (task_id,))
    db.record.add("deleted", task_id=task_id)


def get_due_tasks(db: Handle) -> list[Task]:
    """Due by comparison of text."""
    rows = db.execute(
        "SELECT * FROM scheduled_tasks WHERE status = 'active' AND next_run IS NOT NULL AND next_run <= ?"
        " ORDER BY next_run",
        (now(),),
    ).fetchall()
    return [model(Task, row) for row in rows]


def update_task_after_run(db: Handle, task_id: str, next_run: str | None, last_result: str) -> None:
    db.execute(
        "UPDATE scheduled_tasks SET next_run = ?, last_run = ?, last_result = ?,"
        " status = CASE WHEN ? IS NULL THEN 'completed' ELSE status END WHERE id = ?",
        (next_run, now(), last_result, next_run, task_id),
    )
    db.commit()
    db.record.add("ran", task_id=task_id, next_run=next_run, last_result=last_result)


def log_task_run(
    db: Handle,
    task_id: str,
    run_at: str,
    duration_ms: int,
    status: str,
    result: str | None = None,
    error: str | None = None,
) -> None:
    db.execute(
        "INSERT INTO task_run_logs (task_id, run_at, duration_ms, status, result, error) VALUES (?, ?, ?, ?, ?, ?)",
        (task_id, run_at, duration_ms, status, result, error),
    )
    db.commit()
    db.record.add(
        "logged", task_id=task_id, run_at=run_at, status=status, result=result, error=error
    )


# --- deliveries


def enqueue_delivery(
    db: Handle, task_id: str, conversation: str, channel_prefix: str, message: str
) -> str:
    """The id: twelve hexadecimal digits."""
    delivery_id = uuid.uuid4().hex[:12]
    db.execute(
        "INSERT INTO delivery_queue (id, task_id, task_run_log_id, conversation, channel_prefix, message, status,"
        " created_at) VALUES (?, ?, ?, ?, ?, ?, 'pending', ?)",
        (delivery_id, task_id, None, conversation, channel_prefix, message, now()),
    )
    db.commit()
    db.record.add("enqueued", id=delivery_id, conversation=conversation, message=message)
    return delivery_id


def get_pending_deliveries(db: Handle, channel_prefix: str) -> list[Delivery]:
    rows = db.execute(
        "SELECT * FROM delivery_queue WHERE channel_prefix = ? AND status = 'pending' ORDER BY created_at",
        (channel_prefix,),
    ).fetchall()
    return [model(Delivery, row) for row in rows]


def mark_delivered(db: Handle, delivery_id: str) -> None:
    """The status before is not looked at."""
    db.execute(
        "UPDATE delivery_queue SET status = 'delivered', delivered_at = ? WHERE id = ?",
        (now(), delivery_id),
    )
    db.commit()
    db.record.add("delivered", id=delivery_id)


def mark_delivery_failed(db: Handle, delivery_id: str) -> None:
    db.execute("UPDATE delivery_queue SET status = 'failed' WHERE id = ?", (delivery_id,))
    db.commit()
    db.record.add("delivery_failed", id=delivery_id)
