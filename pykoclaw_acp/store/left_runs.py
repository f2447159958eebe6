"""Ended runs of scheduled tasks that nobody needs any more, in `acp_task_runs`."""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.model.scheduled import TaskRun
from pykoclaw_acp.store.database import Database, Statement

_UNNEEDED: Final = (  # a later run may have ended meanwhile
    "task_id = ? AND ended_at IS NOT NULL"
    " AND rowid < (SELECT n.rowid FROM acp_task_runs n WHERE n.turn_id = ?)"  # claimed before
    " AND NOT EXISTS (SELECT 1 FROM acp_sessions s WHERE s.acp_session_id = acp_task_runs.acp_session_id"
    " AND acp_task_runs.aside = 1 AND s.prompted_at IS NOT NULL AND s.auxiliary = 0)"
)


async def left_aside(database: Database, run: TaskRun) -> list[str]:
    """Sessions of earlier runs of the task aside, except those that a person has prompted."""
    rows = await database.read(
        f"SELECT acp_session_id FROM acp_task_runs WHERE {_UNNEEDED} AND aside = 1"  # noqa: S608  constant
        " AND acp_session_id IS NOT NULL",
        (run.task.id, run.turn_id),
    )
    return [session_id for (session_id,) in rows]


def forget_earlier(run: TaskRun) -> Statement:
    """Delete earlier ended runs of the task, except those in whose session a person goes on."""
    return Statement(
        f"DELETE FROM acp_task_runs WHERE {_UNNEEDED}",  # noqa: S608  constant
        (run.task.id, run.turn_id),
    )


async def outlived(database: Database) -> list[tuple[str, str | None]]:
    """Turns of ended runs of tasks that are gone, unless a person has prompted there, and of those whose
    session is gone or was emptied; with their sessions aside.
    """
    return await database.read(
        "SELECT r.turn_id, s.acp_session_id FROM acp_task_runs r"
        " LEFT JOIN scheduled_tasks t ON t.id = r.task_id"
        " LEFT JOIN acp_sessions s ON s.acp_session_id = r.acp_session_id AND r.aside = 1"
        " WHERE r.ended_at IS NOT NULL AND ((t.id IS NULL AND (s.auxiliary = 1 OR s.prompted_at IS NULL))"
        " OR s.pruned_at IS NOT NULL OR s.deleted_at > 0)"
    )


def forget(turn_id: str) -> Statement:
    """Delete what is kept of a run."""
    return Statement("DELETE FROM acp_task_runs WHERE turn_id = ?", (turn_id,))
