"""Values of rows that may be damaged, or that another program has written: each is what its column
may hold, or stands for something that cannot be read.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

import msgspec

from pykoclaw_acp.model import conversations

S = TypeVar("S", bound=msgspec.Struct)

ERRORS: Final = (ValueError, TypeError, LookupError, RecursionError, msgspec.MsgspecError)
"""What reading a damaged value may raise."""


def text(value: object) -> str | None:
    """A text; None if it is none."""
    return value if isinstance(value, str) else None


def name(value: object) -> str:
    """The name of a session's conversation; that of an ACP client's if it is none."""
    return value if isinstance(value, str) else f"{conversations.OWN}-"


def number(value: object) -> int | None:
    """A whole number; None if it is none."""
    return value if isinstance(value, int) else None


def texts(written: object) -> tuple[str, ...]:
    """The texts of a list in JSON; none if it cannot be read."""
    if written == "[]":  # nearly all are
        return ()
    try:
        found: Any = json.loads(written) if isinstance(written, str) else ()
    except (ValueError, RecursionError):
        return ()
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def decode_or_default(written: str | None, kind: type[S]) -> S:
    """A struct in JSON; its defaults without JSON, or if a newer version wrote it otherwise."""
    try:
        return kind() if written is None else msgspec.json.decode(written, type=kind)
    except msgspec.MsgspecError:
        return kind()
