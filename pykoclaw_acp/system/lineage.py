"""Below which worker a process runs: what its environment, and those of its ancestors, say (proc(5))."""

from __future__ import annotations

import errno

from pykoclaw_acp.system import proc

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final, TypeVar

    T = TypeVar("T")

WORKER: Final = "PYKOCLAW_WORKER"  # of everything that a worker starts; the worker itself has none
COOKIE: Final = f"{WORKER}=".encode()
MARKS: Final = frozenset({WORKER, "CLAUDE_CODE_TMPDIR"})  # what a daemon must not inherit from a worker's tool
WORKER_NAME: Final = "pykoclaw-worker"  # of a worker, in the lists of ps and top

NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)

_TRIES: Final = 5  # walks up a tree that changes meanwhile
_MOST: Final = 1000  # ancestors


class Process:
    """A process as it was seen: `start` in clock ticks after boot, `cookie` of the worker that it was started below."""

    __slots__ = ("cookie", "name", "parent", "pid", "start")

    def __init__(self, pid: int, parent: int, start: int, name: str, cookie: str | None) -> None:
        self.pid = pid
        self.parent = parent
        self.start = start
        self.name = name
        self.cookie = cookie


def ancestry(pid: int) -> list[Process]:
    """The process, its parent, and so on, as far as they can be seen from here; empty if it is gone.

    Raises OSError if this process has no descriptors left to look with.
    """
    found: list[Process] = []
    for _ in range(_TRIES):
        found = _walk(pid)
        # A process that was given to another parent, or whose parent's pid is another's now, is looked at again.
        if all(_same(one) for one in found):
            break
    return found


def is_inside(pid: int) -> bool:
    """Whether the process runs below a worker of whatever daemon."""
    return any(one.cookie is not None or one.name == WORKER_NAME for one in ancestry(pid))


def cookie(pid: int) -> str | None:
    """Of which worker the process is a child; None if it is none's, or cannot be looked at."""
    return variable(pid, COOKIE)


def variable(pid: int, name: bytes) -> str | None:
    """What the process was started with in its environment; `name` ends with `=`."""
    try:
        return _variable(pid, name)
    except OSError:
        return None


def _variable(pid: int, name: bytes) -> str | None:
    for one in _seen(lambda: proc.read(f"/proc/{pid}/environ"), b"").split(b"\0"):
        if one.startswith(name):
            return one[len(name) :].decode(errors="replace")
    return None


def _walk(pid: int) -> list[Process]:
    found: list[Process] = []
    while pid > 0 and len(found) < _MOST:
        stat = _stat(pid)
        if stat is None:
            break
        name, parent, start = stat
        found.append(Process(pid, parent, start, name, _variable(pid, COOKIE)))
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
    """What is seen, or this if it cannot be; raises OSError if no descriptor is left to look with."""
    try:
        return look()
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            raise
        return otherwise
