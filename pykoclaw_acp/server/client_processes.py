"""Identity of a client's process as a string, and whether it is alive.

`<boot id>:<PID namespace>:<pid>:<start time>` names one process for ever. Of one of another boot or
namespace, perhaps in a container, nothing can be said from here; neither of a client that nobody
can name.
"""

from __future__ import annotations

from functools import cache

import msgspec

from pykoclaw_acp.link import client_process
from pykoclaw_acp.system import processes


class _Process(msgspec.Struct, frozen=True):
    pid: int
    start: int
    boot: str
    space: int


def told(process: msgspec.Raw) -> str | None:
    """A process that a front reports, as its parent; None if it cannot be decoded."""
    try:
        return _words(msgspec.json.decode(process, type=_Process))
    except (msgspec.MsgspecError, UnicodeError):
        return None


def of(pid: int) -> str | None:
    """The process with this pid; None if it cannot be seen from here."""
    found = client_process.of(pid)
    return None if found is None else _words(msgspec.convert(found, _Process))


def parent_of(pid: int) -> str | None:
    """The parent of the process with this pid; None if it cannot be seen from here."""
    try:
        parent = processes.parent(pid) if pid else None
    except OSError:  # no descriptor is left
        return None
    return of(parent) if parent else None


def alive(words: str) -> bool | None:
    """Whether the process is alive; None if that cannot be known."""
    boot, _, rest = words.partition(":")
    space, _, process = rest.partition(":")
    pid, _, start = process.partition(":")
    here = _here()
    if (
        here is None
        or (boot, space) != (here.boot, str(here.space))
        or not (pid.isdecimal() and start.isdecimal())
    ):
        return None
    try:
        return processes.start_time(int(pid)) == int(start) and not processes.ending(int(pid))
    except OSError:  # no descriptor is left
        return None


def _words(process: _Process) -> str:
    return f"{process.boot}:{process.space}:{process.pid}:{process.start}"


@cache
def _here() -> _Process | None:
    """What client processes are compared with: where this one runs; None if that is unknown."""
    found = client_process.own()
    return None if found is None else msgspec.convert(found, _Process)
