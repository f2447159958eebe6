"""Facts about processes, from /proc and pidfds (Linux).

They are not known while this process is out of file descriptors: OSError is raised then.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from pykoclaw_acp.system import proc
from pykoclaw_acp.system.lineage import NO_DESCRIPTORS

_PR_SET_NAME: Final = 15
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PF_EXITING: Final = 0x4  # proc(5) stat field 9, from the kernel's sched.h


def become_subreaper() -> None:
    """Make this process the parent of orphaned descendants (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def set_name(name: str) -> None:
    """Set the name of this process in `ps` and `top`: up to 15 bytes (prctl(2), proc(5) comm)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def name(pid: int) -> str | None:
    """Name of the process; None without such a process."""
    try:
        return proc.stat(pid)[0]
    except OSError as error:
        check_descriptors(error)
        return None


def die_with_parent(wanted: bool) -> None:
    """Set whether this process gets SIGKILL when its parent ends (prctl(2)); without effect if the
    parent has ended.
    """
    ctypes.CDLL(None, use_errno=True).prctl(
        _PR_SET_PDEATHSIG, signal.SIGKILL if wanted else 0, 0, 0, 0
    )


def boot_id() -> str:
    """Id of this boot: together with pid and start time it identifies a process uniquely."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Start time in clock ticks after boot (proc(5) stat field 22); None without such a process."""
    fields = _stat(pid)
    return int(fields[proc.START]) if fields else None


def state(pid: int) -> str | None:
    """State letter: `R`, `S`, `Z`…; None without such a process."""
    fields = _stat(pid)
    return fields[proc.STATE] if fields else None


def ending(pid: int) -> bool:
    """Whether the process is dead or exiting; an exit takes some 10 ms, in which its files stay
    open.
    """
    fields = _stat(pid)
    return (
        fields is None
        or fields[proc.STATE] in ("Z", "X")
        or bool(int(fields[proc.FLAGS]) & _PF_EXITING)
    )


def parent(pid: int) -> int | None:
    """Pid of the parent; None without such a process."""
    fields = _stat(pid)
    return int(fields[proc.PARENT]) if fields else None


def children(pid: int) -> list[int]:
    """Pids of the direct children; raises OSError for want of descriptors."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError as error:
        check_descriptors(error)
        return found
    for task in tasks:
        try:
            found.extend(map(int, proc.read(f"/proc/{pid}/task/{task}/children").split()))
        except OSError as error:
            check_descriptors(error)
    return found


def reap_orphans(own: frozenset[int] = frozenset()) -> None:
    """Reap zombies that were reparented to this subreaper.

    Pids in `own`, and children in this process's session, are left to whoever waits for them: tools
    run in sessions of their own. What a child with a process group of its own left there is reaped.
    Without file descriptors none is: the next call reaps them.
    """
    with suppress(OSError):
        _reap_orphans(own)


def _reap_orphans(own: frozenset[int]) -> None:
    session, group = os.getsid(0), os.getpgrp()
    for pid in children(os.getpid()):
        fields = _stat(pid)
        if (
            fields
            and fields[proc.STATE] == "Z"
            and (
                int(fields[proc.SESSION]) != session or int(fields[proc.GROUP]) not in (group, pid)
            )
            and pid not in own
        ):
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def _stat(pid: int) -> list[str] | None:
    try:
        return proc.stat(pid)[1]
    except OSError as error:
        check_descriptors(error)
        return None


def check_descriptors(error: OSError) -> None:
    """Raise an error of a look into /proc if it says nothing about the process: for want of
    descriptors.
    """
    if error.errno in NO_DESCRIPTORS:
        raise error
