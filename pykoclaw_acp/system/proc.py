"""Files of proc(5) of a process. The standard library only."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Final

STATE: Final = 0  # fields of `stat`
PARENT: Final = 1
GROUP: Final = 2
SESSION: Final = 3
FLAGS: Final = 6
START: Final = 19  # clock ticks after boot
ENVIRONMENT_END: Final = 48  # address; 0 until execve(2) is over, and for processes of others


def stat(pid: int) -> tuple[str, list[str]]:
    """Name of the process, and the fields after it; raises OSError, ProcessLookupError without such
    a process.
    """
    raw = read(f"/proc/{pid}/stat")
    name, end, rest = raw.partition(b"(")[2].rpartition(b")")
    if not end:
        raise ProcessLookupError(f"there is no process {pid}")
    return name.decode(errors="replace"), rest.decode().split()


def has_open(process: str, file: os.stat_result) -> bool:
    """Whether the process, a directory such as `/proc/1`, has this file open; raises OSError if its
    descriptors cannot be seen, as after its end.
    """
    folder = f"{process}/fd"
    for name in os.listdir(folder):
        try:
            if os.path.samestat(os.stat(f"{folder}/{name}"), file):
                return True
        except PermissionError:
            raise
        except OSError:
            continue  # it was closed in between, or its disk is gone
    return False


def read(path: str) -> bytes:
    """Content of a file in /proc; raises OSError."""
    with open(path, "rb") as file:
        return file.read()
