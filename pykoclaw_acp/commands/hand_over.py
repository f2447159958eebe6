"""`pykoclaw-acp hand-over`: how the installer of the units ends a daemon that a client has started.

It runs as the user whose data it is: what is there to be trusted is that user's alone.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import ending
from pykoclaw_acp.commands.daemon import require_operator
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.link import places

LOCK_WAIT: Final = 60.0  # s; for a client that is starting a daemon
LOCK_PAUSE: Final = 0.05  # s


def main(but: int) -> None:
    """End the daemon, unless it is the process `but`; then no client starts another until standard input ends.

    Says `none`, or `found <pid>` and `ended <pid>`. Raises CommandFailed.
    """
    where = places.Places.find()
    holder = places.lock_holder(where.data)
    if holder is None or holder[0] == but:
        terminal.line("none")
        return
    pid, socket = holder
    if socket is None:
        raise CommandFailed(f"A client's own server (pid {pid}) uses {where.data}. End that client first.")
    require_operator()
    terminal.line(f"found {pid}")
    lock = _keep_others_from_starting(where)
    try:
        ending.end(pid)
        terminal.line(f"ended {pid}")
        while sys.stdin.buffer.read(1):
            pass
    finally:
        os.close(lock)


def _keep_others_from_starting(where: places.Places) -> int:
    places.secure_directory(where.directory)
    deadline = time.monotonic() + LOCK_WAIT
    while (lock := places.try_lock(os.path.join(where.directory, places.SPAWN_LOCK))) is None:
        if time.monotonic() > deadline:
            raise CommandFailed(f"A client has been starting a daemon for {LOCK_WAIT:g} s. See `pykoclaw-acp doctor`.")
        time.sleep(LOCK_PAUSE)
    return lock
