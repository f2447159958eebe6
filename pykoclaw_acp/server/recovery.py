"""Before anybody is served: end what a dead server left, its processes first, then its turns, and say so."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Final

import structlog

from pykoclaw_acp.ops import processes
from pykoclaw_acp.pool import reaper
from pykoclaw_acp.sessions import endings
from pykoclaw_acp.sessions.events import Event, ToolEnded
from pykoclaw_acp.sessions.model import Outcome, TurnFault
from pykoclaw_acp.store import events, permissions, turns
from pykoclaw_acp.store.database import Database, Unit
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.workers import WorkerLedger

TERM_GRACE: Final = 1.0  # s

log: Final = structlog.get_logger()


async def recover(database: Database, directory: Path) -> None:
    """Leave every turn ended and no process of an earlier server alive; the data directory's lock is held."""
    ledger = WorkerLedger(database)
    await _end_processes(ledger, directory)
    await asyncio.to_thread(_empty, directory)
    journal = SessionJournal(database)
    sessions = await ledger.sessions()
    for turn in await turns.unfinished(database):
        await _end_turn(database, journal, turn)
    for session_id in sessions:
        if closed := await _closed_tools(database, session_id):  # background work of a turn that had ended
            await journal.append(session_id, closed)
    await database.commit(Unit(statements=(permissions.interrupt_all(),)))
    await ledger.forget_all()


async def _end_processes(ledger: WorkerLedger, directory: Path) -> None:
    """Only of this data directory: a copy of it holds the rows of the original's workers, which may be alive."""
    boot = processes.boot_id()
    for process, socket in await ledger.left_behind():
        if process.boot_id == boot and Path(socket).is_relative_to(directory):
            reaper.send(process.pid, process.start_time, signal.SIGKILL)
    ended = await reaper.end(lambda cookie: cookie.startswith(f"{directory.name}:"), TERM_GRACE)
    if ended:
        log.warning("Ended processes of an earlier server", action="strays_ended", pids=[s.pid for s in ended])


def _empty(directory: Path) -> None:
    for name in ("sockets", "tmp"):
        shutil.rmtree(directory / name, ignore_errors=True)
        (directory / name).mkdir(mode=0o700, parents=True)


async def _closed_tools(database: Database, session_id: str) -> list[Event]:
    return [ToolEnded(tool, "failed") for tool in await events.open_tools(database, session_id)]


async def _end_turn(database: Database, journal: SessionJournal, turn: turns.UnfinishedTurn) -> None:
    said: list[Event] = []
    if turn.state == "queued":
        # It never left. Its client is gone and may send it again, so it is not run behind everybody's back.
        said.extend(endings.prompt_events(turn.turn_id, turn.content))
        outcome = Outcome("cancelled", stop_reason="cancelled", fault=TurnFault("not_started", endings.NOT_BEGUN))
    else:
        outcome = endings.interrupted(spoke=turn.spoke, kind="server_lost", message=endings.STOPPED)
        said.extend(await _closed_tools(database, turn.session_id))
    said.extend(endings.failure(turn.turn_id, outcome))
    await journal.finish(turn.session_id, turn.turn_id, outcome, said)
    log.warning(
        "A turn of an earlier server was ended",
        action="turn_recovered", session=turn.session_id, turn=turn.turn_id, state=outcome.state,
    )  # fmt: skip
