"""Trusted directories: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ANY: Final = "*"  # a `content`: anything in the directory and below


FIRST_USE: Final = ""  # its content at the next prompt
NOTHING: Final = "-"  # no active content; only its `./.env` is trusted


@dataclass(frozen=True, slots=True)
class Trusted:
    """A trusted directory. `content`: fingerprint of its active content, or one of the constants
    above.

    `dotenv`: fingerprint of its `./.env`, if that may be read.
    """

    path: str
    content: str
    dotenv: str | None
    by: str
    at: int
