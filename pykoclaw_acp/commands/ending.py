"""`pykoclaw-acp stop` and `pykoclaw-acp restart`: the end of a daemon, with what it runs or without."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show, workers
from pykoclaw_acp.commands.daemon import ask, require_operator
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.link import places

END_WAIT: Final = 60.0  # s; for a daemon that commits what it has received
START_WAIT: Final = 60.0  # s; for one that recovers


def stop() -> None:
    """End all workers, then the daemon. Raises DaemonNotRunning, and CommandFailed for one that does not end.

    While the database cannot be written, the workers go on: the ends of their turns could not be stored.
    """
    pid = _daemon()
    database = ask("status", start=False)["database"]
    if database.get("condition", "writable") == "writable":  # a daemon of a version before does not say
        workers.stop(None, now=False)
    else:
        terminal.line(f"The database cannot be written. {database['reason']}")
        terminal.line("Workers go on without the daemon, and keep what Claude says; the next daemon takes them over.")
    end(pid)
    terminal.line(f"The daemon (pid {pid}) has ended. A client that is open starts the next one.")


def restart() -> None:
    """End the daemon, and have the next one go on with its workers and clients. Raises as `stop`."""
    require_operator()
    pid = _daemon()
    end(pid)
    status = ask("status", timeout=START_WAIT)
    running = show.count(len(status["workers"]), "worker")
    terminal.line(f"The daemon (pid {pid}) has ended; pid {status['daemon']['pid']} goes on with {running}.")


def _daemon() -> int:
    where = places.Places.find()
    holder = places.lock_holder(where.data)
    if holder is None:  # or the data directory was moved, and its daemon serves at the place that it had
        return int(ask("status", start=False)["daemon"]["pid"])
    pid, socket = holder
    if socket is None:
        raise CommandFailed(f"Process {pid} is `serve --stdio`: it ends with its client, and its turns with it.")
    return pid


def end(pid: int) -> None:
    """SIGTERM to the daemon, and wait; another process that gets the same pid in the meantime is left alone."""
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
