"""Memory of processes, from /proc (Linux)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from pykoclaw_acp.system import proc, processes

_PSS: Final = re.compile(rb"^Pss: +(\d+) kB$", re.MULTILINE)


CGROUPS: Final = Path("/sys/fs/cgroup")
KILLED: Final = (
    "Claude's process was ended while the kernel ended processes for lack of memory. End other programs or workers, or "
    "raise the limit (`MemoryMax=` of the unit)."
)


def kills() -> int:
    """Number of processes that the kernel's OOM killer ended: in our cgroup, else on
    the machine.
    """
    try:
        path = proc.read("/proc/self/cgroup").rpartition(b"0::/")[2].partition(b"\n")[0]
        counted = (CGROUPS / os.fsdecode(path) / "memory.events").read_text()
    except OSError:
        try:
            counted = Path("/proc/vmstat").read_text()
        except OSError:
            return 0
    return sum(
        int(line.split()[1]) for line in counted.splitlines() if line.startswith("oom_kill ")
    )


class KillWatch:
    """Whether the OOM killer ended a process lately: since the last call of `renew` but one, as what
    was killed just before a call may be missed after it.
    """

    def __init__(self) -> None:
        self._before = self._latest = kills()

    def renew(self) -> None:
        """What was killed until the call before has nothing to do with what dies from now on."""
        self._before, self._latest = self._latest, kills()

    @property
    def lately(self) -> bool:
        """Whether a process was ended."""
        return kills() > self._before


def of_process(pid: int) -> int | None:
    """Proportional set size in bytes (proc(5) smaps_rollup); None if the process is gone."""
    try:
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_bytes())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def of_tree(pid: int) -> int | None:
    """Proportional set size of a process and its descendants, in bytes; None if the process is
    gone.
    """
    own = of_process(pid)
    if own is None:
        return None
    return own + sum(of_tree(child) or 0 for child in processes.children(pid))
