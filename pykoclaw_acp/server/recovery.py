"""Recovery at start-up: adopt the workers of an earlier server, and end what cannot be continued.

Live workers are adopted, the spools of dead ones go into the log. Then turns end that nobody can
finish, and permission requests that nobody waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import uuid4

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import SessionUnreadable, StoreClosed, StoreUnavailable
from pykoclaw_acp.model import notes
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import Event, OpenTools, note_event
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.turns import STARTED, Outcome, SessionRecord, Turn, TurnState
from pykoclaw_acp.pool.launcher import Inheritance, Launcher
from pykoclaw_acp.server.identity import InstanceWorkers
from pykoclaw_acp.server.spools import DeadWorkersSpools
from pykoclaw_acp.sessions import workspace_words
from pykoclaw_acp.sessions.turns import outcomes as endings
from pykoclaw_acp.sessions.turns import titling
from pykoclaw_acp.store import conversations, events, forking, permissions, turns, unsaid_prompts
from pykoclaw_acp.store.condition import StoreDamaged
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.turns import UnfinishedTurn
from pykoclaw_acp.store.workers import SqlWorkerStore
from pykoclaw_acp.tasks import in_pieces

ATTEMPTS: Final = 20  # at what is done for a session
PAUSE: Final = 0.1  # s between two

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RecoveredWork:
    """What the sessions continue: adopted workers, the turns that these run, and queued prompts.
    `unsaid`: prompts that were cancelled, of which the logs are yet to say so.
    """

    workers: list[WorkerRecord] = field(default_factory=list)
    turns: list[UnfinishedTurn] = field(default_factory=list)
    unsaid: list[Turn] = field(default_factory=list)


async def recover(
    database: Database,
    launcher: Launcher,
    standing: InstanceWorkers,
    *,
    resident: bool,
    usage_limit: str,
) -> RecoveredWork:
    """Recover; the data directory's lock is held. `usage_limit`: as in TurnTimes.

    Without `resident` nothing is continued: no worker is adopted, and queued prompts end.
    `standing` says which workers are the instance's own.
    """
    await forking.abandon(database)
    await conversations.finish(database)
    ledger, journal = SqlWorkerStore(database), SessionJournal(database)
    rows = await ledger.rows()
    records = {row.session_id: await _record(journal, row.session_id) for row in rows}
    sessions = {
        session_id: record.conversation_name
        for session_id, record in records.items()
        if record is not None
    }
    started = [one for one in await turns.unfinished(database) if one.turn.state in STARTED]
    given = {one.turn.turn_id: one for one in started}
    working = {one.turn.session_id for one in started}
    # The last one of a conversation is adopted
    rows.sort(key=lambda row: row.session_id in working)
    own = [row for row in rows if standing.owns(row)]
    choose = partial(_newest, standing=standing, conversations=sessions if resident else {})
    adopted = await launcher.recover(
        Inheritance(own, choose, standing.strays, standing.owns_process)
    )
    dead = [row for row in rows if row not in adopted]
    spools = DeadWorkersSpools(launcher, journal, given, records, usage_limit)
    last_words: dict[str, TurnFailure] = {}
    unread: list[WorkerRecord] = []
    for row in dead:
        words = standing.last_words(row)
        if words is not None:
            last_words[row.session_id] = words
        if row not in own:  # a copy's original, which may be alive, wrote it
            continue
        if row.session_id in sessions and words is None and not await spools.take(row, last_words):
            unread.append(row)
        await launcher.discard(row.identity, keep_spool=row in unread)
    await launcher.prepare(standing.id, [*adopted, *unread], spare=bool(standing.foreign))
    epochs = {row.session_id: row.epoch for row in adopted}
    newest = {row.session_id: row.epoch for row in dead}
    going_on: list[UnfinishedTurn] = []
    requeued = resident and standing.copied_from is None
    turns_left = await turns.unfinished(database)
    for session_id in {left.turn.session_id for left in turns_left} - records.keys():
        records[session_id] = await _record(journal, session_id)
    for left in turns_left:
        queued = left.turn.state == TurnState.QUEUED
        known = records[left.turn.session_id] is not None
        runs = queued and requeued and known and left.turn.attempts < endings.MAX_ATTEMPTS
        if runs or (not queued and epochs.get(left.turn.session_id) == left.epoch):
            going_on.append(left)
        else:
            words = last_words.get(left.turn.session_id)
            ending = partial(_end_turn, database, journal, left, words, standing.copied_from)
            if not await _spared(database, left.turn.session_id, ending):
                silence = (_end_in_silence(left.turn, database),)
                await database.commit(Unit(silence, durable=True), patient=True)
    told = {
        left.turn.session_id
        for left in turns_left
        if left not in going_on and left.turn.state in STARTED
    }
    for session_id in (newest.keys() & sessions.keys()) - epochs.keys() - told:
        words = last_words.get(session_id)
        closing = partial(_close, database, journal, newest[session_id], session_id, words)
        await _spared(database, session_id, closing)
    for session_id in standing.put_back - told:
        if await _record(journal, session_id) is not None:
            note = note_event(str(uuid4()), endings.PUT_BACK)
            await _spared(database, session_id, partial(journal.append, session_id, [note]))
    await database.commit(
        Unit(statements=(permissions.interrupt_all(epochs.keys()),)), patient=True
    )
    for row in dead:
        if row not in unread:
            await ledger.worker_gone(row.session_id, row.epoch)
    if await conversations.unite(database, kept=epochs.keys()):
        ids = {left.turn.turn_id for left in going_on}
        going_on = [left for left in await turns.unfinished(database) if left.turn.turn_id in ids]
    crash_points.reached("recovered")
    return RecoveredWork(adopted, going_on, await unsaid_prompts.find(database))


async def _spared(
    database: Database, session_id: str, work: Callable[[], Awaitable[object]]
) -> bool:
    """Do something for a session; False if that fails because what the database has of it is damaged,
    or was deleted by another program: others go on. Raises StoreUnavailable if another program
    keeps the database locked.
    """
    left = ATTEMPTS
    while True:
        try:
            await work()
        except StoreClosed:
            raise
        except Exception as error:
            left -= 1
            unavailable = isinstance(error, StoreUnavailable)
            if unavailable and left:  # it passes, as a rule, and says nothing about the session
                await database.condition.writable()
                await asyncio.sleep(PAUSE)
                continue
            if isinstance(error, StoreUnavailable) and error.state == DatabaseState.LOCKED:
                raise
            log.exception("A session is damaged", action="session_damaged", session=session_id)
            return False
        return True


def _end_in_silence(turn: Turn, database: Database) -> Statement:
    """The end of a turn whose session cannot be told."""
    sent = turn.state != TurnState.QUEUED
    kind, message = ErrorKind.SERVER_LOST, endings.STOPPED
    outcome = endings.lost(turn, kind, message, may_have_spoken=sent)
    return turns.end(turn.turn_id, outcome, database.clock.now())


async def _record(journal: SessionJournal, session_id: str) -> SessionRecord | None:
    """The session; None if there is none, or what the database has of it is damaged: the others go on."""
    try:
        return await journal.find(session_id)
    except (SessionUnreadable, StoreDamaged) as error:
        log.error("A session is damaged", action="session_damaged", error=error.message)
        return None


def _newest(
    alive: Sequence[WorkerRecord], standing: InstanceWorkers, conversations: Mapping[str, str]
) -> list[WorkerRecord]:
    """The workers that go on: of each conversation the last one, unless it is further on than the
    database.

    `conversations`: by the sessions that go on.
    """
    fit = [row for row in alive if row.identity.cookie not in standing.outdated]
    newest = {conversations[row.session_id]: row for row in fit if row.session_id in conversations}
    return list(newest.values())


async def _close(
    database: Database,
    journal: SessionJournal,
    epoch: int,
    session_id: str,
    last_words: TurnFailure | None,
) -> None:
    """End the tools that turns had left which have ended."""
    open_tools = await events.open_tools(database, session_id, epoch)
    if closed := _closed(open_tools, last_words):
        await journal.append(session_id, closed)


def _closed(open_tools: OpenTools, last_words: TurnFailure | None) -> list[Event]:
    why = endings.WORKER_STOPPED if last_words is None else last_words.message
    return open_tools.failed(endings.cut_off(why))


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
        # It never left. Its client is gone and may send it again, so it is not run behind
        # everybody's back.
        said.extend(await in_pieces(endings.user_messages(turn)))
        if (record := await _record(journal, turn.session_id)) is not None:
            said.extend(titling.first(record, turn))
        outcome = endings.not_begun(turn)
    else:
        why = last_words or TurnFailure(ErrorKind.SERVER_LOST, endings.STOPPED)
        outcome = (
            endings.background_lost(why.message, why.kind)
            if left.background
            else endings.lost(turn, why.kind, why.message)
        )
        if turn.unsaid:
            said.extend(await in_pieces(endings.user_messages(turn)))
        open_tools = await events.open_tools(database, turn.session_id, left.epoch or 0)
        said.extend(_closed(open_tools, last_words))
    if turn.state == TurnState.QUEUED:
        asked = await permissions.about_trust(database, turn.turn_id)
        said.extend(workspace_words.ends(asked))
    said.extend(notes.ended(turn.turn_id, outcome))
    await journal.finish(turn.session_id, turn.turn_id, outcome, said)
    log.warning(
        "A turn of an earlier server was ended",
        action="turn_recovered", session=turn.session_id, turn=turn.turn_id, state=outcome.state,
    )  # fmt: skip
