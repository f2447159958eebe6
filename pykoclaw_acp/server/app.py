"""The server's parts, wired: settings, lock, database, sessions, workers. The one module that knows all of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import Final

import structlog

from pykoclaw_acp.config import Settings
from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.ops import steps
from pykoclaw_acp.pool.life import PoolLimits
from pykoclaw_acp.pool.local import LocalLauncher
from pykoclaw_acp.pool.pool import WorkerPool
from pykoclaw_acp.server.recovery import recover
from pykoclaw_acp.sessions.model import TurnTimes
from pykoclaw_acp.sessions.registry import SessionDefaults, Sessions
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.lock import DataLock
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.workers import WorkerLedger

DATABASE: Final = "pykoclaw.db"
STOP_GRACE: Final = 5.0  # s; for a worker that is stopped while the server goes on

log: Final = structlog.get_logger()


class App:
    """A running server, without its connections. `sessions` is what they talk to."""

    def __init__(self, settings: Settings, lock: DataLock, database: Database, sessions: Sessions, pool: WorkerPool):
        self.settings = settings
        self.sessions = sessions
        self.pool = pool
        self._lock = lock
        self._database = database

    @classmethod
    async def start(cls, settings: Settings) -> App:
        """Take the data directory's lock, open the database, recover; raises StartupError, having touched nothing."""
        steps.arm(settings.crash_points)
        async with contextlib.AsyncExitStack() as undo:
            lock = DataLock.acquire(settings.data)
            undo.callback(lock.release)
            directory = runtime_directory(settings)
            database = await Database.open(settings.data / DATABASE)
            undo.push_async_callback(database.close)
            await recover(database, directory)
            undo.pop_all()
        sessions = Sessions(SessionJournal(database), _defaults(settings))
        limits = PoolLimits(
            directory=directory,
            max_workers=settings.max_workers,
            idle_timeout=settings.idle_timeout,
            start_timeout=settings.worker_start_timeout,
            stall_timeout=settings.stall_timeout,
            stop_grace=STOP_GRACE,
        )
        pool = WorkerPool(LocalLauncher(directory), WorkerLedger(database), sessions, limits)
        sessions.workers = pool
        log.info("Server ready", action="server_ready", data=str(settings.data), pid=os.getpid())
        return cls(settings, lock, database, sessions, pool)

    async def stop(self, grace: float) -> None:
        """Interrupt what runs, end all workers, close the database: turns and hung workers get half of `grace` (s)."""
        try:
            await asyncio.wait_for(self.sessions.cancel_all(), grace / 2)
        except TimeoutError:
            log.warning("Turns did not stop in time", action="shutdown_overdue")
        await self.pool.close(grace / 2)
        await self._database.close()
        self._lock.release()
        log.info("Server stopped", action="server_stopped")


def runtime_directory(settings: Settings) -> Path:
    """Where this data directory's workers have their sockets, temporary files and log; 0700."""
    name = hashlib.sha256(str(settings.data).encode()).hexdigest()[:12]
    directory = settings.state / name
    try:
        settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"The state directory {settings.state} cannot be used: {error.strerror}. Set PYKOCLAW_STATE to another one."
        ) from error
    status = directory.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigurationError(f"The state directory {directory} must belong to you alone: `chmod 700 {directory}`.")
    return directory


def _defaults(settings: Settings) -> SessionDefaults:
    return SessionDefaults(
        model=settings.model,
        permission_mode=settings.permission_mode,
        setting_sources=tuple(settings.setting_sources),
        cli_path=None if settings.cli_path is None else str(settings.cli_path),
        log_level=settings.log_level,
        times=TurnTimes(settings.cancel_grace, settings.permission_timeout),
    )
