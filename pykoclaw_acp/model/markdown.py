"""Block structure of Markdown that is still being written: which block is open, and how to go on in
it after what came before is gone. Pure functions of text.

It follows CommonMark and the tables of GFM as far as a seam can break them: fences, lists, quotes
and tables. Inline marks, which no block outlives, and HTML blocks are left alone.
"""

from __future__ import annotations

import re
from copy import copy
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.model import markdown_lines as marks
from pykoclaw_acp.model.fences import MOST_INDENT, Fence
from pykoclaw_acp.model.fences import opened as opened_fence

# Words of a line so far that mean something else without it.
_BEGINNING: Final = re.compile(r"\Z|\d{1,9}[.)]?\Z|[`~*_=+>:-][`~*_=+>: -]*\Z|[#|]")
_INDENTED: Final = re.compile(r"[> ]*[ \t]")
_ITEM_AHEAD: Final = re.compile(r"[> ]*([-+*]|\d{1,9}[.)])(\s|\Z)")
_LEFT_OUT: Final = "…"  # stands for the beginning of a list item
_MOST_CONTAINERS: Final = 25  # inside of each other; what begins further ones is text


@dataclass(frozen=True, slots=True)
class _Container:
    """A quote or an item of a list. `opener` begins it, and its content begins after that many
    columns; `kind`: of the list's marker, or `>`.
    """

    opener: str
    kind: str

    @property
    def is_list(self) -> bool:
        return self.kind != ">"


class Blocks:
    """The blocks at the end of a text, which is fed in pieces.

    A reader that keeps complete blocks only may have kept nothing from `begin` on. Blocks that no
    blank line separates count as one, and a list is complete with the first line after it.
    """

    def __init__(self, text: str = "") -> None:
        self.size = 0
        self._pieces: list[str] = []  # of the line that has no end yet; to add to it costs no copy
        self._containers: tuple[_Container, ...] = ()
        self._lists = 0  # containers before the first quote; a blank line belongs to all of them
        self._fence: Fence | None = None
        self._paragraph = False
        self._header = ""  # last line of the paragraph; of a table, its first two
        self._table = False
        self._begin = 0
        self._open = False
        self._list = ""  # kind of the list at the top
        self._gap = False  # a blank line has followed it
        self.feed(text)

    def feed(self, text: str) -> None:
        """The text goes on."""
        *lines, last = text.split("\n")
        for line in lines:
            whole, self._pieces = self._line + line, []
            self._take(whole, self.size - (len(whole) - len(line)))
            self.size += len(line) + 1
        if last:
            self._pieces.append(last)
        self.size += len(last)

    def branch(self) -> Blocks:
        """The blocks as they are now; either goes on by itself."""
        made = copy(self)
        made._pieces = list(self._pieces)
        return made

    @property
    def _line(self) -> str:
        """The line that has no end yet."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def begin(self) -> int:
        """Offset at which the open block begins; without one, of the unfinished line."""
        now = self._now()
        return now._begin if now._open else self.size - len(self._line)

    @property
    def in_fence(self) -> bool:
        """Whether the text ends inside of a code fence."""
        return self._now()._fence is not None

    @property
    def in_paragraph(self) -> bool:
        """Whether a line that comes next may go on in a paragraph; the text ends with a whole line."""
        return self._paragraph

    def is_code(self, line: str) -> bool:
        """Whether a line that comes next is code: inside of the open fence, or its end; or indented."""
        line = line.expandtabs(4)
        if self._fence is not None:
            return self._match(line)[1] == len(self._containers)
        indent = len(line) - len(line.lstrip(" "))
        return indent > MOST_INDENT and not self._containers and not self._paragraph

    def is_underline(self, line: str) -> bool:
        """Whether a line that comes next makes a heading of the paragraph before it."""
        line = line.expandtabs(4)
        at, depth = self._match(line)
        whole = depth == len(self._containers) and self._fence is None
        return whole and self._paragraph and marks.UNDERLINE.match(line[at:]) is not None

    @property
    def ending(self) -> str:
        """What ends an open fence; else nothing."""
        now = self._now()
        if now._fence is None:
            return ""
        inside = now._inside()
        return (
            "\n" if self._line else ""
        ) + f"{inside}{' ' * now._fence.indent}{now._fence.mark}\n"

    def reopening(self, rest: str) -> str:
        """What has to stand before the rest of the text for it to be Markdown by itself; nothing if
        it is that already.
        """
        line, now = self._line, self._now()
        if self._fence is not None:
            if now._fence is None and rest[:1] in ("", "\n"):
                return ""  # it has just ended
            fence = self._fence
            openers, first = _openers(self._containers), f"{fence.mark}{fence.info}\n"
            if fence.indent and self._containers and self._containers[-1].is_list:
                openers += (
                    f"{_LEFT_OUT}\n{self._inside()}"  # else the item's content would begin there
                )
            return f"{openers}{' ' * fence.indent}{first}{self._part(fence)}"
        if (self._table and (line or rest[:1] != "\n")) or (
            "|" in self._header and marks.is_of_delimiter(line or rest[:1])
        ):
            return f"{_openers(self._containers)}{self._header}\n{line}"
        if line.strip() and now._fence is None and rest[:1] == "\n":
            whole = copy(self)
            whole.feed("\n")
            return whole.reopening(rest[1:])
        if line.strip():
            return self._line_again(now)
        if not any(one.is_list for one in self._containers):
            return line
        ahead = (line + rest).lstrip("\n")
        nested = not ahead.strip() or _INDENTED.match(ahead) is not None
        goes_on = self._paragraph and ahead == line + rest and _ITEM_AHEAD.match(ahead) is None
        first = f"{_openers(self._containers)}{_LEFT_OUT}\n" if nested or goes_on else ""
        return first + line

    # --- what is open

    def _now(self) -> Blocks:
        """The blocks that are open behind the line that is not complete."""
        if not self._line:
            return self
        now = copy(self)  # which feeds nothing into the pieces that both have
        now._take(self._line, self.size - len(self._line), complete=False)
        return now

    def _inside(self) -> str:
        """What a line inside of the open containers begins with."""
        return "".join(
            " " * len(one.opener) if one.is_list else one.opener for one in self._containers
        )

    def _line_again(self, now: Blocks) -> str:
        """What is repeated of an incomplete line outside of fences: its containers, and all of it if
        it would mean something else without its beginning.
        """
        line = self._line.expandtabs(4)
        at, depth = self._match(line)
        outer, new = now._containers[:depth], now._containers[depth:]
        words = line[at + len(_openers(new)) :]
        if now._fence is not None or _BEGINNING.match(words.lstrip(" ")):
            return _openers(outer) + line[at:]
        return _openers(now._containers) + (_LEFT_OUT if now._containers else "")

    def _part(self, fence: Fence) -> str:
        """What is repeated of an incomplete line inside of a fence: what it is inside of, and what
        may become the end of the fence.
        """
        if not self._line:
            return ""
        line = self._line.expandtabs(4)
        at, _ = self._match(line)
        rest = line[at:].strip(" ")
        return line if not rest or set(rest) == {fence.mark[0]} else self._inside()

    # --- lines

    def _match(self, line: str) -> tuple[int, int]:
        """Where the content of the line begins, and how many containers it belongs to."""
        if not line:
            return 0, self._lists
        at = 0
        for depth, one in enumerate(self._containers):
            indent = marks.indent(line, at)
            if not one.is_list:
                if indent > 3 or not line.startswith(">", at + indent):
                    return at, depth
                at += indent + 1
                at += line.startswith(" ", at)
            elif at + indent < len(line):
                if indent < len(one.opener):
                    return at, depth
                at += len(one.opener)
        return at, len(self._containers)

    def _take(self, line: str, place: int, *, complete: bool = True) -> None:
        if self._is_prose(line):
            self._header = line
            return
        line = line.expandtabs(4).rstrip("\r")
        at, depth = self._match(line)
        whole = depth == len(self._containers)
        if self._fence is not None:
            if whole and not self._fence.closes(line[at:]):
                return
            self._fence = None
            if whole:
                if not self._containers and complete:
                    self._open = False  # the block is complete with its last line
                return
        if not line[at:].strip(" "):
            self._blank(depth)
            return
        self._begin_blocks(line, at, depth, place, complete=complete)

    def _is_prose(self, line: str) -> bool:
        """Whether the line certainly goes on in a paragraph at the top that is no table."""
        return (
            self._paragraph
            and line[:1].isalpha()
            and "\t" not in line
            and "\r" not in line
            and not (self._containers or self._fence or self._table)
        )

    def _blank(self, depth: int) -> None:
        self._paragraph = self._table = False
        self._header = ""
        self._be_in(self._containers[:depth])
        self._gap = True
        if not self._containers:
            self._open = False
            self._list = ""

    def _be_in(self, containers: tuple[_Container, ...]) -> None:
        if containers != self._containers:
            self._containers = containers
            self._lists = next(
                (at for at, one in enumerate(containers) if not one.is_list), len(containers)
            )

    def _begin_blocks(self, line: str, at: int, depth: int, place: int, *, complete: bool) -> None:
        before = self._containers
        containers = list(before[:depth])
        whole = depth == len(before)
        goes_on = bool(containers) or (whole and self._paragraph)
        opened = False
        fence: Fence | None = None
        heading = False
        ruled = marks.ruled(line)
        while True:
            indent = marks.indent(line, at)
            start = at + indent
            if indent > 3 or start == len(line):
                break
            if len(containers) < _MOST_CONTAINERS and line[start] == ">":
                containers.append(_Container("> ", ">"))
                at = start + 1
                at += line.startswith(" ", at)
                opened = True
                continue
            if line[start] in "`~" and (fence := opened_fence(line[start:], indent)) is not None:
                break
            if marks.HEADING.match(line, start) or (start >= ruled and marks.is_rule(line, start)):
                heading = True
                break
            item = marks.ITEM.match(line, start) if len(containers) < _MOST_CONTAINERS else None
            if item is None or (
                not opened and whole and self._paragraph and not marks.interrupts(item, line)
            ):
                break
            marker, spaces = item[1], len(item[2])
            empty = item.end() == len(line)
            width = 1 if empty or spaces > 4 else spaces
            opener = " " * indent + marker + " " * width
            containers.append(_Container(opener, marker[-1]))
            at += min(len(opener), len(line) - at)
            opened = True
        if not opened and fence is None and not heading and not whole and self._paragraph:
            return  # the paragraph goes on, although its containers are not marked
        self._be_in(tuple(containers))
        self._note_begin(place, goes_on=goes_on, fence=fence is not None, complete=complete)
        self._fence = fence
        words = line[at:]
        if fence is not None or heading or not words.strip(" "):
            self._paragraph = self._table = False
            self._header = ""
            return
        if opened or not self._paragraph:
            self._table = False
            self._header = words
        elif not self._table:
            self._table = (
                marks.DELIMITER.match(words.strip(" ")) is not None and "|" in self._header
            )
            inside = self._inside()
            self._header = f"{self._header}\n{inside}{words}" if self._table else words
        self._paragraph = True

    def _note_begin(self, place: int, *, goes_on: bool, fence: bool, complete: bool) -> None:
        """A line begins a block, or goes on in one that is no fence."""
        top = self._containers[0].kind if self._containers else ""
        of_list = top not in ("", ">")
        goes_on = goes_on or (of_list and top == self._list)
        ended = self._gap and not goes_on and complete and not fence
        if not self._open or ended:
            self._begin = place
        self._open = True
        self._gap = False
        self._list = top if of_list else ""


def _openers(containers: tuple[_Container, ...]) -> str:
    return "".join(one.opener for one in containers)
