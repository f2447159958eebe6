"""Identity of a client's process, unique for ever: pid, start time, boot, PID namespace."""

from __future__ import annotations

import os

from pykoclaw_acp.system import proc

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Any


def parent() -> dict[str, Any] | None:
    """The parent process; None if it is gone, or in another PID namespace."""
    return of(os.getppid())


def own() -> dict[str, Any] | None:
    """Identity of the calling process."""
    return of(os.getpid())


def of(pid: int) -> dict[str, Any] | None:
    """The process with this pid; None if there is none."""
    try:
        return {
            "pid": pid,
            "start": int(proc.stat(pid)[1][proc.START]),
            "boot": proc.read("/proc/sys/kernel/random/boot_id").decode().strip(),
            "space": os.stat("/proc/self/ns/pid").st_ino,
        }
    except (OSError, ValueError):
        return None


def is_gone(process: dict[str, Any]) -> bool:
    """Whether the process that these are the facts of has ended; false where that cannot be seen
    from here.
    """
    here = own()
    if here is None or any(process.get(key) != here[key] for key in ("boot", "space")):
        return False
    try:
        fields = proc.stat(process["pid"])[1]
        return int(fields[proc.START]) != process["start"] or fields[proc.STATE] in "ZX"
    except (OSError, ValueError):
        return True
