"""Markdown in part as HTML, for exports: code blocks, headings, lists, quotes, tables, code, strong
words and links to the web. Everything else stays as it is, and all of it is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from itertools import groupby
from typing import Final

from pykoclaw_acp.model.fences import segments
from pykoclaw_acp.neutral import neutral

# Both in escaped text, where `<` begins a tag of ours: neither a link nor its address holds one.
_CODE_OR_LINK: Final = re.compile(r"`([^`\n]+)`|\[([^\[\]<\n]+)\]\((https?://[^\s()<]+)\)")
_STRONG: Final = re.compile(r"\*\*(?=\S)([^*\n]+)(?<=\S)\*\*")
_HEADING: Final = re.compile(r"#{1,6}[ \t]+(.*)")
_ITEM: Final = re.compile(r"( *)(?:[-+*]|(\d{1,9})[.)])[ \t]+(.*)")
_QUOTE: Final = re.compile(r" {0,3}> ?")
_ROW: Final = re.compile(r" {0,3}\|.*\|[ \t]*")
_DELIMITER: Final = re.compile(r" {0,3}\|(?:[ \t]*:?-+:?[ \t]*\|)+[ \t]*")
_CELLS: Final = re.compile(r"(?<!\\)\|")
_DEPTH: Final = 8  # of quotes in quotes
_PAST: Final = (_QUOTE, _ROW, _ITEM)


def safe(text: str) -> str:
    """Text that a page shows as it is."""
    return escape(neutral(text, "prose"), quote=True)


def html(text: str, depth: int = 0) -> str:
    """The Markdown as HTML."""
    pieces: list[str] = []
    for fence, lines in segments(text):
        if fence:
            pieces.append(f"<pre>{safe(chr(10).join(lines))}</pre>")
        else:
            pieces.append("".join(_blocks(lines, depth)))
    return "".join(pieces)


def blocks_only(text: str) -> str:
    """Text of a person as HTML: as it was typed, with its code blocks as such."""
    return "".join(
        f"<pre>{safe(chr(10).join(lines))}</pre>" if fence else safe("\n".join(lines).strip("\n"))
        for fence, lines in segments(text)
    )


def _blocks(lines: list[str], depth: int) -> Iterator[str]:
    shown: list[str] = []
    for kind, group in groupby(lines, _kind):
        block = list(group)
        made = _MAKERS[kind](block, depth) if kind and depth < _DEPTH else None
        if made is None:
            shown.extend(_line(line) for line in block)
        else:
            yield "\n".join(shown).strip("\n") + made
            shown = []
    yield "\n".join(shown).strip("\n")


def _kind(line: str) -> int:
    """Return the number of the kind of block that a line belongs to; 0: none of these."""
    return next((n for n, one in enumerate(_PAST, 1) if one.match(line)), 0)


def _quote(lines: list[str], depth: int) -> str:
    inner = "\n".join(_QUOTE.sub("", line, count=1) for line in lines)
    return f"<blockquote>{html(inner, depth + 1)}</blockquote>"


def _table(lines: list[str], _: int) -> str | None:
    if len(lines) < 2 or not _DELIMITER.fullmatch(lines[1]):
        return None
    head, _line_between, *rows = lines
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{_cells(head, 'th')}</tr>{body}</table>"


def _cells(row: str, tag: str) -> str:
    cells = _CELLS.split(row.strip())[1:-1]
    return "".join(
        f"<{tag}>{_inline(cell.strip().replace(chr(92) + '|', '|'))}</{tag}>" for cell in cells
    )


def _list(lines: list[str], _: int) -> str:
    """Items of one list; those that are indented further are a list in the item before."""
    made: list[str] = []
    open_lists: list[tuple[int, str]] = []
    for line in lines:
        found = _ITEM.match(line)
        assert found is not None
        indent, number, words = len(found[1]), found[2], found[3]
        while open_lists and indent < open_lists[-1][0] and len(open_lists) > 1:
            made.append(f"</li></{open_lists.pop()[1]}>")
        if not open_lists or indent > open_lists[-1][0] + 1:
            tag = "ol" if number else "ul"
            start = f' start="{int(number)}"' if number and int(number) != 1 else ""
            made.append(f"<{tag}{start}>")
            open_lists.append((indent, tag))
        else:
            made.append("</li>")
        made.append(f"<li>{_inline(words)}")
    made.extend(f"</li></{tag}>" for _, tag in reversed(open_lists))
    return "".join(made)


_MAKERS: Final[dict[int, Callable[[list[str], int], str | None]]] = {1: _quote, 2: _table, 3: _list}


def _line(line: str) -> str:
    heading = _HEADING.fullmatch(line)
    return f"<strong>{_inline(heading[1])}</strong>" if heading else _inline(line)


def _inline(text: str) -> str:
    strong = _STRONG.sub(r"<strong>\1</strong>", safe(text))
    return _CODE_OR_LINK.sub(_code_or_link, strong)


def _code_or_link(found: re.Match[str]) -> str:
    code, words, address = found.groups()
    return f"<code>{code}</code>" if code else f'<a href="{address}">{words}</a>'
