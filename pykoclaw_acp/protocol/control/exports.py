"""An export of a session as commands and daemon agree on it. It imports the standard library only:
commands start with it.
"""

from __future__ import annotations

from typing import Final

FORMAT: Final = "pykoclaw-acp/session"
VERSION: Final = 1  # of the JSON; greater if an earlier program would misread it
MAX_LINE: Final = 64 * 1024 * 1024  # bytes
MAX_PIECE: Final = 384 * 1024  # bytes; as base64 it fits into a line before `initialize`
