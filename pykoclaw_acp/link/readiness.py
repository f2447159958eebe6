"""What a daemon that starts writes to the pipe of the front that has started it: `ready`, or why it cannot serve.

A failure is two lines in one write: `failed <exit status> <message>` and `kind <kind>`. Older daemons do not write
the kind, and older fronts do not read it. Standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Final

VARIABLE: Final = "PYKOCLAW_READY_FD"  # of the environment: the descriptor of the pipe
READY: Final = "ready"
UNKNOWN: Final = "daemon_not_started"  # the kind of a failure that names none

_FAILED: Final = "failed "
_KIND: Final = b"kind "


def ready() -> bytes:
    """Clients can connect."""
    return READY.encode() + b"\n"


def failed(status: int, message: str, kind: str) -> bytes:
    """There will be no daemon."""
    words = " ".join(message.split())
    return f"{_FAILED}{status} {words}\n".encode(errors="replace") + _KIND + kind.encode() + b"\n"


def failure(line: str) -> tuple[int, str]:
    """Exit status and message of a line that is not `READY`."""
    status, _, message = line.removeprefix(_FAILED).partition(" ")
    return int(status) if status.isdigit() else 1, message


def kind(written: bytes) -> str:
    """The kind of the failure whose lines these are."""
    line = written.partition(b"\n")[2].partition(b"\n")[0]
    name = line.removeprefix(_KIND) if line.startswith(_KIND) else b""
    return name.decode("ascii", "replace") or UNKNOWN
