"""`pykoclaw-acp hand-over`: stop a daemon that a client has started, for the installer of the
systemd units.

It runs as the owner of the data directory.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import stopping
from pykoclaw_acp.commands.daemon import require_operator
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.link import places


def main(but: int) -> None:
    """Stop the daemon, unless its pid is `but`, and block starts by clients until standard input
    ends.

    Prints `found <pid>` and `ended <pid>`, or `ended 0` if there is none. Raises CommandFailed.
    """
    where = places.Places.find()
    lock = stopping.keep_others_from_starting(where, partial(_end, where, but))
    try:
        # After `ended 0`, too, installers start the service, also those of versions before.
        terminal.line(f"ended {_end(where, but)}")
        while sys.stdin.buffer.read(1):
            pass
    finally:
        os.close(lock)


def _end(where: places.Places, but: int) -> int:
    """End the daemon; returns its pid, or 0."""
    holder = places.lock_holder(where.data)
    if holder is None or holder[0] == but:
        return 0
    pid, socket = holder
    if socket is None:
        raise CommandFailed(
            f"A client's own server (pid {pid}) uses {where.data}. End that client first."
        )
    require_operator()
    terminal.line(f"found {pid}")
    stopping.end(pid)
    return pid
