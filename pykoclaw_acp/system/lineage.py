"""Which worker a process descends from, by its environment and that of its ancestors (proc(5))."""

from __future__ import annotations

import errno
import os
import time

from pykoclaw_acp.system import proc

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final, TypeVar

    T = TypeVar("T")

# in the environment of a worker's descendants, not of the worker itself
WORKER: Final = "PYKOCLAW_WORKER"
COOKIE: Final = f"{WORKER}=".encode()
# Not passed on to a daemon that is started from a worker's tool
MARKS: Final = frozenset({WORKER, "CLAUDE_CODE_TMPDIR"})
WORKER_NAME: Final = "pykoclaw-worker"  # process name of workers

NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)

_TRIES: Final = 5  # attempts, as the process tree may change meanwhile
_MOST: Final = 1000  # ancestors
_EXEC_LOOKS: Final = 100
_EXEC_PAUSE: Final = 0.002  # s


class Process:
    """Snapshot of a process: `start` in clock ticks after boot, `cookie` of the worker that it
    descends from.
    """

    __slots__ = ("cookie", "name", "parent", "pid", "start")

    def __init__(self, pid: int, parent: int, start: int, name: str, cookie: str | None) -> None:
        self.pid = pid
        self.parent = parent
        self.start = start
        self.name = name
        self.cookie = cookie


def ancestry(pid: int) -> list[Process]:
    """The process and its ancestors, as far as they are visible; empty if the process is gone.

    Raises OSError if this process is out of file descriptors.
    """
    found: list[Process] = []
    for _ in range(_TRIES):
        found = _walk(pid)
        # Start over if a process was reparented, or its parent's pid was reused.
        if all(_same(one) for one in found):
            break
    return found


def is_inside(pid: int) -> bool:
    """Whether the process descends from a worker of any daemon."""
    return any(one.cookie is not None or one.name == WORKER_NAME for one in ancestry(pid))


def cookie(pid: int) -> str | None:
    """Cookie of the worker that the process descends from; None without one, or if it cannot be
    read. Raises OSError for want of descriptors.
    """
    return variable(pid, COOKIE)


def variable(pid: int, name: bytes) -> str | None:
    """Value of a variable in the process's initial environment; `name` ends with `=`. Raises OSError
    for want of descriptors.
    """
    for one in _environment(pid).split(b"\0"):
        if one.startswith(name):
            return one[len(name) :].decode(errors="replace")
    return None


def _environment(pid: int) -> bytes:
    """The initial environment. That of a process in the middle of execve(2) reads as empty: it is
    read again.
    """
    for _ in range(_EXEC_LOOKS):
        found = _seen(lambda: proc.read(f"/proc/{pid}/environ"), b"")
        if found:
            return found
        if not _begins_program(pid):
            break
        time.sleep(_EXEC_PAUSE)
    return _seen(lambda: proc.read(f"/proc/{pid}/environ"), b"")  # it may have begun in between


def _begins_program(pid: int) -> bool:
    """Whether the process is in the middle of execve(2). Threads of the kernel, zombies and
    processes of others show no program.
    """
    found = _seen(lambda: (os.readlink(f"/proc/{pid}/exe"), proc.stat(pid)), None)
    return found is not None and found[1][1][proc.ENVIRONMENT_END] == "0"


def _walk(pid: int) -> list[Process]:
    found: list[Process] = []
    while pid > 0 and len(found) < _MOST:
        stat = _stat(pid)
        if stat is None:
            break
        name, parent, start = stat
        found.append(Process(pid, parent, start, name, variable(pid, COOKIE)))
        pid = parent
    return found


def _same(process: Process) -> bool:
    stat = _stat(process.pid)
    return stat is not None and stat[1:] == (process.parent, process.start)


def _stat(pid: int) -> tuple[str, int, int] | None:
    found = _seen(lambda: proc.stat(pid), None)
    if found is None:
        return None
    name, fields = found
    return name, int(fields[proc.PARENT]), int(fields[proc.START])


def _seen(look: Callable[[], T], otherwise: T) -> T:
    """Result of `look`, or the default if it fails; raises OSError if this process is out of
    descriptors.
    """
    try:
        return look()
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            raise
        return otherwise
