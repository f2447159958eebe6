"""`pykoclaw-acp rules`: list and remove what is allowed in directories for later sessions, too."""

from __future__ import annotations

import os

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask


def list_all(as_json: bool) -> None:
    """List lasting rules."""
    rows = ask("rules/list")
    if as_json:
        terminal.as_json(rows)
    elif not rows:
        terminal.line("No rules.")
    else:
        terminal.table(
            ("directory", "rule", "by", "since"),
            [(one["path"], one["rule"], one["by"], show.when(one["at"])) for one in rows],
        )


def remove(path: str, rule: str) -> None:
    """Remove a rule of a directory, or all of them."""
    gone = ask("rules/remove", path=os.path.abspath(path), rule=rule)
    terminal.line(f"Removed: {', '.join(one['rule'] for one in gone)}.")
