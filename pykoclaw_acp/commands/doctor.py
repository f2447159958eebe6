"""`pykoclaw-acp doctor`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

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
    status, unreachable, cli_path, bad_settings, group = None, None, None, None, None
    profile, mode, here = "editor", "default", []
    notify, daemon_environment = None, DaemonEnvironment()
    sources: tuple[str, ...] = ("user", "project", "local")
    asks = True
    try:
        settings = loading.load()
        sources, asks = settings.setting_sources, settings.workspace_trust == "ask"
        profile, mode = settings.profile, settings.permission_mode
        here = [
            line.env
            for line in listing.describe(settings)
            if line.source == str(Path(".env").absolute())
        ]
        cli_path = None if settings.cli_path is None else str(settings.cli_path)
        notify, daemon_environment = settings.notify, settings.daemon_environment({})
        group = privacy.group_id(settings.group)
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
    return report.Context(
        places=places,
        environment=dict(os.environ),
        home=Path.home(),
        status=status,
        unreachable=unreachable,
        cli_path=cli_path,
        bad_settings=bad_settings,
        group=group,
        unread_settings=dotenv.unread(),
        why_unread=dotenv.why_unread(),
        here_settings=here,
        unknown_settings=_unknown(),
        profile=profile,
        permission_mode=mode,
        setting_sources=sources,
        trusted=_trusted() if asks and status is not None else None,
        daemon_environment=daemon_environment,
        notify=notify,
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
