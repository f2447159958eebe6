"""`pykoclaw-acp logs`: show the log of the daemon or its workers."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.link.places import Places, lock_holder
from pykoclaw_acp.system import units
from pykoclaw_acp.terminal import Shown

_QUOTED: Final = re.compile(r"[\s=\"]|^$")
UNIT: Final = "pykoclaw-acp"
SYSTEMCTL_WAIT: Final = 10.0  # s
PAUSE: Final = 0.2  # s between two reads of a followed file
PROC: Final = Path("/proc")
_COLOURS: Final[Mapping[str, dict[str, Any]]] = {
    "warning": {"fg": "yellow"},
    "error": {"fg": "red"},
    "critical": {"fg": "red", "bold": True},
}
_KNOWN: Final = ("timestamp", "level", "event", "logger", "action", "exception")


def main(lines: int, follow: bool, workers: bool, as_json: bool) -> None:
    """Show the last lines, and with `follow` new ones, until interrupted."""
    places = Places.find()
    if not workers and (unit := _unit(places)) is not None:
        found = _journal(unit, lines, follow)
    else:
        path = Path(places.directory) / "workers.log" if workers else Path(places.log)
        if not path.exists():
            raise CommandFailed(f"There is no log yet: {path} does not exist.")
        if not (path.stat().st_size or follow or as_json):
            terminal.line(f"The log is empty: {path}", err=True)
        found = _last_lines(path, lines, follow)
    try:
        for line in found:
            if as_json:
                terminal.json_text(line + "\n")
                continue
            first, *rest = readable(line)
            terminal.write(
                terminal.joined([first, *(terminal.indented(one) for one in rest)], "\n")
            )
            terminal.line()
    except KeyboardInterrupt:
        return


def readable(line: str) -> list[Shown]:
    """A log line for people, in local time, with its traceback; lines that are not JSON are
    kept.
    """
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or "event" not in entry:
        return [terminal.shown(line)]
    level = str(entry.get("level", ""))
    more = " ".join(
        f"{name}={_value(value)}" for name, value in entry.items() if name not in _KNOWN
    )
    words = [
        terminal.shown(_local(str(entry.get("timestamp", ""))), dim=True),
        terminal.shown(f"{level:7}", **_COLOURS.get(level, {})),
        terminal.shown(str(entry["event"]), bold=level in _COLOURS),
    ]
    if more:
        words.append(terminal.shown(f" {more}", dim=True))
    return [
        terminal.joined(words, " "),
        *(terminal.shown(one) for one in str(entry.get("exception", "")).split("\n") if one),
    ]


def _local(timestamp: str) -> str:
    """Month, day and time of a timestamp in the local time zone; another text as it is."""
    try:
        return f"{datetime.fromisoformat(timestamp).astimezone():%m-%d %H:%M:%S}"
    except (ValueError, OverflowError):
        return timestamp


def _value(value: object) -> str:
    """A value, quoted where it would be ambiguous."""
    return (
        value
        if isinstance(value, str) and not _QUOTED.search(value)
        else json.dumps(value, ensure_ascii=False)
    )


def _unit(places: Places) -> tuple[str, bool] | None:
    """Name of the daemon's systemd service, and whether it is a user service; None
    outside of one. Without a daemon, the service that would run it.
    """
    holder = lock_holder(places.data)
    if holder is None:
        return _installed_unit(places)
    try:
        group = (PROC / str(holder[0]) / "cgroup").read_text().strip()
    except OSError:
        return None
    for part in reversed(group.split("/")):
        if part.startswith(UNIT) and part.endswith(".service"):
            return part, "/user@" in group
    return None


def _installed_unit(places: Places) -> tuple[str, bool] | None:
    """The service of these places, which may have failed before it had the data directory."""
    name = f"{UNIT}.service"
    for scope in units.SCOPES:
        try:
            found = units.installed(
                scope, (name,), ("Environment", "User"), os.environ, SYSTEMCTL_WAIT
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if any(_serves(one, places) for one in found):
            others = f"; {places.log} is that of daemons that clients started"
            more = others if os.path.exists(places.log) else ""
            terminal.line(f"No daemon runs. This is the journal of {name}{more}.", err=True)
            return name, scope == "--user"
    return None


def _serves(unit: Mapping[str, str], places: Places) -> bool:
    """Whether the service is on this socket, or the system's is for this user."""
    with contextlib.suppress(KeyError):
        if pwd.getpwnam(unit.get("User", "")).pw_uid == os.getuid():
            return True
    return units.variables(unit).get("PYKOCLAW_SOCKET") == places.socket


def _journal(unit: tuple[str, bool], lines: int, follow: bool) -> Iterator[str]:
    """The daemon's lines from systemd's journal, through a pipe."""
    name, of_user = unit
    program = shutil.which("journalctl")
    if program is None:
        raise CommandFailed(
            f"The daemon logs to systemd's journal ({name}), but there is no journalctl on PATH."
        )
    scope = ["--user"] if of_user else []
    form = ["--no-pager", "--output=cat"]
    command = [program, *scope, *form, f"--unit={name}", f"--lines={lines}"]
    with subprocess.Popen(
        [*command, *(["--follow"] if follow else [])], stdout=subprocess.PIPE
    ) as journal:
        assert journal.stdout is not None
        for line in journal.stdout:
            yield line.decode(errors="replace").rstrip("\n")
    if journal.returncode:
        raise CommandFailed(f"journalctl ended with status {journal.returncode}.")


def _last_lines(path: Path, count: int, follow: bool) -> Iterator[str]:
    """Last lines of the file; then new ones, also after a truncation."""
    with path.open("rb") as file:
        yield from (
            line.decode(errors="replace").rstrip("\n") for line in deque(file, maxlen=count)
        )
        rest = b""
        while follow:
            if os.fstat(file.fileno()).st_size < file.tell():
                file.seek(0)
            rest += file.read()
            *whole, rest = rest.split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
            time.sleep(PAUSE)
