"""`pykoclaw-acp stop` and `pykoclaw-acp restart`."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from pykoclaw_acp import __version__, terminal
from pykoclaw_acp.commands import show, workers
from pykoclaw_acp.commands.daemon import ask, require_operator
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning, StartupError
from pykoclaw_acp.front.call import STARTS
from pykoclaw_acp.link import places
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.pool.unattended import unattended

END_WAIT: Final = 60.0  # s; the daemon commits what it has received
START_WAIT: Final = 60.0  # s; the next daemon may have to recover
READY_WAIT: Final = 10.0  # s; for a daemon that a client is starting
LOCK_WAIT: Final = 60.0  # s; once that daemon has ended, clients may start others
LOCK_PAUSE: Final = 0.01  # s; a client lets go for no longer than 0.02 s between two starts
GONE_WAIT: Final = 5.0  # s; for one that cannot be asked, as somebody else ends it just now
TAKEN_OVER: Final = "Another daemon has taken over just now. See `pykoclaw-acp status`."


def stop() -> None:
    """Stop all workers, then the daemon; also one that somebody else ends just now. Raises
    DaemonNotRunning, and CommandFailed if it does not exit.

    While the database is not writable, workers keep running: the ends of their turns could not be
    stored.
    """
    try:
        pid = _daemon()
    except DaemonNotRunning as error:
        raise DaemonNotRunning(" ".join([str(error), *_workers_left()])) from error
    try:
        _stop_workers(pid)
    except StartupError:
        if not _has_ended(pid):
            raise
        if places.lock_holder(places.Places.find().data) is not None:
            raise CommandFailed(TAKEN_OVER) from None
        workers.stop(None, now=False)  # a restart would have left them
    else:
        end(pid)
    terminal.line(f"The daemon (pid {pid}) has ended. A client that is open starts the next one.")


def _workers_left() -> list[str]:
    left = len(unattended(places.Places.find()).processes())
    if not left:
        return []
    go, them = ("goes", "it") if left == 1 else ("go", "them")
    return [
        f"{show.count(left, 'worker')} {go} on without it: `pykoclaw-acp workers stop` ends {them}."
    ]


def _stop_workers(pid: int) -> None:
    try:
        database = ask("status", start=False)["database"]
    except (CommandFailed, DaemonNotRunning) as error:
        nested = error.kind == ErrorKind.NESTED_CALLER
        if nested or places.lock_holder(places.Places.find().data) is None:
            raise
        raise type(error)(
            f"{error} `kill {pid}` ends it; its workers go on, and the next daemon takes them over."
        ) from error
    # Missing in the answer of an older daemon
    if database.get("condition", DatabaseState.WRITABLE) == DatabaseState.WRITABLE:
        workers.stop(None, now=False)
        return
    terminal.line(f"The database cannot be read and written as usual. {database['reason']}")
    terminal.line(
        "Workers go on without the daemon, and keep what Claude says; the next daemon takes them over."
    )


def restart() -> None:
    """Stop the daemon and start the next one, of this installation, which takes over workers and
    clients. Raises as `stop`, and CommandFailed if another version has been started.
    """
    require_operator()
    pid = _daemon()
    where = places.Places.find()
    lock = keep_others_from_starting(where, partial(_end_newest, where, pid))
    try:
        _end_newest(where, pid)
    except BaseException:
        os.close(lock)
        raise
    status = ask("status", timeout=START_WAIT, lock=lock)
    daemon = status["daemon"]
    running = show.count(len(status["workers"]), "worker")
    terminal.line(f"The daemon (pid {pid}) has ended; pid {daemon['pid']} goes on with {running}.")
    if daemon["version"] != __version__:
        raise CommandFailed(
            f"It is pykoclaw-acp {daemon['version']}, and this program is {__version__}: a service runs that"
            " installation. `pykoclaw-acp deploy install --program PATH` lets it run another one."
        )


def _end_newest(where: places.Places, pid: int) -> None:
    """End the daemon of now, which a client may have started since that of this pid was found."""
    holder = places.lock_holder(where.data)
    end(pid if holder is None else holder[0])


def keep_others_from_starting(where: places.Places, end_starting: Callable[[], object]) -> int:
    """The lock on starting daemons: no client starts one until it is closed. A client that has it
    waits for its daemon to be ready: `end_starting` ends one that hangs, and each one that clients
    start then. Raises CommandFailed.
    """
    places.secure_directory(where.directory, "PYKOCLAW_STATE")
    deadline = time.monotonic() + READY_WAIT + LOCK_WAIT
    while (lock := _lock(where, READY_WAIT)) is None:
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"Clients have been starting daemons for {LOCK_WAIT:g} s. See `pykoclaw-acp doctor`."
            )
        end_starting()
    return lock


def _lock(where: places.Places, wait: float) -> int | None:
    deadline = time.monotonic() + wait
    while (lock := places.try_lock(os.path.join(where.directory, places.SPAWN_LOCK))) is None:
        if time.monotonic() > deadline:
            return None
        time.sleep(LOCK_PAUSE)
    return lock


def _daemon() -> int:
    """Pid of the daemon; raises CommandFailed for a server that ends with its client."""
    where = places.Places.find()
    holder = places.lock_holder(where.data)
    if holder is None:  # or the data directory was moved while its daemon runs
        return int(ask("status", start=False)["daemon"]["pid"])
    pid, socket = holder
    if socket is None:
        raise CommandFailed(
            f"Process {pid} is `serve --stdio`: it ends with its client, and its turns with it."
        )
    return pid


def end(pid: int) -> None:
    """Send SIGTERM to the daemon by pidfd, and wait for its exit."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            if pid != _daemon():
                raise CommandFailed(TAKEN_OVER)
            signal.pidfd_send_signal(process, signal.SIGTERM)
            if not select.select([process], [], [], END_WAIT)[0]:
                where = places.Places.find()
                if not places.serves(where.data):
                    starts = STARTS.format(pid=pid, log=where.log)
                    raise CommandFailed(f"{starts} It ends then.")
                raise CommandFailed(
                    f"The daemon (pid {pid}) does not end: `kill -9 {pid}`. Its turns go on."
                )
        except DaemonNotRunning:  # it has let go of its data
            if not _has_ended(pid):
                raise
        finally:
            os.close(process)


def _has_ended(pid: int) -> bool:
    """Whether the process is gone, or soon is."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], GONE_WAIT)[0])
    finally:
        os.close(process)
