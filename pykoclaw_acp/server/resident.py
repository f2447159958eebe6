"""The resident daemon's life: start-up, clients, shutdown, and again if the database is opened
anew.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from pykoclaw_acp import __version__
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import RestartWanted, StartupError
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.logging import setup as logging
from pykoclaw_acp.pool.forkserver_process import StartingForkServer
from pykoclaw_acp.server import collecting, health
from pykoclaw_acp.server.app import App
from pykoclaw_acp.server.clients import Clients
from pykoclaw_acp.server.lag import LoopLag
from pykoclaw_acp.server.listening import Listening
from pykoclaw_acp.system.systemd import Notifier, inherited_sockets

# s that systemd lets a start take: a huge database is migrated, never killed over it
RECOVERY_WAIT: Final = 600.0
SHUTDOWN_WAIT: Final = 20.0  # s; systemd kills after 30 (TimeoutStopSec)
LOG_LOOK: Final = 3600.0  # s; how often the log's size is looked at

log: Final = structlog.get_logger()


class Daemon:
    """The resident daemon. `ready` is called when clients can connect; `begun` is its fork server,
    if that was started already.
    """

    def __init__(
        self,
        settings: Settings,
        ready: Callable[[], None],
        lag: LoopLag,
        begun: StartingForkServer | None,
    ) -> None:
        self._settings = settings
        self._ready = ready
        self._lag = lag
        self._begun = begun
        self._places = Places(settings.data, settings.state, settings.socket)
        self._notifier = Notifier.from_environment()
        self._listening = Listening(
            inherited_sockets(), self._places.socket, lost=self._notifier.status
        )
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
                    await self._leave()
        finally:
            self._listening.end()

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)

    async def _startup(self) -> None:
        """Open the database, recover, and accept clients."""
        begun, self._begun = self._begun, None
        self._app = await App.start(self._settings, self._places, resident=True, begun=begun)
        try:
            self._listening.begin()
        except StartupError:
            await self._app.detach()
            raise
        self._clients = Clients(self._app, self._places, self._lag)
        self._accepting = _start(self._listening.serve(self._clients.accept), "accept")
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
            _start(collecting.run(self._lag), "collect garbage"),
            _start(self._app.run_tasks(), "run scheduled tasks"),
        ]
        self._app.lock.serves(True)
        self._ready()
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
                [stopping, self._reopening, self._watching, self._accepting],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stopping.cancel()
        if self._watching.done():
            self._watching.result()
        if self._accepting.done() and (error := self._accepting.exception()) is not None:
            log.error("The socket failed", action="socket_failed", exc_info=error)
            raise RestartWanted("The daemon can take no more clients.") from error
        if not self._stop.is_set():
            log.warning("The database is opened anew", action="database_reopened")

    async def _leave(self) -> None:
        """`_shutdown`, or the end of the process if that hangs, as with a database that does not
        answer: nothing is lost that a new daemon does not find.
        """
        leaving = _start(self._shutdown(), "shutdown")
        await asyncio.wait([leaving], timeout=SHUTDOWN_WAIT)
        if not leaving.done():
            log.error("The daemon cannot close its files and ends", action="daemon_gave_up")
            faulthandler.dump_traceback()
            os._exit(RestartWanted.exit_code)
        leaving.result()

    async def _shutdown(self) -> None:
        """Let go of clients, workers and the database; clients may wait if the database is opened
        anew.
        """
        for task in (self._accepting, self._watching, *self._side_tasks, self._reopening):
            task.cancel()
        await asyncio.wait([self._accepting])
        self._app.lock.serves(False)
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
