"""Output of commands to the terminal, with untrusted text escaped.

A `Shown` is escaped text. Only `shown` makes one, so that the type checker finds what was not
escaped; `tests/unit/test_terminal.py` finds output that bypasses this module.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import sys
import termios
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NewType, TextIO

import click

from pykoclaw_acp.errors import OutputLost
from pykoclaw_acp.neutral import neutral

if TYPE_CHECKING:
    from rich.console import Console

    from pykoclaw_acp.neutral import Kind

Shown = NewType("Shown", str)
PIPE_WIDTH: Final = 1000  # columns of a table in a pipe: hardly anything is cut
SHORTEST: Final = 8  # columns of a shortened cell
_FAILING: Final = ("strict", "surrogateescape")  # the latter in the locale C
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
READABLE: Final = 24  # columns of a directory or a title by which people know it
# In this order; the first column is never left out, as it says what the line is about.
_SHORTENED: Final = (
    ("directory", READABLE),
    ("title", READABLE),
    ("directory", SHORTEST),
    ("prompt", SHORTEST),
    ("title", SHORTEST),
    ("question", SHORTEST),
    ("why", SHORTEST),
    ("result", SHORTEST),
    ("conversation", SHORTEST),
    ("schedule", SHORTEST),
)
_LEFT_OUT: Final = (
    "directory",
    "ended",
    "begun",
    "took",
    "trust",
    "schedule",
    "epoch",
    "next run",
    "used",
    "age",
    "memory",
    "conversation",
    "by",
    "since",
    "why",
)


def shown(text: str, kind: Kind = "name", **style: Any) -> Shown:
    """Escape the text, and apply a style (as `click.style`), unless NO_COLOR is set (no-color.org)."""
    harmless = neutral(text, kind)
    return Shown(
        click.style(harmless, **style) if style and not os.environ.get("NO_COLOR") else harmless
    )


def joined(pieces: Iterable[Shown], between: str = "") -> Shown:
    """Concatenate pieces."""
    return Shown(shown(between, "command").join(pieces))


def indented(text: Shown, by: int = 4) -> Shown:
    """A line behind some spaces."""
    return Shown(" " * by + text)


def wrapped(text: str, indent: int, first: int | None = None) -> Shown:
    """Escape a paragraph and break it into lines for the terminal, indented by so many columns.

    `first`: columns that stand before the first line already; by default it is indented too. In a
    pipe it stays one line.
    """
    width = shutil.get_terminal_size().columns if is_terminal() else PIPE_WIDTH
    lines = textwrap.wrap(
        neutral(text),
        max(width, indent + SHORTEST),
        initial_indent=" " * (indent if first is None else first),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    whole = "\n".join(lines)
    return Shown((whole if first is None else whole[first:]) + "\n")


def write(text: Shown, *, err: bool = False) -> None:
    """Write escaped text. Raises OutputLost if standard output cannot be written, and
    BrokenPipeError if nobody reads it any more.
    """
    if err:
        click.echo(text, nl=False, err=True)
        return
    with output():
        click.echo(text, nl=False)


@contextlib.contextmanager
def output() -> Iterator[None]:
    """Context for code that only writes to standard output. Raises as `write`."""
    if sys.stdout is None:
        raise OutputLost("it is closed")
    try:
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in _FAILING:
            # A locale may lack what is written. This writes what others have left.
            sys.stdout.reconfigure(errors="backslashreplace")
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout = None  # Python would flush it at exit, and replace the exit status
        raise OutputLost(error.strerror or str(error)) from error


def line(text: str = "", *, err: bool = False, **style: Any) -> None:
    """Escape the text and write it as one line."""
    write(joined([shown(text, **style), Shown("\n")]), err=err)


def prose(text: str) -> None:
    """Escape text of several lines and write it, without a final newline."""
    write(shown(text, "prose"))


def complain(*lines: str) -> None:
    """Write lines to standard error; a failure to write is ignored."""
    complain_text(joined(joined([shown(one), Shown("\n")]) for one in lines))


def complain_text(text: Shown) -> None:
    """Write escaped text to standard error, as `complain` does."""
    try:
        write(text, err=True)
    except OSError:  # redirected to a full disk: the exit status still tells
        sys.stderr = None  # Python would flush it at exit, and replace the exit status


def as_json(value: Any, *, indent: int | None = 2, end: str = "\n") -> None:
    """Write a value as JSON."""
    json_text(json.dumps(value, indent=indent, ensure_ascii=False) + end)


def json_text(encoded: str) -> None:
    """Write encoded JSON, or a part of it; escaped where the locale is not Unicode."""
    harmless = neutral(encoded, "json")
    if not (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf"):
        harmless = _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], harmless)
    write(Shown(harmless))


def confirm(question: str) -> None:
    """Ask for confirmation; anything but yes ends the command."""
    click.confirm(shown(question), abort=True)


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def forget_typed() -> None:
    """Drop what was typed and not read yet, also of a line that is not complete."""
    with contextlib.suppress(termios.error, OSError, ValueError):  # it is no terminal, or closed
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def too_long(text: Shown) -> bool:
    """Whether standard output is a terminal on which the text would scroll."""
    columns, lines = shutil.get_terminal_size()
    return sum(1 + len(click.unstyle(one)) // columns for one in text.split("\n")) > lines - 2


def paged(text: Shown) -> None:
    """Write the text, through the pager if it is longer than the terminal."""
    if is_terminal() and too_long(text):
        click.echo_via_pager(text)
    else:
        write(text)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Write a table, as wide as the terminal; `right`: right-aligned columns. If it is too narrow, the
    directory is shortened or left out first, then texts are shortened; ids and states stay whole.
    Of a directory the end stays.
    """
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    # Asked here, as rich takes a pipe for a terminal of 80 columns if FORCE_COLOR is set.
    where = console(force_terminal=is_terminal())
    if not where.is_terminal:
        where.width = PIPE_WIDTH
    room = where.width
    # Cut before the layout, which would be slow: a cell may be a megabyte.
    cells = [
        [
            neutral(cell[-room - 1 :])[-room - 1 :]
            if column == "directory"
            else neutral(cell[: room + 1])[: room + 1]
            for column, cell in zip(columns, row, strict=True)
        ]
        for row in rows
    ]
    widths = {
        column: max(cell_len(cell) for cell in (column, *(row[at] for row in cells)))
        for at, column in enumerate(columns)
    }
    widths = _fitting(widths, room)
    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column, width in widths.items():
        made.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=width,
        )
    kept = [at for at, column in enumerate(columns) if column in widths]
    for row in cells:
        shortened = [
            _end_of(row[at], widths[columns[at]]) if columns[at] == "directory" else row[at]
            for at in kept
        ]
        made.add_row(*(Text(cell) for cell in shortened))
    with output():
        where.print(made)


def shows_whole(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a table of these fits into the terminal with all that its cells hold."""
    from rich.cells import cell_len

    if not is_terminal():
        return True
    room = shutil.get_terminal_size().columns
    lengths = [[min(len(cell), room + 1) for cell in row] for row in (columns, *rows)]
    if max(map(sum, lengths)) > room:  # it may be a megabyte, which would be slow
        return False
    shown_rows = [[neutral(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*shown_rows, strict=True)]
    return _width(dict(zip(columns, widths, strict=True))) <= room


def _end_of(cell: str, width: int) -> str:
    """The end of a cell that is wider, with a mark."""
    from rich.cells import cell_len

    if cell_len(cell) <= width:
        return cell
    end = cell[1 - width :]
    while cell_len(end) >= width:
        end = end[1:]
    return f"…{end}"


def _fitting(widths: dict[str, int], room: int) -> dict[str, int]:
    """Widths of columns that fit into the terminal, without those that do not."""
    fitting = dict(widths)
    for column, least in _SHORTENED:
        over = _width(fitting) - room
        if over > 0 and column in fitting:
            fitting[column] = max(fitting[column] - over, min(fitting[column], least))
    if _width(fitting) <= room:
        return fitting
    for column in _LEFT_OUT:
        if column in list(widths)[1:]:
            return _fitting({name: widths[name] for name in widths if name != column}, room)
    return fitting


def _width(widths: dict[str, int]) -> int:
    return sum(widths.values()) + 3 * (len(widths) - 1)  # three between two columns


def console(stream: TextIO | None = None, **options: Any) -> Console:
    """A rich console whose output is escaped."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Neutral(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else neutral(text, "prose"), style, control)

    return Neutral(file=stream, highlight=False, soft_wrap=False, **options)
