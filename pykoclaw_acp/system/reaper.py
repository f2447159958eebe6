"""The reaper: ends processes that dead workers left behind, found by the cookie in their
environment.

A tool may start daemons in sessions of their own; the environment is what all descendants inherit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.system import lineage, processes

GIVE_UP: Final = 10.0  # s
DESCENDANTS: Final = 2.0  # s, less than a daemon gives a worker to end
_POLL: Final = 0.02  # s


@dataclass(frozen=True, slots=True)
class Stray:
    """A process that belongs to a worker; `start_time` protects against a reused pid."""

    pid: int
    start_time: int


def find(belongs: Callable[[str], bool], spared: Collection[int] = ()) -> list[Stray]:
    """Live processes with a cookie for which `belongs` holds, except the `spared` pids; raises OSError
    for want of descriptors.

    A worker itself has no cookie, unless its fork server was started below another worker.
    """
    strays: list[Stray] = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid == os.getpid() or pid in spared:
            continue
        mark = lineage.cookie(pid)
        started = processes.start_time(pid)
        if mark is None or started is None or processes.state(pid) in ("Z", "X"):
            continue
        if belongs(mark):
            strays.append(Stray(pid, started))
    return strays


async def end(
    belongs: Callable[[str], bool], grace: float, spared: Collection[int] = ()
) -> list[Stray]:
    """End them: SIGTERM, after `grace` (s) SIGKILL, until none is left. Returns those found at
    first.
    """
    return await asyncio.to_thread(end_now, belongs, grace, spared)


def end_now(
    belongs: Callable[[str], bool], grace: float, spared: Collection[int] = ()
) -> list[Stray]:
    """Blocking variant of `end`."""
    return _end(lambda: find(belongs, spared), grace)


def end_descendants(grace: float, spared: int | None = None) -> list[Stray]:
    """End all that came from this process, which is a subreaper, but the process `spared` and what came
    from that; blocking: SIGTERM, after `grace` (s) SIGKILL, until none is left, or for a while. Returns
    those found at first.
    """
    return _end(lambda: _descendants(spared), grace, DESCENDANTS)


def _descendants(spared: int | None) -> list[Stray]:
    pids = [os.getpid()]
    for pid in pids:
        pids += [child for child in processes.children(pid) if child != spared]
    found = ((pid, processes.start_time(pid)) for pid in pids[1:] if _can_be_ended(pid))
    strays = [Stray(pid, started) for pid, started in found if started is not None]
    return [one for one in strays if _alive(one)]


def _can_be_ended(pid: int) -> bool:
    """Whether this process may send it a signal: not to one of another user, as of sudo."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def end_these(strays: Sequence[Stray], grace: float) -> None:
    """End these processes, blocking: SIGTERM, after `grace` (s) SIGKILL."""
    _end(lambda: [one for one in strays if _alive(one)], grace)


def _end(look: Callable[[], list[Stray]], grace: float, give_up: float = GIVE_UP) -> list[Stray]:
    begun = time.monotonic()
    until = begun + grace + give_up
    first = strays = _found(look, until)
    told: set[Stray] = set()
    while strays and time.monotonic() < until:
        late = time.monotonic() - begun > grace
        for stray in strays:
            if late or stray not in told:
                with contextlib.suppress(OSError):  # no descriptor is left: tried again
                    send(stray.pid, stray.start_time, signal.SIGKILL if late else signal.SIGTERM)
                    told.add(stray)
        time.sleep(_POLL)
        strays = _found(look, until)
    return first


def _found(look: Callable[[], list[Stray]], until: float) -> list[Stray]:
    while True:
        try:
            return look()
        except OSError as error:
            if error.errno not in lineage.NO_DESCRIPTORS or time.monotonic() >= until:
                raise
        time.sleep(_POLL)  # others may close theirs


def _alive(stray: Stray) -> bool:
    try:
        return processes.start_time(stray.pid) == stray.start_time and processes.state(
            stray.pid
        ) not in ("Z", "X", None)
    except OSError:  # no descriptor is left: it may be
        return True


def send(pid: int, started: int, number: signal.Signals) -> None:
    """Send a signal by pidfd; without effect if the process is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        pidfd = os.pidfd_open(pid)
        try:
            if processes.start_time(pid) == started:
                signal.pidfd_send_signal(pidfd, number)
        finally:
            os.close(pidfd)
