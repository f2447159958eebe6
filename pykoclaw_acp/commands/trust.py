"""`pykoclaw-acp trust`: list, show, add and remove trusted directories."""

from __future__ import annotations

import os
from typing import Any

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask

LOOK_WAIT = 60.0  # s; for a large directory on a slow disk


def list_all(as_json: bool) -> None:
    """List trusted directories."""
    rows = ask("trust/list", without=True)
    if as_json:
        terminal.as_json(rows)
    elif not rows:
        terminal.line("No directory is trusted.")
    else:
        terminal.table(
            ("directory", "state", "with", ".env", "by", "since"),
            [
                (
                    one["path"],
                    "trusted" if _counts(one) else "run without",
                    _extent(one),
                    "read" if one["dotenv"] else "",
                    one["by"] or "nobody",
                    show.when(one["at"]),
                )
                for one in rows
            ],
        )


def look(path: str, as_json: bool) -> None:
    """Show what in a directory takes effect once it is trusted."""
    looked = ask("trust/show", timeout=LOOK_WAIT, path=os.path.abspath(path))
    if as_json:
        terminal.as_json(looked)
        return
    _print(looked)
    if looked["found"]:
        terminal.line("It is trusted." if looked["trusted"] else "It is not trusted with this.")
        _print_changes(looked.get("changes", []))
        if without := looked.get("without"):  # missing in the answer of an older daemon
            who = without["by"] or "nobody: there was no answer"
            terminal.line(f"Claude runs without it, since {show.when(without['at'])}, by {who}.")


def add(path: str, tree: bool) -> None:
    """Trust a directory."""
    looked = ask("trust/add", timeout=LOOK_WAIT, path=os.path.abspath(path), tree=tree)
    _print(looked)
    if tree:
        terminal.line("Trusted, with all directories below it, whatever they hold.")
    elif looked["found"] or looked["dotenv"]:
        terminal.line("Trusted, until this changes. It counts from the next prompt on.")
    else:
        terminal.line("There is nothing to trust. What comes to be there will be asked about.")


def remove(path: str) -> None:
    """Revoke trust in a directory."""
    ask("trust/remove", path=os.path.abspath(path))
    terminal.line("Not trusted any more, from the next prompt on.")


def _print(looked: dict[str, Any]) -> None:
    terminal.line(f"{looked['path']} holds{':' if looked['found'] else ' nothing that acts.'}")
    for one in looked["found"]:
        terminal.line(f"  {one}")
    if looked["dotenv"]:
        terminal.line(f"  .env: settings of pykoclaw-acp: {', '.join(looked['dotenv'])}")


def _print_changes(changes: list[str]) -> None:
    if changes:
        terminal.line("Since it was trusted:")
    for one in changes:
        terminal.line(f"  {one}")


def _counts(row: dict[str, Any]) -> bool:
    trusted: bool = row.get("trusted", True)  # missing in the answer of an older daemon
    return trusted


def _extent(row: dict[str, Any]) -> str:
    if not _counts(row):
        return ""
    if row["tree"]:
        return "whatever it holds, and below"
    return "what it holds at its next use" if row["pending"] else "what it held then"
