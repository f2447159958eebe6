"""Code fences of Markdown, as CommonMark has them: pure functions of text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MOST_INDENT: Final = 3  # columns; more make a line of code of it
_OPENING: Final = re.compile(r"(`{3,})([^`]*)\Z|(~{3,})(.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fence:
    """The line that begins a code block: `mark`, then the language or what else it says."""

    indent: int
    mark: str
    info: str

    def closes(self, line: str) -> bool:
        """Whether the line ends the block."""
        stripped = line.strip(" ")
        indent = len(line) - len(line.lstrip(" "))
        same = set(stripped) == {self.mark[0]} and len(stripped) >= len(self.mark)
        return indent <= MOST_INDENT and same


def opened(line: str, indent: int) -> Fence | None:
    """The fence that a line is which is indented so far; `line` begins after that."""
    found = _OPENING.match(line)
    if found is None or indent > MOST_INDENT:
        return None
    return Fence(indent, found[1] or found[3], found[2] or found[4] or "")


def segments(text: str) -> Iterator[tuple[str, list[str]]]:
    """Lines outside and inside of code blocks that are in no list or quote, without the fences; with
    the lines inside, the mark with which their block begins. The last one is that of an open block,
    or outside of all.
    """
    fence: Fence | None = None
    lines = list[str]()
    for line in text.split("\n"):
        inner = line.lstrip(" ")
        begins = opened(inner, len(line) - len(inner)) if fence is None else None
        if begins is not None or (fence is not None and fence.closes(line)):
            yield fence.mark if fence else "", lines
            fence, lines = begins, []
        else:
            lines.append(line)
    yield fence.mark if fence else "", lines
