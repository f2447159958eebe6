"""`pykoclaw-acp rules`: list and remove what is allowed in sessions and directories."""

from __future__ import annotations

import os
from typing import Any

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
            ("directory", "holds in", "rule", "by", "since"),
            [
                (one["path"], _where(one), one["rule"], one["by"], show.when(one["at"]))
                for one in rows
            ],
        )


def remove(where: str, rule: str, session: str) -> None:
    """Remove a rule of a directory or of a session, or all of them."""
    place: dict[str, Any] = {"session": session} if session else {"path": os.path.abspath(where)}
    gone = ask("rules/remove", rule=rule, **place)
    terminal.line(f"Removed: {', '.join(one['rule'] for one in gone)}.")


def _where(rule: dict[str, Any]) -> str:
    """The sessions in which a rule holds; a daemon of an earlier version knows of none."""
    session = rule.get("session")
    return "all sessions" if session is None else f"session {session[:8]}"
