"""Texts without what a terminal would obey: escape sequences and control characters."""

from __future__ import annotations

import re
from typing import Final

SEQUENCE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"
)
COLOUR: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
"""Terminal sequences that change how the text after them looks, and nothing else."""
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed
_BREAK: Final = re.compile("\r\n?|[\x0b\x0c]")  # what ends a line besides a line feed
_LONGEST: Final = 64  # characters of a sequence that a piece may end in


def plain(text: str) -> str:
    """The text without escape sequences and control characters; line ends are line feeds."""
    if not _CONTROL.search(text):
        return text
    return _CONTROL.sub("", _BREAK.sub("\n", SEQUENCE.sub("", text)))


class PlainPieces:
    """Makes a text plain that comes in pieces, which may divide a sequence."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be shown now. The beginning of a sequence, or of a line's end, waits for its end."""
        text = self._held + piece
        begin = text.rfind("\x1b", max(len(text) - _LONGEST, 0))
        if begin < 0 and text.endswith("\r"):
            self._held = "\r"
            return plain(text[:-1])
        whole = begin < 0 or SEQUENCE.match(text, begin) is not None
        self._held = "" if whole else text[begin:]
        return plain(text if whole else text[:begin])
