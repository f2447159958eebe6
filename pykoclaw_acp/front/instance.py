"""Which process a client is, so that a name is never another process's: pid, start time, boot, PID namespace."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Any, Final

_START_TIME: Final = 19  # field 22 of proc(5) stat, counted from the one after the name


def parent() -> dict[str, Any] | None:
    """The process that has started this one; None if it is gone, or not to be seen."""
    return of(os.getppid())


def own() -> dict[str, Any] | None:
    """This process."""
    return of(os.getpid())


def of(pid: int) -> dict[str, Any] | None:
    """The process of this pid; None if there is none."""
    try:
        stat = _read(f"/proc/{pid}/stat")
        return {
            "pid": pid,
            "start": int(stat[stat.rindex(b")") + 2 :].split()[_START_TIME]),
            "boot": _read("/proc/sys/kernel/random/boot_id").decode().strip(),
            "space": os.stat("/proc/self/ns/pid").st_ino,
        }
    except (OSError, ValueError):
        return None


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
