"""Output of the demo: colours, rules and tables in a terminal, otherwise plain lines without
control characters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from typing import Final, TextIO

from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from pykoclaw_acp.demo.findings import DemoStep
from pykoclaw_acp.demo.processes import DemoProcess
from pykoclaw_acp.demo.speech import Speech
from pykoclaw_acp.terminal import console

WIDEST: Final = 104  # columns; longer lines are hard to read
PLAIN_WIDTH: Final = 80  # columns
_INDENT: Final = 2
_STEP: Final = 14  # columns of a step's name
_MARKS: Final = {True: "✓", False: "✗", None: "-"}
_WORDS: Final = {True: "ok", False: "WRONG", None: "-"}
_STYLES: Final = {True: "green", False: "bold red", None: "dim"}


class DemoOutput:
    """The output. Terminals that cannot show the marks get the plain form."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a quotation mark must not end the demo
        fancy = stream.isatty() and "utf" in (stream.encoding or "").lower()
        # Said explicitly, because variables like FORCE_COLOR would send escape sequences through a
        # pipe.
        self._console = console(stream, force_terminal=fancy, markup=False, emoji=False)
        self._plain = not fancy or self._console.is_dumb_terminal
        self._console.width = PLAIN_WIDTH if self._plain else min(self._console.width, WIDEST)
        self.speech = Speech(self._console)

    def title(self, name: str, subtitle: str) -> None:
        """Show the title."""
        self._console.print()
        self._line(name, "bold")
        self._line(subtitle, "dim")

    def scene(self, number: int, title: str) -> None:
        """Begin a scene."""
        self.speech.end()
        self._console.print()
        if self._plain:
            self._console.print(f"== {number}. {title}", soft_wrap=True)
        else:
            heading = Text.assemble(" ", (str(number), "bold cyan"), "  ", (title, "bold"), " ")
            self._console.print(Rule(heading, align="left", style="cyan dim"))

    def pause(self) -> None:
        """Separate the conversation from what follows."""
        self.speech.end()
        self._console.print()

    def finding(self, row: DemoStep) -> None:
        """Show the observation of a step."""
        time = "" if row.ms is None else _milliseconds(row.ms)
        if self._plain:
            self._line(
                f"{_WORDS[row.right]:<5}  {row.step:<{_STEP}}  {row.seen}{f'  ({time})' if time else ''}"
            )
            return
        self.speech.end()
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        grid.add_column(width=1, style=_STYLES[row.right])
        grid.add_column(width=_STEP)
        grid.add_column(ratio=1, style="dim" if row.right else "red")
        grid.add_column(justify="right", style="cyan", no_wrap=True)
        grid.add_row(_MARKS[row.right], row.step, row.seen, time)
        self._console.print(Padding(grid, (0, 0, 0, _INDENT)))

    def processes(self, caption: str, processes: Sequence[DemoProcess]) -> None:
        """The process table."""
        rows = [(str(process.pid), process.role, process.command) for process in processes]
        self._grid(caption, rows or [("", "none", "")], ("dim", "cyan", "dim"))

    def messages(self, caption: str, messages: Sequence[tuple[str, str]]) -> None:
        """Show the model's input: roles and texts."""
        self._grid(caption, messages, ("cyan", ""))

    def result(self, rows: Sequence[DemoStep], facts: Iterable[tuple[str, str]]) -> None:
        """Show the table of steps, and the environment."""
        self.speech.end()
        if self._plain:
            for row in rows:
                time = "" if row.ms is None else _milliseconds(row.ms)
                seen = f"{row.seen} (expected: {row.expected})"
                self._line(f"{_WORDS[row.right]:<5}  {row.step:<{_STEP}}  {time:>7}  {seen}")
        else:
            self._console.print(Padding(_table(rows), (0, 0, 0, _INDENT)))
        self._console.print()
        for name, value in facts:
            self._line(Text.assemble((f"{name:<9}", "cyan"), (value, "dim")))

    def trouble(self, lines: Iterable[str]) -> None:
        """Show what helps to find a fault."""
        for line in lines:
            self._line(line, "red")

    def verdict(self, text: str, *, right: bool | None) -> None:
        """Show the last line. `right` is None if there is nothing to judge."""
        self.pause()
        mark = (_WORDS if self._plain else _MARKS)[right]
        self._line(f"{mark} {text}", "bold green" if right else _STYLES[right])
        self._console.print()

    def _line(self, line: Text | str, style: str = "") -> None:
        self.speech.end()
        text = Text(line, style=style) if isinstance(line, str) else line
        if self._plain:
            self._console.print(f"{'':{_INDENT}}{text.plain}", soft_wrap=True)
        else:
            self._console.print(Padding(text, (0, 0, 0, _INDENT)))

    def _grid(self, caption: str, rows: Sequence[Sequence[str]], styles: Sequence[str]) -> None:
        """A table with aligned columns; the last one is cut at the terminal's width."""
        self._line(caption, "dim")
        widths = [max(len(row[at]) for row in rows) for at in range(len(styles) - 1)]
        for row in rows:
            line = Text(no_wrap=True, overflow="ellipsis")
            for cell, width, style in zip(row, [*widths, 0], styles, strict=True):
                line.append(f"  {cell:<{width}}", style=style)
            line.rstrip()
            self._line(line)


def _table(rows: Sequence[DemoStep]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="cyan")
    table.add_column("")
    table.add_column("step", no_wrap=True)
    table.add_column("expected", style="dim", ratio=1)
    table.add_column("seen", ratio=1)
    table.add_column("time", justify="right", style="cyan", no_wrap=True)
    for row in rows:
        seen = Text(row.seen, style="" if row.right else _STYLES[row.right])
        time = "" if row.ms is None else _milliseconds(row.ms)
        table.add_row(
            Text(_MARKS[row.right], style=_STYLES[row.right]), row.step, row.expected, seen, time
        )
    return table


def _milliseconds(time: float) -> str:
    return f"{time:.0f} ms" if time >= 10 else f"{time:.1f} ms"
