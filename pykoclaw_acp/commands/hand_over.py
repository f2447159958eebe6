"""`pykoclaw-acp hand-over`: stop a daemon that a client has started, for the installer of the
systemd units.

It runs as the owner of the data directory.
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

LOCK_WAIT: Final = 60.0  # s; a client may be starting a daemon
LOCK_PAUSE: Final = 0.05  # s


def main(but: int) -> None:
    """Stop the daemon, unless its pid is `but`, and block starts by clients until standard input
    ends.

    Prints `none`, or `found <pid>` and `ended <pid>`. Raises CommandFailed.
    """
    where = places.Places.find()
    holder = places.lock_holder(where.data)
    if holder is None or holder[0] == but:
        terminal.line("none")
        return
    pid, socket = holder
    if socket is None:
        raise CommandFailed(
            f"A client's own server (pid {pid}) uses {where.data}. End that client first."
        )
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
            raise CommandFailed(
                f"A client has been starting a daemon for {LOCK_WAIT:g} s. See `pykoclaw-acp doctor`."
            )
        time.sleep(LOCK_PAUSE)
    return lock
