"""How commands show things: tables for people, JSON for programs, times and sizes in words. Standard library and click.

Nothing that a model or a client wrote reaches the terminal as it is: control characters are taken out.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click

_CONTROL: Final = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def plain(text: str) -> str:
    """The text without what a terminal would obey; tabs and line ends stay."""
    return _CONTROL.sub("", text)


def one_line(text: str | None, otherwise: str = "") -> str:
    """The text with all white space as single blanks."""
    return " ".join(plain(text or "").split()) or otherwise


def as_json(value: Any) -> None:
    """Write a value for programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Write a table, as wide as the terminal allows; `right`: columns of numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        narrow = column not in ("title", "directory", "question")
        shown.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=max((len(row[columns.index(column)]) for row in rows), default=0) if narrow else None,
        )
    for row in rows:
        shown.add_row(*(Text(one_line(cell)) for cell in row))
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = 1000  # whoever reads a pipe wants it whole
    console.print(shown)


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Write names and values below each other."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {value}")


def size(count: int | None) -> str:
    """Bytes, as people say them."""
    if count is None:
        return "unknown"
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def when(ms: int | None) -> str:
    """A time (ms since 1970), to the second, where we are."""
    return "never" if ms is None else datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def since(ms: int) -> str:
    """How long ago a time (ms since 1970) was: `12 s`, `5 min`, `3 h`, `2 d`."""
    seconds = max(int(time.time() - ms / 1000), 0)
    for limit, divisor, unit in ((60, 1, "s"), (3600, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // divisor} {unit}"
    return f"{seconds // 86400} d"


def count(number: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
