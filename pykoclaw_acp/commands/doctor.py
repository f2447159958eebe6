"""`pykoclaw-acp doctor`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import show
from pykoclaw_acp.commands.daemon import ask
from pykoclaw_acp.config import dotenv, listing, loading, unknown
from pykoclaw_acp.doctor import checks, report
from pykoclaw_acp.errors import CommandFailed, ConfigurationError, DaemonNotRunning, StartupError
from pykoclaw_acp.link.places import Places, lock_holder
from pykoclaw_acp.model.session_environment import DaemonEnvironment
from pykoclaw_acp.store import privacy

MARKS: Final = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}


def main(as_json: bool) -> int:
    """Run all checks and print the results; the exit status is 1 if there is a problem."""
    findings = checks.examine(_context(), checks.every())
    if as_json:
        terminal.as_json([asdict(finding) for finding in findings])
    else:
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            mark, colour = MARKS[finding.level]
            terminal.write(terminal.shown(mark, fg=colour))
            terminal.write(terminal.shown(f" {finding.check.ljust(width)}  "))
            indent = width + 4
            terminal.write(terminal.wrapped(finding.found, indent, first=indent))
            if finding.advice:
                terminal.write(terminal.shown(f"{' ' * indent}→ "))
                terminal.write(terminal.wrapped(finding.advice, indent + 2, first=indent + 2))
        terminal.line(_conclusion([finding.level for finding in findings]))
    return int(any(finding.level == "problem" for finding in findings))


def _conclusion(levels: Sequence[report.Level]) -> str:
    found = ((levels.count("problem"), "problem"), (levels.count("warning"), "warning"))
    return ", ".join(show.count(*one) for one in found if one[0]) or "Everything is fine."


def _context() -> report.Context:
    """What the checks look at."""
    places = Places.find()
    status, unreachable, bad_settings, group = None, None, None, None
    chosen, here, daemon_environment = dict[str, Any](), list[str](), DaemonEnvironment()
    try:
        settings = loading.load()
        chosen, daemon_environment = listing.values(settings), settings.daemon_environment({})
        here = [
            line.env
            for line in listing.describe(settings)
            if line.source == str(Path(".env").absolute())
        ]
    except ConfigurationError as error:
        bad_settings = str(error)
    try:
        status = ask("status", start=False, timeout=report.DAEMON_WAIT)
    except DaemonNotRunning as error:
        holder = lock_holder(places.data)
        if holder is not None and holder[1] is not None:
            unreachable = str(error)
    except (CommandFailed, ConfigurationError) as error:
        unreachable = str(error)
    if status is not None:
        chosen = status.get("settings", chosen)  # missing in that of an older daemon
    asks = status is not None and chosen.get("PYKOCLAW_WORKSPACE_TRUST", "ask") == "ask"
    try:
        group = privacy.group_id(chosen.get("PYKOCLAW_GROUP"))
    except ConfigurationError as error:
        bad_settings = str(error)
    return report.Context(
        places=places,
        environment=dict(os.environ),
        home=Path.home(),
        status=status,
        unreachable=unreachable,
        cli_path=chosen.get("PYKOCLAW_CLI_PATH"),
        bad_settings=bad_settings,
        group=group,
        unread_settings=dotenv.unread(),
        why_unread=dotenv.why_unread(),
        here_settings=here,
        unknown_settings=_unknown(),
        profile=chosen.get("PYKOCLAW_PROFILE", "editor"),
        permission_mode=chosen.get("PYKOCLAW_PERMISSION_MODE", "default"),
        setting_sources=chosen.get("PYKOCLAW_SETTING_SOURCES", ("user", "project", "local")),
        trusted=_trusted() if asks else None,
        daemon_environment=daemon_environment,
        notify=chosen.get("PYKOCLAW_NOTIFY"),
    )


def _trusted() -> list[tuple[str, bool]] | None:
    """Directories that are trusted, each with whether all below it is; None if that is not known."""
    try:
        rows = ask("trust/list", start=False, timeout=report.DAEMON_WAIT)
    except (CommandFailed, ConfigurationError, DaemonNotRunning):
        return None  # a check of the daemon says what is wrong
    return [(row["path"], row["tree"]) for row in rows]


def _unknown() -> list[tuple[str, str | None]]:
    try:
        return unknown.unknown()
    except StartupError:  # what is wrong with a file is told of the settings
        return []
