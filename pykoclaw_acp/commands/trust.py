"""`pykoclaw-acp trust`: list, show, add and remove trusted directories."""

from __future__ import annotations

import os
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask
from pykoclaw_acp.terminal import joined, shown

_COLUMNS: Final = ("directory", "state", "with", ".env", "by", "since")
LOOK_WAIT = 60.0  # s; for a large directory on a slow disk


def list_all(as_json: bool) -> None:
    """List trusted directories."""
    rows = ask("trust/list", without=True)
    if as_json:
        terminal.as_json(rows)
    elif not rows:
        terminal.line("No directory is trusted.")
    else:
        _print_all([_cells(one) for one in rows])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["path"],
        "trusted" if _counts(row) else "run without",
        _extent(row),
        "read" if row["dotenv"] else "",
        row["by"] or "nobody",
        show.when(row["at"]),
    )


def _print_all(rows: list[tuple[str, ...]]) -> None:
    """Print a table, or if that is too narrow for the directories, each in lines: a part of one is of
    no use for the next command.
    """
    if terminal.shows_whole(_COLUMNS, rows):
        terminal.table(_COLUMNS, rows)
        return
    for path, state, extent, dotenv, by, since in rows:
        terminal.line(path)
        said = f"{state} with {extent}" if extent else state
        said += f"; .env is {dotenv}" if dotenv else ""
        terminal.write(terminal.wrapped(f"{said}; by {by}, since {since}", 4))


def look(path: str, as_json: bool) -> None:
    """Show what in a directory takes effect once it is trusted."""
    looked = ask("trust/show", timeout=LOOK_WAIT, path=os.path.abspath(path))
    if as_json:
        terminal.as_json(looked)
        return
    _print(looked)
    if looked["found"]:
        terminal.line(f"This content is {'' if looked['trusted'] else 'not '}trusted.")
        _print_changes(looked.get("changes", []))
        if without := looked.get("without"):  # missing in the answer of an older daemon
            why = f"{without['by']} decided so" if without["by"] else "nobody answered"
            since = show.when(without["at"])
            terminal.line(f"Since {since}, Claude runs without this content: {why}.")


def add(path: str, tree: bool) -> None:
    """Trust a directory."""
    looked = ask("trust/add", timeout=LOOK_WAIT, path=os.path.abspath(path), tree=tree)
    _print(looked)
    if tree:
        terminal.line("Trusted, with all directories below it, whatever they hold.")
    elif looked["found"] or looked["dotenv"]:
        terminal.line("Trusted until this content changes, from the next prompt on.")
    else:
        terminal.line("There is nothing to trust. You will be asked when active content appears.")


def remove(path: str) -> None:
    """Revoke trust in a directory."""
    ask("trust/remove", path=os.path.abspath(path))
    terminal.line(
        "No longer trusted, from the next prompt on. Work on earlier prompts continues as before, also in the"
        " background; `pykoclaw-acp workers stop SESSION` stops it."
    )


def _print(looked: dict[str, Any]) -> None:
    what = "this active content:" if looked["found"] else "no active content."
    terminal.line(f"{looked['path']} has {what}")
    for one in looked["found"]:
        _item(one)
    if looked["dotenv"]:
        _item(f".env: settings of pykoclaw-acp: {', '.join(looked['dotenv'])}")


def _item(text: str) -> None:
    """A line of a list, broken between words, and further lines deeper than it."""
    terminal.write(joined([shown("  "), terminal.wrapped(text, 4, first=2)]))


def _print_changes(changes: list[str]) -> None:
    if changes:
        terminal.line("Since it was trusted:")
    for one in changes:
        _item(one)


def _counts(row: dict[str, Any]) -> bool:
    trusted: bool = row.get("trusted", True)  # missing in the answer of an older daemon
    return trusted


def _extent(row: dict[str, Any]) -> str:
    if not _counts(row):
        return ""
    if row["tree"]:
        return "whatever it holds, and below"
    return "what it holds at its next use" if row["pending"] else "what it held then"
