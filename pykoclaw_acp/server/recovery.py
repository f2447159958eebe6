"""Before anybody is served: go on with what an earlier server left, or end it and say so.

Workers that live are adopted, what dead ones left on disk is taken into the log, and what nobody can finish is ended:
processes first, then turns, then questions.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.frames import FromWorker, Lost, Numbered, TurnEnded
from pykoclaw_acp.channel.processes import LeftWorker
from pykoclaw_acp.errors import ConfigurationError, Conflict, RowRefused
from pykoclaw_acp.link.places import secure_directory
from pykoclaw_acp.model.events import Event, Failure, OpenTools, ToolEnded
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.notes import failure
from pykoclaw_acp.model.permissions import RequestPolicy, StoredRequest
from pykoclaw_acp.model.turns import STARTED, Outcome, TurnState
from pykoclaw_acp.pool import leftovers
from pykoclaw_acp.pool.local import remove
from pykoclaw_acp.pool.pool import WorkerPool
from pykoclaw_acp.pool.whereabouts import lives
from pykoclaw_acp.server.identity import Standing
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import outcomes as endings
from pykoclaw_acp.store import conversations, events, permissions, turns
from pykoclaw_acp.store.database import Database, Unit
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.turns import UnfinishedTurn
from pykoclaw_acp.store.workers import WorkerLedger, WorkerRow
from pykoclaw_acp.system import reaper
from pykoclaw_acp.tasks import in_pieces

WORKER_GRACE: Final = 3.0  # s; for workers that are ended: to interrupt, and to keep what they have to tell
TERM_GRACE: Final = 1.0  # s; for what dead workers left

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Found:
    """What the sessions go on with: workers, the turns that these run, and prompts that nobody has begun."""

    workers: list[LeftWorker] = field(default_factory=list)
    turns: list[UnfinishedTurn] = field(default_factory=list)


async def recover(database: Database, directory: Path, *, resident: bool, standing: Standing | None = None) -> Found:
    """End what cannot go on, and find what can; the data directory's lock is held.

    Without `resident` nothing goes on: no worker is adopted, and a prompt that was not begun ends. `directory` has the
    things of the instance's workers; `standing` says which workers those are.
    """
    standing = standing or Standing.of(directory)
    ledger, journal = WorkerLedger(database), SessionJournal(database)
    rows = await ledger.rows()
    records = {row.session_id: await journal.find(row.session_id) for row in rows}
    sessions = {session_id: record.conversation_name for session_id, record in records.items() if record is not None}
    working = {left.turn.session_id for left in await turns.unfinished(database) if left.turn.state in STARTED}
    rows.sort(key=lambda row: row.session_id in working)  # the last one of a conversation is adopted
    own = [row for row in rows if standing.owns(row)]
    adopted = await asyncio.to_thread(_end_processes, own, standing, sessions if resident else {})
    dead = [row for row in rows if row not in adopted]
    last_words: dict[str, TurnFailure] = {}
    unread: list[WorkerRow] = []
    for row in dead:
        words = standing.last_words(row)
        if words is not None:
            last_words[row.session_id] = words
        if row not in own:  # a copy's original, which may be alive, wrote it
            continue
        if row.session_id in sessions and words is None and not await _take_spool(journal, row, last_words):
            unread.append(row)
        await asyncio.to_thread(remove, row.left.identity, keep_spool=row in unread)
    kept = {row.socket.name for row in adopted + unread}
    await asyncio.to_thread(_empty, directory, kept, spare=bool(standing.foreign))
    epochs = {row.session_id: row.epoch for row in adopted}
    newest = {row.session_id: row.epoch for row in dead}
    going_on: list[UnfinishedTurn] = []
    requeued = resident and standing.copied_from is None
    turns_left = await turns.unfinished(database)
    for left in turns_left:
        queued = left.turn.state == TurnState.QUEUED
        runs = queued and requeued and left.turn.attempts < endings.MAX_ATTEMPTS
        if runs or (not queued and epochs.get(left.turn.session_id) == left.epoch):
            going_on.append(left)
        else:
            await _end_turn(database, journal, left, last_words.get(left.turn.session_id), standing.copied_from)
    told = {left.turn.session_id for left in turns_left if left not in going_on and left.turn.state in STARTED}
    for session_id in (newest.keys() & sessions.keys()) - epochs.keys() - told:
        open_tools = await events.open_tools(database, session_id, newest[session_id])
        if closed := _closed(open_tools):  # background work of a turn that had ended
            await journal.append(session_id, closed)
    for session_id in standing.put_back - told:
        if await journal.find(session_id) is not None:
            await journal.append(session_id, [Failure(str(uuid4()), endings.RESTORED, "restored")])
    await database.commit(Unit(statements=(permissions.interrupt_all(epochs.keys()),)), patient=True)
    for row in dead:
        if row not in unread:
            await ledger.worker_gone(row.session_id, row.epoch)
    if await conversations.unite(database, kept=epochs.keys()):
        ids = {left.turn.turn_id for left in going_on}
        going_on = [left for left in await turns.unfinished(database) if left.turn.turn_id in ids]
    crash_points.reached("recovered")
    return Found([row.left for row in adopted], going_on)


async def hand_over(found: Found, sessions: Sessions, pool: WorkerPool, database: Database) -> None:
    """Give the sessions what was found; they go on at once."""
    journal = SessionJournal(database)
    adopted: list[tuple[Session, LeftWorker, OpenTools, list[StoredRequest]]] = []
    for worker in found.workers:
        session = await sessions.find(worker.identity.session_id)
        if session is None:
            continue
        asked = await journal.questions(session.id)
        open_questions = [one for one in asked if one.policy != RequestPolicy.PARKED and not one.request.workspaces]
        open_tools = await events.open_tools(database, session.id, worker.identity.epoch)
        adopted.append((session, worker, open_tools, open_questions))
    queued = [left.turn for left in found.turns if left.turn.state == TurnState.QUEUED]
    waiting = [(await sessions.find(turn.session_id), turn) for turn in queued]
    about_trust = [one for one in await journal.questions() if one.request.workspaces and one.outcome is None]
    # From here on without a pause: no frame may come before its session knows its turn.
    pool.adopt([worker for _, worker, _, _ in adopted])
    for session, worker, open_tools, questions in adopted:
        mine = [left for left in found.turns if left.turn.session_id == session.id and left.turn.state in STARTED]
        current = next((left.turn for left in mine if not left.background), None)
        background = [left.turn.turn_id for left in mine if left.background]
        session.adopt(worker.identity.epoch, current, background, open_tools)
        session.restore_questions(worker.identity.epoch, questions)
    for owner, turn in waiting:
        if owner is not None:
            owner.requeue(turn)
            owner.restore_questions(0, [one for one in about_trust if one.turn_id == turn.turn_id])
    if adopted or waiting:
        log.info("Going on", action="recovered", workers=len(adopted), queued=len(waiting))


def _end_processes(rows: Sequence[WorkerRow], standing: Standing, wanted: Mapping[str, str]) -> list[WorkerRow]:
    """End the instance's processes that cannot go on; returns the workers that do, of `wanted` sessions.

    `rows` are those of its own workers; `wanted` has their conversations: of each, the last one of `rows` goes on.
    """
    alive = [row for row in rows if lives(row.process)]
    fit = [row for row in alive if row.left.identity.cookie not in standing.outdated]
    newest = {wanted[row.session_id]: row for row in fit if row.session_id in wanted}
    adopted = list(newest.values())
    surplus = [reaper.Stray(row.process.pid, row.process.start_time) for row in alive if row not in adopted]
    surplus += [reaper.Stray(one.pid, one.start_time) for one in standing.strays]
    reaper.end_these(surplus, WORKER_GRACE)
    kept, own = ({row.left.identity.cookie for row in some} for some in (adopted, rows))
    pids = {row.process.pid for row in adopted}

    def ends(cookie: str) -> bool:
        return cookie not in kept and (cookie in own or standing.owns_process(cookie))

    ended = surplus + reaper.end_now(ends, TERM_GRACE, pids)
    if ended:
        log.warning("Ended processes of an earlier server", action="strays_ended", pids=[s.pid for s in ended])
    return adopted


async def _take_spool(journal: SessionJournal, row: WorkerRow, last_words: dict[str, TurnFailure]) -> bool:
    """What a dead worker could not tell any more: as if it had, so that its turn ends as it did.

    False if its spool cannot be read now: the next start may be able to.
    """
    spool, after = Path(row.left.identity.spool), row.acked_frame

    async def record(batch: list[FromWorker]) -> None:
        nonlocal after
        for frame in batch:
            if isinstance(frame, Lost):
                last_words[row.session_id] = frame.failure
        numbered = [frame for frame in batch if isinstance(frame, Numbered)]
        if not numbered:
            return
        ends = [frame for frame in numbered if isinstance(frame, TurnEnded)]
        outcomes = {frame.turn_id: endings.of_frame(frame, cancelled=False) for frame in ends}
        await journal.record(row.session_id, row.epoch, numbered, outcomes, dead=True)
        after = numbered[-1].n
        crash_points.reached("spool_taken")

    taken = True
    try:
        for batch in leftovers.read_spool(spool, row.epoch, after):
            await leftovers.take(batch, record, spool)
    except (ValueError, Conflict, RowRefused):
        log.exception("A dead worker's spool could not be taken", action="spool_failed", session=row.session_id)
    except OSError as error:
        kept = {"session": row.session_id, "file": str(spool), "error": str(error)}
        log.error("A dead worker's spool cannot be read; the next start tries again", action="spool_unreadable", **kept)
        taken = False
    if after > row.acked_frame:
        log.info("Took a dead worker's spool", action="spool_taken", session=row.session_id, upto=after)
    return taken


def _empty(directory: Path, kept: set[str], *, spare: bool) -> None:
    """Make the workers' directories, and remove what is in them but the things of `kept` workers; `spare`: nothing.

    Where they cannot be made no worker can be launched, and everything else goes on. Raises ConfigurationError if
    others can use them.
    """
    try:
        secure_directory(directory)
        for name in ("sockets", "tmp", "spool"):
            place = directory / name
            place.mkdir(mode=0o700, exist_ok=True)
            for entry in place.iterdir():
                if spare or entry.name.removesuffix(".ndjson") in kept:
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink(missing_ok=True)
    except (OSError, ConfigurationError) as error:
        if isinstance(error, ConfigurationError) and not isinstance(error.__cause__, OSError):
            raise
        log.warning("The workers' directories cannot be used", action="directories_failed", error=str(error))


def _closed(open_tools: OpenTools) -> list[Event]:
    return [ToolEnded(tool, "failed") for tool in open_tools]


async def _end_turn(
    database: Database,
    journal: SessionJournal,
    left: UnfinishedTurn,
    last_words: TurnFailure | None,
    original: str | None,
) -> None:
    turn = left.turn
    said: list[Event] = []
    outcome: Outcome
    if turn.state == TurnState.QUEUED and original is not None:
        said.extend(await in_pieces(endings.user_messages(turn)))
        outcome = endings.waits_elsewhere(original)
    elif turn.state == TurnState.QUEUED and turn.attempts >= endings.MAX_ATTEMPTS:
        # What it took to show it more nicely may be what killed the servers.
        said.extend(await in_pieces(endings.plain_messages(turn)))
        outcome = endings.deadly()
    elif turn.state == TurnState.QUEUED:
        # It never left. Its client is gone and may send it again, so it is not run behind everybody's back.
        said.extend(await in_pieces(endings.user_messages(turn)))
        outcome = endings.not_begun()
    else:
        why = last_words or TurnFailure("server_lost", endings.STOPPED)
        outcome = endings.interrupted(spoke=turn.spoke, kind=why.kind, message=why.message)
        said.extend(_closed(await events.open_tools(database, turn.session_id, left.epoch or 0)))
    said.extend(failure(turn.turn_id, outcome))
    await journal.finish(turn.session_id, turn.turn_id, outcome, said)
    log.warning(
        "A turn of an earlier server was ended",
        action="turn_recovered", session=turn.session_id, turn=turn.turn_id, state=outcome.state,
    )  # fmt: skip
