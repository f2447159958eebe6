"""A program, above all the Python interpreter, that cannot be executed: removed, moved, or not
executable.

Standard library only.
"""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.system import shortage

REMEDY: Final = (
    "If it was moved or removed, or is not executable any more, install pykoclaw-acp again."
    " Then start the client again."
)


def words(
    path: str, error: OSError, kind: ErrorKind, remedy: str = REMEDY
) -> tuple[ErrorKind, str]:
    """Kind and sentences, of `kind` unless the machine lacks something."""
    found = shortage.of(error, forks=True)
    if found is not None:
        return found[0], f"{path} cannot be executed: {found[1]}"
    return kind, f"{path} cannot be executed ({error.strerror or error}). {remedy}"
