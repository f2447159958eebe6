"""What pykoclaw's other programs write and find in the database that they share with this one, for
the contract tests.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Protocol

from msgspec.structs import asdict

from pykoclaw_acp.model.conversations import Conversation
from pykoclaw_acp.model.scheduled import Task
from pykoclaw_acp.store import tasks
from pykoclaw_acp.store.database import Database, Statement, Unit
from tests.twins.database import MemoryDatabase
from tests.twins.rows import QueuedDelivery, RunLog

PAST = "2026-01-01T00:00:00+00:00"
TASK = Task(
    "t1", "wa-andy", "Look.", "once", PAST, "group", None, PAST, None, None, "active", PAST
)  # fmt: skip
"""A task that is due."""


class OtherPrograms(Protocol):
    """Of tables that other programs read and write."""

    async def upsert(self, row: Conversation) -> None:
        """Write a conversation's row."""

    async def enqueue(self, row: QueuedDelivery) -> None:
        """Deliver something."""

    async def queue(self) -> list[QueuedDelivery]:
        """All deliveries, in the order of their insertion."""

    async def schedule(self, task: Task) -> None:
        """Make a task, or change it."""

    async def unschedule(self, task_id: str) -> None:
        """Delete a task."""

    async def task(self, task_id: str) -> Task:
        """The task as it is now."""

    async def runs(self, task_id: str) -> list[RunLog]:
        """What is logged of a task's runs."""


class MemoryPrograms:
    def __init__(self, database: MemoryDatabase) -> None:
        self._tables = database

    async def upsert(self, row: Conversation) -> None:
        self._tables.claude_sessions[row.name] = row.claude_session_id
        self._tables.folders[row.name], self._tables.hashes[row.name] = row.cwd, row.prompt_hash

    async def enqueue(self, row: QueuedDelivery) -> None:
        self._tables.enqueue(row)

    async def queue(self) -> list[QueuedDelivery]:
        return list(self._tables.delivery_queue.values())

    async def schedule(self, task: Task) -> None:
        self._tables.tasks[task.id] = task

    async def unschedule(self, task_id: str) -> None:
        del self._tables.tasks[task_id]

    async def task(self, task_id: str) -> Task:
        return self._tables.tasks[task_id]

    async def runs(self, task_id: str) -> list[RunLog]:
        return list(self._tables.run_logs.get(task_id, ()))


class SqlPrograms:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def upsert(self, row: Conversation) -> None:
        await upsert_row(self._database, row)

    async def enqueue(self, row: QueuedDelivery) -> None:
        await self._execute(
            "INSERT INTO delivery_queue (id, conversation, message, channel_prefix, task_id, status,"
            " created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            astuple(row),
        )

    async def queue(self) -> list[QueuedDelivery]:
        rows = await self._database.read(
            "SELECT id, conversation, message, channel_prefix, task_id, status, created_at"
            " FROM delivery_queue ORDER BY rowid"
        )
        return [QueuedDelivery(*row) for row in rows]

    async def schedule(self, task: Task) -> None:
        row = asdict(task)
        names, places = ", ".join(row), ", ".join("?" * len(row))
        await self._execute(
            f"INSERT OR REPLACE INTO scheduled_tasks ({names}) VALUES ({places})",
            tuple(row.values()),
        )

    async def unschedule(self, task_id: str) -> None:
        await self._execute("DELETE FROM scheduled_tasks WHERE id = ?", (task_id,))

    async def task(self, task_id: str) -> Task:
        found = await tasks.whole(self._database, task_id)
        assert found is not None
        return found

    async def runs(self, task_id: str) -> list[RunLog]:
        rows = await self._database.read(
            "SELECT status, result, error FROM task_run_logs WHERE task_id = ? ORDER BY id",
            (task_id,),
        )
        return [RunLog(*row) for row in rows]

    async def _execute(self, sql: str, values: tuple[object, ...]) -> None:
        await self._database.commit(Unit(statements=(Statement(sql, values),)))


async def upsert_row(database: Database, row: Conversation) -> None:
    """Write a conversation's row as pykoclaw's programs do."""
    sql = (
        "INSERT INTO conversations (name, session_id, cwd, created_at, system_prompt_hash)"
        " VALUES (?, ?, ?, '2026-01-01T00:00:00+00:00', ?) ON CONFLICT(name) DO UPDATE SET"
        " session_id=excluded.session_id, cwd=excluded.cwd,"
        " system_prompt_hash=excluded.system_prompt_hash"
    )
    values = (row.name, row.claude_session_id, row.cwd, row.prompt_hash)
    await database.commit(Unit(statements=(Statement(sql, values),)))
