"""What a copy of a data directory leaves to its original, which goes on with it."""

from __future__ import annotations

import asyncio
import time

from pykoclaw_acp.model import limit_waits as words
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.scheduled import TaskResult
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.store import events, limit_waits, notices, sessions, tasks
from pykoclaw_acp.store.database import Database, NewEvent, Statement, Unit
from pykoclaw_acp.store.journal.tasks import unreadable_result


async def leave_to_original(database: Database, original: str, stored: Statement) -> Unit:
    """A unit in which the database becomes a copy, as `stored` says: nobody is told of what was
    there before, no session goes on after a usage limit, and open runs of tasks end.
    """
    statements = [stored, *notices.switch_off()]
    rows: list[NewEvent] = []
    for wait in await limit_waits.every(database):
        said: list[Event] = words.left_to_original(wait.turn_id, original)
        statements += sessions.follow(wait.session_id, said)
        rows += events.rows(wait.session_id, None, said)
    statements.append(limit_waits.forget_all())
    readable, unreadable = await tasks.unfinished(database)
    now = time.time_ns() // 1_000_000
    for run in readable:
        reason = outcomes.RUNS_ELSEWHERE.format(path=original)
        lasted = max(now - run.started_at, 0)
        following = await asyncio.to_thread(run.following)
        statements += tasks.result(run, TaskResult("", reason, following, lasted))
    for run in unreadable:
        statements += tasks.result(run, unreadable_result(run))
    return Unit(tuple(statements), tuple(rows), durable=True)
