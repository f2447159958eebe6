"""What was found of an earlier server goes on in its sessions."""

from __future__ import annotations

from typing import Final

import structlog

from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.errors import SessionUnreadable
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.events import OpenTools
from pykoclaw_acp.model.permissions import RequestPolicy, StoredRequest
from pykoclaw_acp.model.turns import STARTED, TurnState
from pykoclaw_acp.pool.pool import WorkerPool
from pykoclaw_acp.server.recovery import RecoveredWork
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import events
from pykoclaw_acp.store.condition import StoreDamaged
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.session_journal import SessionJournal

log: Final = structlog.get_logger()


async def _session(sessions: Sessions, session_id: str) -> Session | None:
    """The session; None if there is none, or what the database has of it is damaged."""
    try:
        return await sessions.find(session_id)
    except (SessionUnreadable, StoreDamaged):
        return None


async def hand_over(
    found: RecoveredWork, sessions: Sessions, pool: WorkerPool, database: Database
) -> None:
    """Let the sessions continue what was found."""
    journal = SessionJournal(database)
    adopted: list[tuple[Session, WorkerRecord, OpenTools, list[StoredRequest]]] = []
    for worker in found.workers:
        session = await _session(sessions, worker.identity.session_id)
        if session is None:
            continue
        asked = await journal.find_active(session.id)
        open_questions = [
            one
            for one in asked
            if one.policy != RequestPolicy.PARKED and not one.request.workspaces
        ]
        open_tools = await events.open_tools(database, session.id, worker.identity.epoch)
        adopted.append((session, worker, open_tools, open_questions))
    helpers = sessions.catalogue.settings.helper_prompts
    for turn in [left.turn for left in found.turns]:
        by_client = prompt_text.by_client_itself(turn.content, turn.client, helpers)
        turn.helper = by_client and turn.task_id is None
    queued = [left.turn for left in found.turns if left.turn.state == TurnState.QUEUED]
    waiting = [(await _session(sessions, turn.session_id), turn) for turn in queued]
    about_trust = [
        one for one in await journal.find_active() if one.request.workspaces and one.outcome is None
    ]
    cancelled = [(await _session(sessions, turn.session_id), turn) for turn in found.unsaid]
    # From here on without a pause: no frame may come before its session knows its turn.
    pool.adopt([worker for _, worker, _, _ in adopted])
    for session, worker, open_tools, questions in adopted:
        mine = [
            left
            for left in found.turns
            if left.turn.session_id == session.id and left.turn.state in STARTED
        ]
        given = [left.turn for left in mine if not left.background]
        background = {left.turn.turn_id: left.turn.sent for left in mine if left.background}
        session.adopt(worker.identity.epoch, given, background, open_tools)
        if worker.outdated:
            session.next_worker.note_outdated(worker.epoch, spare=worker.spared)
        session.restore_requests(worker.identity.epoch, questions)
    for owner, turn in waiting:
        if owner is not None:
            owner.requeue(turn)
            owner.restore_requests(0, [one for one in about_trust if one.turn_id == turn.turn_id])
    for owner, turn in cancelled:
        if owner is not None:
            owner.say_cancelled(turn)
    if adopted or waiting:
        log.info("Going on", action="recovered", workers=len(adopted), queued=len(waiting))
