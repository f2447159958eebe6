"""What a line of Markdown begins, or is, as CommonMark and the tables of GFM have it: pure functions
of text, in linear time.
"""

from __future__ import annotations

import re
from typing import Final

ITEM: Final = re.compile(r"([-+*]|\d{1,9}[.)])( +|\Z)")
HEADING: Final = re.compile(r"#{1,6}( |\Z)")
UNDERLINE: Final = re.compile(r" {0,3}(=+|-+) *\Z")
# Possessive, so that no text takes more than linear time.
DELIMITER: Final = re.compile(r"\|?+ *+:?+-++:?+ *+(?:\| *+:?+-++:?+ *+)*+\|?+ *+\Z")
_SPACES: Final = re.compile(" *+")


def indent(line: str, at: int) -> int:
    """How many spaces stand there."""
    found = _SPACES.match(line, at)
    return 0 if found is None else found.end() - at


def ruled(line: str) -> int:
    """The place from which on the line is made of one mark of thematic breaks, and of spaces."""
    rest = line.rstrip(" ")
    return len(rest.rstrip(f"{rest[-1]} ")) if rest[-1:] in ("-", "*", "_") else len(line)


def is_rule(line: str, at: int) -> bool:
    """Whether a thematic break begins there, where nothing but one mark and spaces follows."""
    return line.count(line[at], at) >= 3


def is_of_delimiter(text: str) -> bool:
    """Whether the text may be a part of the row below the header of a table."""
    return not text.strip("|: -") and bool(text.strip(" "))


def interrupts(item: re.Match[str], line: str) -> bool:
    """Whether a list's item may follow a paragraph without a blank line."""
    return item.end() < len(line) and (item[1] in "-+*" or item[1][:-1] == "1")
