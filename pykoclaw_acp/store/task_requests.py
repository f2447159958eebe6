"""Changes of scheduled tasks that somebody asks for, and `acp_task_requests`: what was done for
requests that may come again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.model.scheduled import CANCELLED, RunStanding, Task, TaskRunState, TaskState
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sql import QUEUED

_KEPT: Final = 7 * 86_400_000  # ms; a front that is away for longer sends nothing again
_NO_TURN: Final = "NOT EXISTS (SELECT 1 FROM acp_turns t WHERE t.turn_id = acp_task_runs.turn_id)"


@dataclass(frozen=True, slots=True)
class Noted:
    """What was done for a request: to which task, which run it began or met, and for a pause or
    resume whether it `changed` anything.
    """

    task_id: str
    turn_id: str | None
    changed: bool


def note(
    request_key: str, task_id: str, turn_id: str | None, clock: int, *, changed: bool = True
) -> tuple[Statement, ...]:
    """Keep what is done in the same transaction; fails with a refused row if it was done before.
    `clock`: the own clock.
    """
    return (
        Statement("DELETE FROM acp_task_requests WHERE at_clock < ?", (clock - _KEPT,)),
        Statement(
            "INSERT INTO acp_task_requests (request_key, task_id, turn_id, changed, at, at_clock)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (request_key, task_id, turn_id, int(changed), now_ms(), clock),
        ),
    )


async def noted(database: Database, request_key: str) -> Noted | None:
    """What was done for a request; None if nothing was."""
    rows = await database.read(
        "SELECT task_id, turn_id, changed FROM acp_task_requests WHERE request_key = ?",
        (request_key,),
    )
    return Noted(rows[0][0], rows[0][1], bool(rows[0][2])) if rows else None


async def run_of(database: Database, task_id: str) -> str | None:
    """The turn of the task's run that has no result; None if there is none."""
    rows = await database.read(
        "SELECT turn_id FROM acp_task_runs WHERE task_id = ? AND ended_at IS NULL", (task_id,)
    )
    return str(rows[0][0]) if rows else None


async def standing(
    database: Database, turn_id: str, *, deleted: bool
) -> tuple[RunStanding, str | None]:
    """What a run does that a change of its task met, and its session, if it is a turn there.
    `deleted`: its task is, so that one which had not begun never does. One whose turn is not the
    task's has: that tells Claude the answer to what it had asked.
    """
    rows = await database.read(
        f"SELECT dispatched_at IS NOT NULL OR task_id IS NULL, state = {QUEUED}, acp_session_id"  # noqa: S608
        " FROM acp_turns WHERE turn_id = ?",
        (turn_id,),
    )
    begun, queued, session_id = rows[0] if rows else (False, True, None)
    if begun:
        return RunStanding.GOES_ON, session_id
    waits = queued and not deleted
    return (RunStanding.WAITS if waits else RunStanding.CANCELLED), session_id


def go_on_as(turn_id: str, ask_id: str) -> Statement:
    """The run whose turn has parked this pending request goes on as the turn that tells the answer."""
    return Statement(
        "UPDATE acp_task_runs SET turn_id = ? WHERE ended_at IS NULL AND turn_id ="
        " (SELECT p.turn_id FROM acp_permissions p WHERE p.permission_id = ? AND p.outcome IS NULL)",
        (turn_id, ask_id),
    )


def pause(task_id: str) -> Statement:
    """Pause a task as pykoclaw's `update_task` does; fails with Conflict if it has been completed."""
    return Statement(
        "UPDATE scheduled_tasks SET status = ? WHERE id = ? AND COALESCE(status, '') <> ?",
        (TaskState.PAUSED, task_id, TaskState.COMPLETED),
        rows=1,
    )


def resume(task: Task, next_run: str | None) -> Statement:
    """Make a task active as pykoclaw's `update_task` does; `next_run` stays if it is None. Fails with
    Conflict if the task has run for the first time, or was completed, since it was read.
    """
    return Statement(
        "UPDATE scheduled_tasks SET status = ?1, next_run = COALESCE(?2, next_run) WHERE id = ?3"
        " AND (CAST(COALESCE(status, '') AS TEXT) = ?4) = ?5 AND (COALESCE(last_run, '') = '') = ?6",
        (TaskState.ACTIVE, next_run, task.id, TaskState.COMPLETED,
         int(task.status == TaskState.COMPLETED), int(not task.last_run)),
        rows=1,
    )  # fmt: skip


def delete(task_id: str) -> tuple[Statement, ...]:
    """Delete a task and its runs as pykoclaw's `delete_task` does; what it has enqueued is delivered."""
    return (
        Statement("DELETE FROM task_run_logs WHERE task_id = ?", (task_id,)),
        Statement("DELETE FROM scheduled_tasks WHERE id = ?", (task_id,), rows=1),
    )


def give_up_runs(task_id: str) -> tuple[Statement, ...]:
    """End the task's runs that are no turns yet, with a row that says so; a turn says it itself."""
    open_runs = f"WHERE task_id = ? AND ended_at IS NULL AND {_NO_TURN}"
    return (
        Statement(
            "INSERT INTO task_run_logs (task_id, run_at, duration_ms, status, result, error)"  # noqa: S608
            " SELECT task_id, strftime('%Y-%m-%dT%H:%M:%S+00:00', started_at / 1000, 'unixepoch'),"
            f" ? - started_at, ?, NULL, ? FROM acp_task_runs {open_runs}",
            (now_ms(), TaskRunState.ERROR, CANCELLED, task_id),
        ),
        Statement(
            f"UPDATE acp_task_runs SET ended_at = ? {open_runs}",  # noqa: S608  constants
            (now_ms(), task_id),
        ),
    )
