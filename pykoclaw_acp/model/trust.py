"""Which directories the user trusts: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ANY: Final = "*"  # a `content`: whatever the directory, and those below it, hold


FIRST_USE: Final = ""  # what it holds when a prompt comes there next
NOTHING: Final = "-"  # nothing that acts; its `./.env` is what is trusted


@dataclass(frozen=True, slots=True)
class Trusted:
    """A directory that is trusted. `content` is the fingerprint of what acts there, or one of the three above.

    `dotenv`: the fingerprint of its `./.env`, if that may be read.
    """

    path: str
    content: str
    dotenv: str | None
    by: str
    at: int
