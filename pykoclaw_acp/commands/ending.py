"""`pykoclaw-acp stop` and `pykoclaw-acp restart`: the end of a daemon, with what it runs or without."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import Final

import click

from pykoclaw_acp.commands import show, workers
from pykoclaw_acp.commands.daemon import ask
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning
from pykoclaw_acp.front import places

END_WAIT: Final = 60.0  # s; for a daemon that commits what it has received
START_WAIT: Final = 60.0  # s; for one that recovers


def stop() -> None:
    """End all workers, then the daemon. Raises DaemonNotRunning, and CommandFailed for one that does not end."""
    pid = _daemon()
    workers.stop(None, now=False)
    _end(pid)
    click.echo(f"The daemon (pid {pid}) has ended. A client that is open starts the next one.")


def restart() -> None:
    """End the daemon, and have the next one go on with its workers and clients. Raises as `stop`."""
    pid = _daemon()
    _end(pid)
    status = ask("status", timeout=START_WAIT)
    running = show.count(len(status["workers"]), "worker")
    click.echo(f"The daemon (pid {pid}) has ended; pid {status['daemon']['pid']} goes on with {running}.")


def _daemon() -> int:
    where = places.Places.find()
    holder = places.lock_holder(where.data)
    if holder is None:
        raise DaemonNotRunning(f"No daemon runs for the data directory {where.data}.")
    pid, socket = holder
    if socket is None:
        raise CommandFailed(f"Process {pid} is `serve --stdio`: it ends with its client, and its turns with it.")
    return pid


def _end(pid: int) -> None:
    """SIGTERM, and wait; another process that gets the same pid in the meantime is left alone."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            if pid != _daemon():
                raise CommandFailed("Another daemon has taken over just now. See `pykoclaw-acp status`.")
            signal.pidfd_send_signal(process, signal.SIGTERM)
            if not select.select([process], [], [], END_WAIT)[0]:
                raise CommandFailed(f"The daemon (pid {pid}) does not end: `kill -9 {pid}`. Its turns go on.")
        finally:
            os.close(process)
