"""Texts without what a terminal would obey: escape sequences and control characters."""

from __future__ import annotations

import re
from typing import Final

_SEQUENCE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]"
)
COLOUR: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
"""Terminal sequences that change how the text after them looks, and nothing else."""
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed
_BREAK: Final = re.compile("\r\n?|[\x0b\x0c]")  # what ends a line besides a line feed
# What more text may change at the end: a carriage return, also before whole sequences, which are
# not held; and the beginning of one, of which no more is waited for than anybody would write.
_UNDECIDED: Final = re.compile(
    rf"(?:(\r)(?:{_SEQUENCE.pattern})*?)?"
    r"(\x1b(?:\[[0-?]{0,64}[ -/]{0,64}|\][^\x07\x1b\r\n]{0,4096}\x1b?)?)?\Z"
)


def plain(text: str) -> str:
    """The text without escape sequences and control characters; line ends are line feeds."""
    if not _CONTROL.search(text):
        return text
    return _CONTROL.sub("", _BREAK.sub("\n", _SEQUENCE.sub("", text)))


def plain_prompt(text: str) -> str:
    """A user's text as `plain`, but with the words of strings for a terminal, as of a title (OSC):
    Claude gets them.
    """
    # NUL, which is removed, too, keeps what stands around it from becoming a sequence
    return plain(text.replace("\x1b]", "\0"))


class PlainPieces:
    """Makes a text plain that comes in pieces, which may divide a sequence."""

    def __init__(self) -> None:
        self._held = ""  # what waits for its end

    def feed(self, piece: str) -> str:
        """What can be shown now. The beginning of a sequence, or of a line's end, waits for its end."""
        text = self._held + piece
        found = _UNDECIDED.search(text) if "\x1b" in text or text.endswith("\r") else None
        if found is None:
            self._held = ""
            return plain(text)
        self._held = "".join(part for part in found.groups() if part)
        return plain(text[: found.start()])

    def rest(self) -> str:
        """What waits yet: nothing follows it."""
        held, self._held = self._held, ""
        return plain(held)
