"""What was said as a part of a Markdown document: it cannot be taken for the document's own words.

Headings are below those of the document, HTML is text, and what begins like a line of the document's
own is escaped. Code stays as it is. Pure functions.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Final

from pykoclaw_acp.model.markdown import Blocks
from pykoclaw_acp.neutral import neutral

LEVELS: Final = 3  # of headings that are the document's own
_DEEPEST: Final = 6
_PREFIX: Final = re.compile(r"[ \t]*(?:(?:>|(?:[-+*]|\d{1,9}[.)])(?=[ \t]|\Z))[ \t]*)*")
_HEADING: Final = re.compile(r"(#{1,6})(?=[ \t]|\Z)")
_TAG: Final = re.compile(r"(?<!\\)(\\*)<(?=[A-Za-z/!?])(?![A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*>)")
_MARKS: Final = re.compile("`+")
_EMPHASIS: Final = re.compile(r"((?:&#?\w+;|[^\w*_])*)([*_]+)")
_SEEN: Final = re.compile(r"[^\w:]|_")
_IN_WORDS: Final = re.compile(
    r"[\\`*\[\]]|(?<!\w)_|_(?!\w)|<(?=[A-Za-z/!?])|&(?=#?\w+;)|~(?=~)|(?:\A|(?<=\s))#(?=#*(?:\s|\Z))"
)


def words(text: str) -> str:
    """A line of text for a heading or a paragraph: without Markdown and HTML, as it is."""
    return _IN_WORDS.sub(r"\\\g<0>", text)


def embedded(text: str, own: tuple[str, ...]) -> str:
    """Markdown for the inside of a document; `own`: words that begin its own lines, where they are
    emphasised.
    """
    guarded = tuple(map(_key, own))
    blocks, made = Blocks(), list[str]()
    was_code = False  # indented code, which goes on while its lines are indented
    alone = False  # the paragraph is one line
    sure = True  # no code of the lines before may still be open
    for line in neutral(text, "prose").split("\n"):
        inside, begins = blocks.in_fence, not blocks.in_paragraph
        code = blocks.is_code(line) or (was_code and not inside and _indented(line))
        underlines = not was_code and blocks.is_underline(line)
        was_code = code and not inside
        if underlines and alone:
            made[-1] = _underlined(made[-1], 1 if "=" in line else 2)
            blocks.feed("***\n")  # which ends the paragraph, as the heading does
            alone, sure = False, True
            continue
        one = line if code else _unmarked(line) if underlines else _line(line, guarded, sure)
        made.append(one)
        blocks.feed(f"{one}\n")
        alone = begins and blocks.in_paragraph and not code and not _prefix(line.lstrip())
        sure = not line.strip() or code or (sure and _codes(line) is not None)
    return "\n".join(made)


def _underlined(line: str, level: int) -> str:
    """The line as the heading that the next line makes of it."""
    words = line.lstrip()
    return f"{line[: len(line) - len(words)]}{'#' * (level + LEVELS)} {words}"


def _unmarked(line: str) -> str:
    """The underline of a heading of several lines, as a part of their paragraph."""
    marks = line.lstrip("> \t")
    return f"{line[: len(line) - len(marks)]}\\{marks}"


def _line(line: str, guarded: tuple[str, ...], sure: bool) -> str:
    at = _prefix(line)
    before, rest = line[:at], line[at:]
    if heading := _HEADING.match(rest):
        level = min(len(heading[1]) + LEVELS, _DEEPEST)
        rest = "#" * level + rest[heading.end() :]
    if (marks := _EMPHASIS.match(rest)) and _key(rest).startswith(guarded):
        rest = marks[1] + "".join(f"\\{mark}" for mark in marks[2]) + rest[marks.end() :]
    return before + _without_html(rest, sure)


def _without_html(line: str, sure: bool) -> str:
    """The line with escaped tags; `sure`: no code before it may still be open here."""
    made, at = list[str](), 0
    for begin, end in (sure and _codes(line)) or ():
        made += [_TAG.sub(_escaped, line[at:begin]), line[begin:end]]
        at = end
    return "".join(made) + _TAG.sub(_escaped, line[at:])


def _escaped(tag: re.Match[str]) -> str:
    return tag[0] if len(tag[1]) % 2 else f"{tag[1]}\\<"


def _codes(line: str) -> list[tuple[int, int]] | None:
    """Where code is in the line; None if not all of it ends there, by whatever reading."""
    marks = [one.span() for one in _MARKS.finditer(line)]
    later, ends = dict[int, int](), list[int | None]()
    for at, (begin, end) in reversed(list(enumerate(marks))):
        ends.append(later.get(end - begin))
        later[end - begin] = at
    ends.reverse()
    found, at = list[tuple[int, int]](), 0
    while at < len(marks):
        last = ends[at]
        if last is None:
            return None
        found.append((marks[at][0], marks[last][1]))
        at = last + 1
    return None if "\\`" in line else found


def _prefix(line: str) -> int:
    """Characters that begin quotes and items of lists."""
    found = _PREFIX.match(line)
    return found.end() if found else 0


def _indented(line: str) -> bool:
    return not line.strip() or line.expandtabs(4).startswith("    ")


def _key(line: str) -> str:
    """The words of a line as they are seen."""
    return _SEEN.sub("", unescape(line)).casefold()
