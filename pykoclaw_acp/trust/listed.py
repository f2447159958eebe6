"""What a person is shown of the active content that was found."""

from __future__ import annotations

from typing import Final

MAX_FOUND: Final = 200  # lines that say what was found
MAX_LINE: Final = 4000  # characters of one
MAX_LISTED: Final = 100_000  # characters of all


def shown(found: list[str], more: int) -> list[str]:
    """What was found, as far as a person can be asked to read it; that it was cut is said, also if
    `more` lines were not kept.
    """
    listed: list[str] = []
    size = 0
    for line in found:
        size += len(line)
        if len(listed) == MAX_FOUND or size > MAX_LISTED:
            return [*listed, f"{len(found) - len(listed) + more} more, which are not shown"]
        cut = len(line) > MAX_LINE
        listed.append(
            f"{line[:MAX_LINE]}… ({len(line) - MAX_LINE} more characters)" if cut else line
        )
    return listed


def text(name: str) -> str:
    """A name of the file system as text; bytes that are none are written as `\\x..`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
