"""The start of the fork server's process, which needs nothing that takes long to import."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pykoclaw_acp.system import environment
from pykoclaw_acp.system.lineage import MARKS

LOG_NAME: Final = "workers.log"


@dataclass(frozen=True, slots=True)
class Begun:
    """A fork server that is starting, and our end of the socket on which it takes requests."""

    process: subprocess.Popen[bytes]
    control: socket.socket


def begin_early(directory: Path) -> Begun | None:
    """Start the fork server of a resident daemon whose directory nobody has looked at yet; None if
    that is not certainly its own, or anything else is not as it should be: the daemon says why.
    """
    try:
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return None
        return begin(directory / LOG_NAME, resident=True)
    except OSError:
        return None


def begin(log: Path, *, resident: bool) -> Begun:
    """Start a fork server; raises OSError. `log` is for what it and its workers print."""
    ours, theirs = socket.socketpair()
    try:
        return Begun(_start(log, theirs, resident=resident), ours)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()


def _start(log: Path, control: socket.socket, *, resident: bool) -> subprocess.Popen[bytes]:
    daemon = [str(os.getpid())] if resident else []
    # What is a session's matter comes with the launch of its worker.
    withheld = MARKS | environment.of_one_client(os.environ)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pykoclaw_acp.worker.forkserver",
                str(control.fileno()),
                *daemon,
            ],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd="/",
            env={name: value for name, value in os.environ.items() if name not in withheld},
            pass_fds=[control.fileno()],
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
