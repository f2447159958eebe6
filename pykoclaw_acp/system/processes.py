"""Facts about processes, from /proc and pidfds (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import Final

from pykoclaw_acp.system import proc

_PR_SET_NAME: Final = 15
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PF_EXITING: Final = 0x4  # proc(5) stat field 9, from the kernel's sched.h


def become_subreaper() -> None:
    """Orphans below this process become its children, so that it can find and end them (prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def set_name(name: str) -> None:
    """What `ps` and `top` call this process: up to 15 bytes (prctl(2), proc(5) comm)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def name(pid: int) -> str | None:
    """What the process is called; None if there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


def die_with_parent(wanted: bool) -> None:
    """Whether this process gets SIGKILL when its parent ends (prctl(2)); one that has ended already counts not."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL if wanted else 0, 0, 0, 0)


def boot_id() -> str:
    """Changes at each boot: with it, a pid and its start time name one process for ever."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which the process started (proc(5) stat field 22); None if there is none."""
    fields = _stat(pid)
    return int(fields[proc.START]) if fields else None


def state(pid: int) -> str | None:
    """`R`, `S`, `Z`…; None if there is no such process."""
    fields = _stat(pid)
    return fields[proc.STATE] if fields else None


def ending(pid: int) -> bool:
    """The process is dead, or dying: the end of one takes some 10 ms, and until then its files stay open."""
    fields = _stat(pid)
    return fields is None or fields[proc.STATE] in ("Z", "X") or bool(int(fields[proc.FLAGS]) & _PF_EXITING)


def parent(pid: int) -> int | None:
    """The parent's pid; None if there is no such process."""
    fields = _stat(pid)
    return int(fields[proc.PARENT]) if fields else None


def children(pid: int) -> list[int]:
    """Pids of the direct children."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found.extend(int(child) for child in task.read_text().split())
        except OSError:
            continue
    return found


def reap_orphans(own: frozenset[int] = frozenset()) -> None:
    """Collect dead orphans that were given to this subreaper.

    Left alone are the pids in `own`, and children in this process's session: some library waits for those, while
    tools run in sessions of their own.
    """
    session = os.getsid(0)
    for pid in children(os.getpid()):
        fields = _stat(pid)
        if fields and fields[proc.STATE] == "Z" and int(fields[proc.SESSION]) != session and pid not in own:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def _stat(pid: int) -> list[str] | None:
    try:
        return proc.stat(pid)[1]
    except OSError:
        return None
