"""The start of the fork server's process, which needs nothing that takes long to import."""

from __future__ import annotations

import functools
import importlib.util
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.link import readiness
from pykoclaw_acp.system import environment, shortage
from pykoclaw_acp.system.lineage import MARKS

LOG_NAME: Final = "workers.log"
Installation = tuple[tuple[int, ...] | None, ...]

LOG_FOLLOWS: Final = b"\n"  # an empty line, with the log's descriptor beside it


@dataclass(frozen=True, slots=True)
class StartingForkServer:
    """A fork server that is starting, and our end of the socket on which it takes requests."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    installation: Installation = ()

    def end(self) -> None:
        """End it; it has no workers yet."""
        self.control.close()
        self.process.kill()
        self.process.wait()


def installation() -> Installation:
    """What tells the files that a fork server runs from: they change if a package is installed anew."""
    return tuple(_identity(path) for path in (sys.executable, *_packages()))


@functools.cache
def _packages() -> tuple[str, ...]:
    """The files with which our package and the SDK begin; the SDK is not imported."""
    found = (importlib.util.find_spec(name) for name in ("pykoclaw_acp", "claude_agent_sdk"))
    return tuple(spec.origin for spec in found if spec is not None and spec.origin is not None)


def _identity(path: str) -> tuple[int, ...] | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def begin_early(*, resident: bool) -> StartingForkServer | None:
    """Start the fork server of a server that starts, so that it imports the SDK meanwhile; None if
    that fails: a later start says why.
    """
    if shortage.lacking() is not None:
        return None
    try:
        return begin(resident=resident)
    except OSError:
        return None


def begin(*, resident: bool) -> StartingForkServer:
    """Start a fork server, which prints nothing until it has a log; raises OSError."""
    ours, theirs = socket.socketpair()
    try:
        installed = installation()
        return StartingForkServer(_start(theirs, resident=resident), ours, installed)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()


def hand_over(log: int, begun: StartingForkServer) -> None:
    """Give a fork server its log, before its first request; raises OSError, having ended it."""
    try:
        socket.send_fds(begun.control, [LOG_FOLLOWS], [log])
    except OSError:
        begun.end()
        raise


def _start(control: socket.socket, *, resident: bool) -> subprocess.Popen[bytes]:
    daemon = [str(os.getpid())] if resident else []
    # What is a session's matter comes with the launch of its worker.
    ours = {readiness.VARIABLE, readiness.LOCK}
    withheld = MARKS | ours | environment.of_one_client(os.environ)
    return subprocess.Popen(
        [sys.executable, "-m", "pykoclaw_acp.worker.forkserver", str(control.fileno()), *daemon],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={name: value for name, value in os.environ.items() if name not in withheld},
        pass_fds=[control.fileno()],
        start_new_session=True,
    )
