"""The report of a starting daemon to the front that started it, on a pipe: `ready`, or the failure.

A failure is two lines in one write: `failed <exit status> <message>` and `kind <kind>`. Older
daemons do not write the kind, and older fronts do not read it. Standard library only.
"""

from __future__ import annotations

from pykoclaw_acp.error_kinds import ErrorKind

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Final

VARIABLE: Final = "PYKOCLAW_READY_FD"  # of the environment: the descriptor of the pipe
LOCK: Final = "PYKOCLAW_START_LOCK_FD"  # of the lock on starting daemons, until it has reported
READY: Final = "ready"
NOT_EXECUTED: Final = 127  # status of a daemon whose program cannot be executed, as in a shell
UNKNOWN: Final = ErrorKind.DAEMON_NOT_STARTED  # the kind of a failure that names none

_FAILED: Final = "failed "
_KIND: Final = b"kind "


def ready() -> bytes:
    """The report of a daemon that clients can connect to."""
    return READY.encode() + b"\n"


def failed(status: int, message: str, kind: ErrorKind) -> bytes:
    """The report of a daemon that cannot start."""
    words = " ".join(message.split())
    return f"{_FAILED}{status} {words}\n".encode(errors="replace") + _KIND + kind.encode() + b"\n"


def failure(line: str) -> tuple[int, str]:
    """Exit status and message of a failure's first line."""
    status, _, message = line.removeprefix(_FAILED).partition(" ")
    return int(status) if status.isdigit() else 1, message


def kind(written: bytes) -> ErrorKind:
    """The kind of a failure, from all that was written."""
    line = written.partition(b"\n")[2].partition(b"\n")[0]
    name = line.removeprefix(_KIND) if line.startswith(_KIND) else b""
    return ErrorKind(name.decode("ascii", "replace") or UNKNOWN)
