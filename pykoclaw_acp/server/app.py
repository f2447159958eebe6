"""The server's parts, wired: settings, lock, database, sessions, workers. The one module that knows
all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.config.session_environment import own_variables
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import LaunchFailed
from pykoclaw_acp.link.places import DATABASE, Places
from pykoclaw_acp.model.choices import may_bypass
from pykoclaw_acp.model.scheduled import SchedulerState
from pykoclaw_acp.model.session_environment import DaemonEnvironment
from pykoclaw_acp.model.turns import TurnTimes
from pykoclaw_acp.pool.forkserver_process import StartingForkServer
from pykoclaw_acp.pool.launcher import Launcher
from pykoclaw_acp.pool.local import LocalLauncher
from pykoclaw_acp.pool.pool import WorkerPool
from pykoclaw_acp.pool.ports import PoolLimits
from pykoclaw_acp.protocol.control.tasks import SchedulerInfo
from pykoclaw_acp.retries import until_done
from pykoclaw_acp.server import client_processes, data_directory
from pykoclaw_acp.server.identity import Identity, settle
from pykoclaw_acp.server.recovery import RecoveredWork, recover
from pykoclaw_acp.server.session_recovery import hand_over
from pykoclaw_acp.server.side_tasks import SideTasks
from pykoclaw_acp.server.turn_locks import FileLocks
from pykoclaw_acp.sessions.catalogue import ListSettings
from pykoclaw_acp.sessions.cursor_retention import CursorAges
from pykoclaw_acp.sessions.early_starts import EarlyStarts
from pykoclaw_acp.sessions.forking import Forks
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.retention import Pruner
from pykoclaw_acp.sessions.scheduler import Scheduler
from pykoclaw_acp.sessions.showing import Showing
from pykoclaw_acp.sessions.task_runs import TaskRuns
from pykoclaw_acp.sessions.turns import titles
from pykoclaw_acp.store import conversations, history_copy
from pykoclaw_acp.store.conversion import Conversion
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.hinting_journal import HintingJournal
from pykoclaw_acp.store.journal.branches import SqlBranchStore
from pykoclaw_acp.store.journal.tasks import SqlTaskStore
from pykoclaw_acp.store.lock import DataLock
from pykoclaw_acp.store.plugin_statements import PluginStatements
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.workers import SqlWorkerStore
from pykoclaw_acp.system import other_scheduler, turn_lock
from pykoclaw_acp.transcripts.finding import TranscriptFinder
from pykoclaw_acp.transcripts.roots import Roots
from pykoclaw_acp.transcripts.transcripts import ImportedTranscripts
from pykoclaw_acp.trust.watch import Watch

FLUSH_WAIT: Final = 0.5  # s; without what clients have confirmed they are shown it once more
STOP_GRACE: Final = 5.0  # s; for a worker that is stopped while the server goes on

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TakenData:
    """A data directory that this server has taken. `spare`: directories for a copy of the database."""

    lock: DataLock
    spare: list[Path]
    database: Database
    launcher: Launcher
    identity: Identity


@dataclass(frozen=True, slots=True)
class WiredParts:
    """What runs sessions on a data directory."""

    journal: HintingJournal
    statements: PluginStatements
    transcripts: ImportedTranscripts
    sessions: Sessions
    pool: WorkerPool


class App:
    """A running server, without its connections."""

    def __init__(self, settings: Settings, taken: TakenData, parts: WiredParts) -> None:
        self.settings = settings
        self.sessions = sessions = parts.sessions
        self.pool = parts.pool
        self.database = database = taken.database
        self.ages = CursorAges(sessions, SessionJournal(database))
        self.pruner = Pruner(sessions, SessionJournal(database), settings.prune_after)
        self.lock = taken.lock
        self._statements = parts.statements
        self._transcripts = parts.transcripts
        self._finder = _find_transcripts(settings, parts.journal, parts.transcripts)
        sessions.catalogue.transcripts = self._finder
        self.identity = taken.identity
        self.launcher = taken.launcher
        self.conversion = Conversion(
            database, lambda: not any(session.busy for session in sessions.live.values())
        )
        store = SqlTaskStore(database)
        self._find_other = partial(other_scheduler.find, database.path)
        self.runs = TaskRuns(sessions, store, settings.data, settings.max_workers)
        self.scheduler = (
            Scheduler(store, self.runs, self._find_other) if settings.scheduler == "on" else None
        )
        self._side_tasks = SideTasks(
            settings, database, parts.journal, sessions, conversion=self.conversion, runs=self.runs
        )

    @classmethod
    async def start(
        cls, settings: Settings, places: Places, *, resident: bool,
        begun: StartingForkServer | None = None,
    ) -> App:  # fmt: skip
        """Take the data directory's lock, open the database, recover; raises StartupError, having
        touched nothing.

        `resident`: clients come and go on `places.socket`, and workers outlive this process.
        `begun`: its fork server, if that was started already.
        """
        crash_points.arm(settings.crash_points)
        daemon_environment = settings.daemon_environment(own_variables())
        async with contextlib.AsyncExitStack() as undo:
            taken = await _take(settings, places, undo, resident=resident, begun=begun)
            found = await _recover(settings, places, taken, resident=resident)
            parts = _wire(settings, taken, daemon_environment, resident=resident)
            await _go_on(found, parts, taken.database)
            undo.pop_all()
        gc.freeze()  # exclude start-up objects from GC: each look through them costs 20 ms
        gc.enable()
        log.info(
            "Server ready",
            action="server_ready",
            data=str(settings.data),
            pid=os.getpid(),
            store=taken.database.condition.state,
        )
        return cls(settings, taken, parts)

    def owns_process(self, cookie: str) -> bool:
        """Whether a process with this cookie was started by a worker of this server."""
        return self.identity.standing.owns_process(cookie)

    async def worker_sessions(self) -> dict[tuple[int, int], str]:
        """Sessions of the workers that may be alive, by pid and start time."""
        return self.launcher.whereabouts.sessions(await SqlWorkerStore(self.database).rows())

    async def run_tasks(self) -> None:
        """Go on with the scheduled tasks that an earlier daemon ran, and run those that are due."""
        await self.database.condition.writable()
        await until_done(self.runs.recover, "Runs of tasks could not be looked at")
        if self.scheduler is not None:
            await self.scheduler.run()

    async def scheduler_info(self) -> SchedulerInfo:
        """Who runs scheduled tasks."""
        other = await asyncio.to_thread(self._find_other)
        state = SchedulerState.ON if other is None else SchedulerState.STANDS_BY
        if self.scheduler is None:
            state = SchedulerState.OFF
        return SchedulerInfo(state=state, other=other, running=len(self.runs.running))

    async def stop(self, grace: float) -> None:
        """Interrupt what runs, end all workers, close the database: turns and hung workers get half
        of `grace` (s).
        """
        try:
            async with asyncio.timeout(grace / 2):
                await self.sessions.live.cancel_all()
        except TimeoutError:
            log.warning("Turns did not stop in time", action="shutdown_overdue")
        await self.pool.close(grace / 2)
        await self._close()
        self.identity.release()
        self.lock.release()
        log.info("Server stopped", action="server_stopped")

    async def detach(self) -> None:
        """Close the database, and leave the workers to the next daemon."""
        self.runs.stop()
        await self.sessions.live.suspend()
        await self.pool.detach()
        await self._close()
        self.identity.release()
        self.lock.release()
        log.info("Daemon stopped", action="daemon_stopped")

    async def _close(self) -> None:
        self._statements.stop()
        await self._side_tasks.close()
        self._finder.close()
        self._transcripts.close()
        if self.sessions.locks is not None:
            self.sessions.locks.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_WAIT):
                await self.sessions.confirmations.flush()
        with contextlib.suppress(Exception):  # less time counts then, for the next boot
            await SessionJournal(self.database).note_time()
        await self.database.close()


async def _take(
    settings: Settings, places: Places, undo: contextlib.AsyncExitStack, *, resident: bool,
    begun: StartingForkServer | None,
) -> TakenData:  # fmt: skip
    """Take the data directory's lock, open the database, find out which instance it is."""
    undo.enter_context(data_directory.readable(settings.data / DATABASE))
    lock, spare = data_directory.take(settings, places, undo, resident=resident)
    database = await data_directory.open_database(settings, spare, undo)
    launcher = LocalLauncher(
        Path(places.directory), Path(places.state), resident=resident, begun=begun
    )
    undo.push_async_callback(launcher.close)
    with contextlib.suppress(OSError, LaunchFailed):  # the first launch says why
        await launcher.warm()  # it imports the SDK while this process goes on starting
    identity = await settle(database, places, launcher.whereabouts)
    undo.callback(identity.release)
    return TakenData(lock, spare, database, launcher, identity)


def _wire(
    settings: Settings, taken: TakenData, daemon_environment: DaemonEnvironment, *, resident: bool
) -> WiredParts:
    """Sessions and pool, which know each other, and what they use."""
    journal = HintingJournal(taken.database)
    roots = Roots(accounts=daemon_environment.accounts)
    transcripts = ImportedTranscripts(
        journal, accounts=daemon_environment.configuration, roots=roots
    )
    workspaces = None if settings.workspace_trust == "off" else Watch()
    template = settings.fill(WorkerOptions, bypass=may_bypass(os.geteuid(), os.environ))
    times = settings.fill(TurnTimes)
    sessions = Sessions(
        journal,
        template,
        times,
        settings.fill(ListSettings),
        alive=client_processes.alive,
        workspaces=workspaces,
        transcripts=transcripts,
        locks=FileLocks(str(settings.data), settings.turn_lock_timeout),
        daemon_environment=daemon_environment,
    )
    models = {"on": True, "off": False}.get(settings.legacy_models)
    sessions.showing = Showing(models, thoughts=settings.thinking == "show")
    ends = {} if resident else {"orphan_grace": 0}
    own = taken.identity.standing.id
    limits = settings.fill(PoolLimits, instance=own, stop_grace=STOP_GRACE, **ends)
    store, statements = SqlWorkerStore(taken.database), PluginStatements(taken.database)
    pool = WorkerPool(taken.launcher, store, sessions.worker_events, limits, statements)
    sessions.workers = pool
    sessions.early = EarlyStarts(sessions.live, pool) if settings.early_start == "on" else None
    sessions.forks = Forks(SqlBranchStore(taken.database), sessions.names, sessions.find)
    return WiredParts(journal, statements, transcripts, sessions, pool)


async def _go_on(found: RecoveredWork | None, parts: WiredParts, database: Database) -> None:
    """Let the sessions continue what was recovered, or wait until it is."""
    parts.sessions.know_aliases(await conversations.aliases(database))
    parts.sessions.awaits_recovery = found is None
    if found is not None:
        await hand_over(found, parts.sessions, parts.pool, database)


def _find_transcripts(
    settings: Settings, journal: HintingJournal, transcripts: ImportedTranscripts
) -> TranscriptFinder:
    """Conversations of other channels run below these directories; they are listed by their rows."""
    rows = settings.data / "conversations"
    ignored = [str(rows), os.path.realpath(rows)]
    helpers = settings.helper_prompts
    return TranscriptFinder(
        journal, transcripts.readers, titles.title, ignored, transcripts.roots, helpers=helpers
    )


async def _recover(
    settings: Settings, places: Places, taken: TakenData, *, resident: bool
) -> RecoveredWork | None:
    """Recover the work of an earlier server; None if the store cannot be written: that work waits
    until it can.
    """
    loop, database = asyncio.get_running_loop(), taken.database
    looking = _look_after(settings, places, taken, resident=resident)
    recovering = loop.create_task(looking, name="recover")
    trouble = loop.create_task(database.condition.in_trouble(), name="database trouble")
    try:
        await asyncio.wait([recovering, trouble], return_when=asyncio.FIRST_COMPLETED)
        if not database.condition.is_writable:
            database.limited = True
            return None
        return await recovering
    finally:
        trouble.cancel()
        recovering.cancel()
        await asyncio.wait([trouble, recovering])


async def _look_after(
    settings: Settings, places: Places, taken: TakenData, *, resident: bool
) -> RecoveredWork:
    """What an earlier server left is dealt with before it is noted which instance this is."""
    found = await recover(
        taken.database,
        taken.launcher,
        taken.identity.standing,
        resident=resident,
        usage_limit=settings.usage_limit,
    )
    await taken.identity.keep(taken.database, places)
    await asyncio.to_thread(history_copy.remove_left, taken.database.path, taken.spare)
    await asyncio.to_thread(turn_lock.remove_left, places.data)
    await asyncio.to_thread(
        shutil.rmtree, Path(places.directory, history_copy.FORMER), ignore_errors=True
    )
    return found
