"""`scheduled_tasks` and `task_run_logs`, which are pykoclaw's, and `acp_task_runs`, the runs of
this program.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from pykoclaw_acp.model import deliveries
from pykoclaw_acp.model.schedule import now_text
from pykoclaw_acp.model.scheduled import CutTask, Task, TaskResult, TaskRun, TaskRunState, TaskState
from pykoclaw_acp.store import shared_conversations, task_requests
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms

_ACTIVE: Final = f"'{TaskState.ACTIVE}'"
_NAMES: Final = (
    *("id", "conversation", "prompt", "schedule_type", "schedule_value"),
    *("COALESCE(context_mode, 'group')", "target_conversation", "next_run", "last_run"),
    *("last_result", f"COALESCE(status, {_ACTIVE})", "created_at"),
)
_LOGGED: Final = ("run_at", "status", "result", "error")
# As bytes: one text that is not UTF-8 must not keep the others from being read.
_COLUMNS: Final = ", ".join(f"CAST({name} AS BLOB)" for name in _NAMES)
_CUT: Final = (  # the beginnings of the texts, then their sizes; an id is whole
    "CAST(id AS BLOB), "
    + ", ".join(f"SUBSTR(CAST({name} AS BLOB), 1, ?1)" for name in _NAMES[1:])
    + "".join(f", LENGTH(CAST({name} AS BLOB))" for name in _NAMES)
)
_NOT_RUNNING: Final = (
    "NOT EXISTS (SELECT 1 FROM acp_task_runs r WHERE r.task_id = scheduled_tasks.id"
    " AND r.ended_at IS NULL)"
)
# A run of an earlier version may lack its session, although it is a turn there.
_RUN: Final = (
    "SELECT r.turn_id, CAST(r.task AS BLOB), CAST(r.claimed_next_run AS BLOB), r.manual, r.started_at,"
    " COALESCE(r.acp_session_id, t.acp_session_id), r.aside, CAST(r.task_id AS BLOB)"
    " FROM acp_task_runs r LEFT JOIN acp_turns t ON t.turn_id = r.turn_id"
)
# The values are compared as texts, as pykoclaw does; whatever is no time is never due.
_IS_DUE: Final = (
    f"status = {_ACTIVE} AND next_run IS NOT NULL AND next_run <= ?"
    " AND id = CAST(id AS TEXT)"  # a row without an id, or with bytes for one, cannot be claimed
)
_LONGEST: Final = 100 * 365 * 86_400_000  # ms of a run
_MOST_UNREADABLE: Final = 1000  # due rows that are skipped in a look


async def due(database: Database, limit: int) -> tuple[list[Task], list[str]]:
    """Tasks whose time has come and that do not run, the first due first; and the ids of those that
    hold text which is not UTF-8, as far as it can be read.
    """
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM scheduled_tasks WHERE {_IS_DUE} AND {_NOT_RUNNING}"  # noqa: S608  constants
        " ORDER BY next_run LIMIT ?",
        (now_text(), limit + _MOST_UNREADABLE),
    )
    readable: list[Task] = []
    unreadable: list[str] = []
    for row in rows:
        if len(readable) == limit:
            break
        try:
            readable.append(_task(row, "strict"))
        except UnicodeDecodeError:
            unreadable.append(_task(row).id)
    return readable, unreadable


def _task(row: tuple[Any, ...], errors: str = "backslashreplace") -> Task:
    texts: list[Any] = [None if one is None else one.decode("utf-8", errors) for one in row]
    for required in (*range(6), 10, 11):
        texts[required] = texts[required] or ""
    return Task(*texts)


async def next_due(database: Database) -> str | None:
    """When the next task is due that is not due yet."""
    rows = await database.read(
        f"SELECT CAST(next_run AS BLOB) FROM scheduled_tasks WHERE status = {_ACTIVE}"  # noqa: S608  constant
        " AND next_run > ? ORDER BY next_run LIMIT 1",
        (now_text(),),
    )
    return rows[0][0].decode("utf-8", "replace") if rows else None


async def every(database: Database, limit: int, most: int) -> list[CutTask]:
    """Tasks, the newest first, with the first `most` bytes of each of their texts."""
    rows = await database.read(
        f"SELECT {_CUT} FROM scheduled_tasks ORDER BY created_at DESC LIMIT ?2",  # noqa: S608  constant
        (most, limit),
    )
    return [_cut_task(row) for row in rows]


async def shown(database: Database, task_id: str, most: int) -> CutTask | None:
    """A task with the first `most` bytes of each of its texts; None if there is none."""
    rows = await database.read(
        f"SELECT {_CUT} FROM scheduled_tasks WHERE id = ?2",  # noqa: S608  constant
        (most, task_id),
    )
    return _cut_task(rows[0]) if rows else None


def _cut_task(row: tuple[Any, ...]) -> CutTask:
    texts, sizes = _cut(Task.__struct_fields__, row)
    return CutTask(_task(texts), sizes)


def _cut(names: Sequence[str], row: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, int]]:
    """The beginnings of texts, without the part of a character at their ends; and the sizes (bytes)
    of those that are longer.
    """
    texts, sizes = list(row[: len(names)]), {}
    for at, (name, size) in enumerate(zip(names, row[len(names) :], strict=True)):
        if texts[at] is not None and size > len(texts[at]):
            sizes[name] = size
            texts[at] = texts[at][: _last_whole(texts[at])]
    return tuple(texts), sizes


def _last_whole(text: bytes) -> int:
    """Where the last character of a text begins, if that is UTF-8; else its end."""
    last = range(len(text) - 1, max(len(text) - 5, -1), -1)
    return next((at for at in last if text[at] & 0xC0 != 0x80), len(text))


async def ids(database: Database, word: str) -> list[str]:
    """The id of the task that has this one, or two at most that begin so."""
    sql = "SELECT CAST(id AS BLOB) FROM scheduled_tasks WHERE id"
    rows = await database.read(f"{sql} = ?", (word,))
    if not rows and word:
        rows = await database.read(f"{sql} >= ? AND id < ? LIMIT 2", (word, word + "\U0010ffff"))
    return [one.decode("utf-8", "backslashreplace") for (one,) in rows]


async def whole(database: Database, task_id: str) -> Task | None:
    """A task; None if there is none."""
    rows = await database.read(
        f"SELECT {_COLUMNS} FROM scheduled_tasks WHERE id = ?",  # noqa: S608  constant
        (task_id,),
    )
    return _task(rows[0]) if rows else None


async def logged(database: Database, task_id: str, limit: int, most: int) -> list[tuple[Any, ...]]:
    """Runs of a task by any program, the newest first: time, duration (ms), status, result and
    error, the first `most` bytes of each, and the sizes (bytes) of those that are longer; what is
    not UTF-8 is escaped.
    """
    beginnings = ", ".join(f"SUBSTR(CAST({name} AS BLOB), 1, ?1)" for name in _LOGGED)
    sizes = ", ".join(f"LENGTH(CAST({name} AS BLOB))" for name in _LOGGED)
    rows = await database.read(
        f"SELECT duration_ms, {beginnings}, {sizes} FROM task_run_logs WHERE task_id = ?2"  # noqa: S608
        " ORDER BY run_at DESC LIMIT ?3",
        (most, task_id, limit),
    )
    found: list[tuple[Any, ...]] = []
    for duration, *row in rows:
        texts, cut = _cut(_LOGGED, tuple(row))
        at, *others = (
            None if one is None else one.decode("utf-8", "backslashreplace") for one in texts
        )
        is_one = isinstance(duration, int | float) and 0 <= duration < _LONGEST
        found.append((at, int(duration) if is_one else 0, *others, cut))
    return found


def claim(run: TaskRun, clock: int) -> tuple[Statement, ...]:
    """Take a run, so that no other program of ours does; fails with Conflict if the task is not as
    it was read, and with a refused row if it runs. `clock`: the own clock.
    """
    task = run.task
    held = "" if run.manual else f" AND status = {_ACTIVE}"
    taken = Statement(
        f"UPDATE scheduled_tasks SET next_run = ? WHERE id = ?{held}"  # noqa: S608  constants
        f" AND COALESCE(next_run, '') = ? AND {_NOT_RUNNING}",
        (run.claimed, task.id, task.next_run or ""),
        rows=1,
    )
    row = Statement(
        "INSERT INTO acp_task_runs (turn_id, task_id, task, manual, claimed_next_run, started_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            run.turn_id,
            task.id,
            msgspec.json.encode(task).decode(),
            int(run.manual),
            run.claimed,
            run.started_at,
        ),
    )
    asked = () if run.asked is None else task_requests.note(run.asked, task.id, run.turn_id, clock)
    return taken, row, *asked


def place(run: TaskRun, turn_id: str) -> Statement:
    """Note where the run takes place, and as which turn; `turn_id` is the one noted before."""
    return Statement(
        "UPDATE acp_task_runs SET acp_session_id = ?, aside = ?, turn_id = ? WHERE turn_id = ?",
        (run.session_id, int(run.aside), run.turn_id, turn_id),
        rows=1,
    )


async def without_task(database: Database, task_ids: Collection[str]) -> set[str]:
    """Return those of these ids that no task has any more."""
    rows = await database.read(
        f"SELECT id FROM scheduled_tasks WHERE id IN ({', '.join('?' * len(task_ids))})",  # noqa: S608
        tuple(task_ids),
    )
    return set(task_ids) - {task_id for (task_id,) in rows}


async def unfinished(database: Database) -> tuple[list[TaskRun], list[TaskRun]]:
    """Runs without a result, in the order of their claims; and those of which the task as it was
    claimed cannot be read, with nothing of it but its id.
    """
    rows = await database.read(f"{_RUN} WHERE r.ended_at IS NULL ORDER BY r.rowid")
    readable: list[TaskRun] = []
    unreadable: list[TaskRun] = []
    for turn_id, stored, claimed, manual, started_at, session_id, aside, task_id in rows:
        runs, next_run = readable, None if claimed is None else claimed.decode("utf-8", "replace")
        try:
            task = msgspec.json.decode(stored, type=Task)
        except (msgspec.MsgspecError, ValueError):
            runs, task = unreadable, _task((task_id, *[None] * (len(_NAMES) - 1)))
        runs.append(
            TaskRun(turn_id, task, next_run, bool(manual), started_at, session_id, bool(aside))
        )
    return readable, unreadable


def result(run: TaskRun, ended: TaskResult) -> tuple[Statement, ...]:
    """What pykoclaw writes after a run, and that it has ended; fails with Conflict if it had."""
    done = Statement(
        "UPDATE acp_task_runs SET ended_at = ? WHERE turn_id = ? AND ended_at IS NULL",
        (now_ms(), run.turn_id),
        rows=1,
    )
    logged = _log(
        run.task.id, now_text(run.began), ended.duration_ms, ended.text or None, ended.error
    )
    begun = () if ended.begins is None else (shared_conversations.put_first(ended.begins),)
    return done, _after_run(run, ended), logged, *_delivery(run, ended), *begun


def _after_run(run: TaskRun, ended: TaskResult) -> Statement:
    """The schedule of a task that was given another time meanwhile stays as it is."""
    if run.manual:
        return Statement(
            "UPDATE scheduled_tasks SET last_run = ?, last_result = ? WHERE id = ?",
            (now_text(), ended.summary, run.task.id),
        )
    return Statement(
        "UPDATE scheduled_tasks SET last_run = ?, last_result = ?,"
        " next_run = CASE WHEN COALESCE(next_run, '') = ? THEN ? ELSE next_run END,"
        " status = CASE WHEN COALESCE(next_run, '') = ? AND ? = 1 THEN ? ELSE status END"
        " WHERE id = ?",
        (
            *(now_text(), ended.summary, run.claimed or "", ended.next_run),
            *(run.claimed or "", int(ended.next_run is None), TaskState.COMPLETED, run.task.id),
        ),
    )


def _log(
    task_id: str, run_at: str, duration_ms: int, text: str | None, error: str | None
) -> Statement:
    state = TaskRunState.SUCCESS if error is None else TaskRunState.ERROR
    return Statement(
        "INSERT INTO task_run_logs (task_id, run_at, duration_ms, status, result, error)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (task_id, run_at, duration_ms, state, text, error),
    )


def _delivery(run: TaskRun, ended: TaskResult) -> tuple[Statement, ...]:
    if ended.error is not None or not ended.text:
        return ()
    task = run.task
    conversation, channel = deliveries.target(task.conversation, task.target_conversation)
    now = now_text()
    state = deliveries.DeliveryState.DELIVERED if ended.shown else deliveries.DeliveryState.PENDING
    row = (
        *(uuid.uuid4().hex[:12], task.id, conversation, channel),
        *(deliveries.without_reply_tags(ended.text), state, now, now if ended.shown else None),
    )
    insert = (
        "INSERT INTO delivery_queue (id, task_id, task_run_log_id, conversation, channel_prefix, message, status,"
        " created_at, delivered_at) VALUES (?, ?, NULL, ?, ?, ?, ?, ?, ?)"
    )
    return (Statement(insert, row),)


def refuse(task: Task, reason: str) -> tuple[Statement, ...]:
    """Pause a due task whose schedule cannot be read, with the reason."""
    error = f"Error: {reason}"
    pause = (
        "UPDATE scheduled_tasks SET status = ?, last_run = ?, last_result = ?"
        " WHERE id = ? AND COALESCE(next_run, '') = ?"
    )
    return (
        Statement(
            pause, (TaskState.PAUSED, now_text(), error, task.id, task.next_run or ""), rows=1
        ),
        _log(task.id, now_text(), 0, None, reason),
    )
