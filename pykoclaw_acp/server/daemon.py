"""`serve`: the resident daemon. Clients connect to its socket; its workers outlive it, and the next
one adopts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from pykoclaw_acp import __version__, terminal
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import Exhausted, RestartWanted, StartupError
from pykoclaw_acp.link import readiness
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.logging import setup as logging
from pykoclaw_acp.server import health
from pykoclaw_acp.server.app import App
from pykoclaw_acp.server.clients import Clients
from pykoclaw_acp.server.lag import LoopLag, run
from pykoclaw_acp.server.sockets import Listening
from pykoclaw_acp.store.database import ABANDONED
from pykoclaw_acp.system import allocator, shortage
from pykoclaw_acp.system.lineage import MARKS
from pykoclaw_acp.system.machine import make_no_core_files, withhold_memory
from pykoclaw_acp.system.systemd import Notifier, inherited_sockets

# s that systemd lets a start take: a huge database is migrated, never killed over it
RECOVERY_WAIT: Final = 600.0
LOG_LOOK: Final = 3600.0  # s; how often the log's size is looked at

log: Final = structlog.get_logger()


class Daemon:
    """The resident daemon: `startup`, `main_loop`, `shutdown`, and the same again if the database
    is opened anew.
    """

    def __init__(self, settings: Settings, starter: _Starter, lag: LoopLag) -> None:
        self._settings = settings
        self._starter = starter
        self._lag = lag
        self._places = Places(settings.data, settings.state, settings.socket)
        self._notifier = Notifier.from_environment()
        self._listening = Listening(inherited_sockets(), self._places.socket)
        self._stop = asyncio.Event()

    async def serve(self) -> None:
        """Serve until SIGTERM. Raises StartupError, RestartWanted."""
        self._watch_signals()
        self._notifier.extend(RECOVERY_WAIT)
        try:
            while not self._stop.is_set():
                await self._startup()
                try:
                    await self._main_loop()
                finally:
                    await self._shutdown()
        finally:
            self._listening.end()

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)

    async def _startup(self) -> None:
        """Open the database, recover, and accept clients."""
        self._app = await App.start(self._settings, self._places, resident=True)
        try:
            listeners = self._listening.begin()
        except StartupError:
            await self._app.detach()
            raise
        self._clients = Clients(self._app, self._places, self._lag)
        self._accepting = [
            _start(self._clients.accept(listener), "accept") for listener in listeners
        ]
        self._watching = _start(
            health.watch(self._notifier, self._app.database, self._app.pool), "watchdog"
        )
        self._reopening = _start(self._app.database.reopen_wanted.wait(), "reopen database")
        logging.keep_small(self._places.log)
        self._side_tasks = [
            _start(self._app.pruner.run(), "prune sessions"),
            _start(self._app.ages.run(), "drop old cursors"),
            _start(_keep_log_small(self._places.log), "trim log"),
            _start(self._tell_condition(), "report condition"),
            _start(self._app.run_tasks(), "run scheduled tasks"),
        ]
        self._starter.ready()
        inherited = self._listening.inherited
        log.info(
            "Daemon ready", action="daemon_ready", socket=self._places.socket, inherited=inherited
        )

    async def _main_loop(self) -> None:
        """Until the daemon is to stop, or the database to be opened anew. Raises RestartWanted if
        it cannot go on.
        """
        stopping = _start(self._stop.wait(), "stop")
        try:
            await asyncio.wait(
                [stopping, self._reopening, self._watching, *self._accepting],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stopping.cancel()
        if self._watching.done():
            self._watching.result()
        for accepting in self._accepting:
            if accepting.done() and (error := accepting.exception()) is not None:
                log.error("The socket failed", action="socket_failed", exc_info=error)
                raise RestartWanted("The daemon can take no more clients.") from error
        if not self._stop.is_set():
            log.warning("The database is opened anew", action="database_reopened")

    async def _shutdown(self) -> None:
        """Let go of clients, workers and the database; clients may wait if the database is opened
        anew.
        """
        for task in (*self._accepting, self._watching, *self._side_tasks, self._reopening):
            task.cancel()
        if not self._reopening.done():
            self._notifier.stopping()
            self._listening.end()  # first: who connects from now on starts the next daemon
        await self._clients.disconnect()
        await self._app.detach()

    async def _tell_condition(self) -> None:
        """`systemctl status` says whether the database can be written."""
        serves = f"pykoclaw-acp {__version__} serves {self._settings.data}"
        condition = self._app.database.condition
        self._notifier.ready(
            serves if condition.is_writable else f"{serves}, for reading. {condition.reason}"
        )
        while True:
            await condition.in_trouble()
            self._notifier.status(f"{serves}, for reading. {condition.reason}")
            await condition.writable()
            self._notifier.status(serves)


def _start(coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(coroutine, name=name)


async def _keep_log_small(path: str) -> None:
    while True:
        await asyncio.sleep(LOG_LOOK)
        logging.trim(path)


class _Starter:
    """Reports to the front that started this daemon (link/readiness.py)."""

    def __init__(self) -> None:
        descriptor = os.environ.pop(readiness.VARIABLE, "")
        self._pipe = int(descriptor) if descriptor.isdecimal() else None
        if self._pipe is not None:
            os.set_inheritable(self._pipe, False)

    def ready(self) -> None:
        """Report that clients can connect."""
        self._tell(readiness.ready())

    def failed(self, error: StartupError) -> None:
        """Report that the daemon cannot start."""
        self._tell(readiness.failed(error.exit_code, str(error), error.kind))

    def _tell(self, line: bytes) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                os.write(self._pipe, line)
                os.close(self._pipe)
            self._pipe = None


def main(load: Callable[[], Settings]) -> int:
    """Serve until SIGTERM; returns the exit status. Raises StartupError, also that of `load`.

    Does not return if a database was abandoned: SQLite would close its files at the end of the
    interpreter, and delete the write-ahead log of whatever is at their path by then.
    """
    try:
        status = _main(load)
    except BaseException as error:
        if ABANDONED:
            os._exit(_complain(error))
        raise
    if ABANDONED:
        os._exit(status)
    return status


def _complain(error: BaseException) -> int:
    """What the program says of an error that ends it; returns the exit status."""
    if isinstance(error, StartupError):
        terminal.complain(*f"pykoclaw-acp: {error}".split("\n"))
        return error.exit_code
    log.error("The daemon failed", action="daemon_failed", exc_info=error)
    return 1


def _main(load: Callable[[], Settings]) -> int:
    starter = _Starter()
    withhold_memory()
    make_no_core_files()
    allocator.keep_large_blocks_apart()
    for mark in MARKS:
        os.environ.pop(mark, None)
    faulthandler.enable()  # systemd's watchdog ends a daemon that hangs with SIGABRT: the log says where
    status = 0
    try:
        if (lacking := shortage.lacking()) is not None:
            raise Exhausted(*lacking)
        settings = load()
        logging.configure(settings.log_level, settings.log_format)
        run(lambda lag: Daemon(settings, starter, lag).serve())
    except RestartWanted as error:
        log.error("The daemon needs a restart", action="restart_wanted", reason=str(error))
        status = error.exit_code
    except StartupError as error:
        log.error(
            "The daemon cannot start",
            action="daemon_not_started",
            kind=error.kind,
            reason=str(error),
        )
        starter.failed(error)
        raise
    except Exception as error:
        if (found := shortage.of(error)) is None:
            raise
        exhausted = Exhausted(*found)
        log.exception(
            "The daemon cannot go on",
            action="daemon_exhausted",
            kind=exhausted.kind,
            reason=str(exhausted),
        )
        starter.failed(exhausted)
        raise exhausted from error
    return status
