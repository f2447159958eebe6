"""`serve`: the resident daemon. Clients connect to its socket; its workers outlive it, and the next
one adopts them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
from collections.abc import Callable
from typing import Final

import structlog

from pykoclaw_acp import terminal
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import Exhausted, RestartWanted, StartupError
from pykoclaw_acp.link import readiness
from pykoclaw_acp.logging import setup as logging
from pykoclaw_acp.pool.forkserver_process import StartingForkServer
from pykoclaw_acp.system import allocator, shortage, threads
from pykoclaw_acp.system.lineage import MARKS

log: Final = structlog.get_logger()


class _Starter:
    """Reports to the front that started this daemon (link/readiness.py)."""

    def __init__(self) -> None:
        self._pipe = _inherited(readiness.VARIABLE)
        self._lock = _inherited(readiness.LOCK)

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
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _inherited(variable: str) -> int | None:
    """The descriptor that the front has named in this variable; not passed on."""
    named = os.environ.pop(variable, "")
    descriptor = int(named) if named.isdecimal() else None
    if descriptor is not None:
        os.set_inheritable(descriptor, False)
    return descriptor


def main(load: Callable[[], Settings], begun: StartingForkServer | None = None) -> int:
    """Serve until SIGTERM; returns the exit status. Raises StartupError, also that of `load`.

    `begun`: the fork server, if it was started already, which imports the SDK meanwhile.

    Does not return if a database was abandoned: SQLite would close its files at the end of the
    interpreter, and delete the write-ahead log of whatever is at their path by then.
    """
    try:
        status = _main(load, begun)
    except BaseException as error:
        if _abandoned():
            os._exit(_complain(error))
        raise
    if _abandoned():
        os._exit(status)
    threads.leave(status)
    return status


def _abandoned() -> bool:
    store = sys.modules.get("pykoclaw_acp.store.database")  # not imported: it was not needed
    return store is not None and bool(store.ABANDONED)


def _complain(error: BaseException) -> int:
    """What the program says of an error that ends it; returns the exit status."""
    if isinstance(error, StartupError):
        terminal.complain(*f"pykoclaw-acp: {error}".split("\n"))
        return error.exit_code
    log.error("The daemon failed", action="daemon_failed", exc_info=error)
    return 1


def _main(load: Callable[[], Settings], begun: StartingForkServer | None) -> int:
    starter = _Starter()
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
        _run(settings, starter, begun)
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


def _run(settings: Settings, starter: _Starter, begun: StartingForkServer | None) -> None:
    from pykoclaw_acp.server.lag import run
    from pykoclaw_acp.server.resident import Daemon

    run(lambda lag: Daemon(settings, starter.ready, lag, begun).serve())
