"""Words of a text in one line, for titles: without Markdown, escape sequences and characters that
are not seen. Pure functions.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

LONGEST_LINE: Final = 400  # characters of a line that are looked at
ENOUGH: Final = 200  # characters, in which there is more than a title
MOST_LINES: Final = 2000  # among which the first words are looked for
ROOM: Final = 16 * 1024  # characters of lines that are searched for words

_COST: Final = 80  # characters that may be searched in the time that a line takes

_FENCES: Final = ("```", "~~~")
_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-9;:?]{0,40}[a-zA-Z]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|.)"
)
_HEAD: Final = re.compile(r"\s*(?:>\s*)*(?:#{1,6}\s+|[-*+]\s+(?:\[[ xX]\]\s+)?|\d{1,3}[.)]\s+)?")
_RULE: Final = re.compile(r"\s*[-*_=]{3,}\s*")
_LINK: Final = re.compile(r"!?\[([^\[\]]{0,200})\]\((?:[^()\s<]{0,400}|<[^<>]{0,400}>)\)")
# Not a pattern of files, such as src/**/*.py
_STRONG: Final = re.compile(
    r"(?<![0-9A-Za-z_*~/])(\*{2,3}|~~)(?=[^\s*~/])(.{1,200}?)(?<=[^\s*~/])\1(?![0-9A-Za-z_*~/])"
)
_ITALIC: Final = re.compile(r"(?<![\w*])\*(?=\S)([^*]{1,200}?)(?<=\S)\*(?![\w*])")


def without_markdown(text: str) -> str:
    """The first words; those of code blocks only if there are no others. `ROOM` and `MOST_LINES`
    limit what is looked at.
    """
    said = code = ""
    fence, room = None, ROOM
    for line in islice(text.splitlines(), MOST_LINES):
        begin = line[:LONGEST_LINE].lstrip()
        mark = begin[:3]
        if mark in _FENCES and fence in (None, mark):
            fence = None if fence else mark
        elif begin and fence is None:
            said = f"{said} {_inline(begin)}".strip()
            room -= _COST + len(begin)
        elif begin and len(code) <= ENOUGH:
            code = f"{code} {visible(begin)}".strip()
            room -= _COST + len(begin)
        if len(said) > ENOUGH or room < 0:
            break
    return said or code


def visible(text: str) -> str:
    """The text without escape sequences and without characters that are not seen, in one line."""
    line = " ".join(_ESCAPES.sub("", text).split())
    return "".join(one for one in line if one.isprintable() or one == "\u200d").strip()


def _inline(line: str) -> str:
    line = "" if _RULE.fullmatch(line) else _HEAD.sub("", line, count=1)
    line = _LINK.sub(r"\1", line)
    return visible(_ITALIC.sub(r"\1", _STRONG.sub(r"\2", line.replace("`", ""))))
