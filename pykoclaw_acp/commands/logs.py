"""`pykoclaw-acp logs`: what the daemon or its workers write down."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from pykoclaw_acp.commands import show
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.front.places import Places, lock_holder

UNIT: Final = "pykoclaw-acp"
PAUSE: Final = 0.2  # s between two looks at a file that is followed
PROC: Final = Path("/proc")
_KNOWN: Final = ("timestamp", "level", "event", "logger", "action")


def main(lines: int, follow: bool, workers: bool, as_json: bool) -> None:
    """Write the end of the log, and with `follow` what comes, until interrupted."""
    places = Places.find()
    if not workers and (unit := _unit(places)) is not None:
        _become_journalctl(unit, lines, follow)
    path = Path(places.directory) / "workers.log" if workers else Path(places.log)
    if not path.exists():
        raise CommandFailed(f"There is no log yet: {path} does not exist.")
    try:
        for line in _lines(path, lines, follow):
            click.echo(line if as_json else readable(line))
    except KeyboardInterrupt:
        return


def readable(line: str) -> str:
    """A line of the log for people; what is not JSON stays as it is."""
    try:
        entry = json.loads(line)
    except ValueError:
        return show.plain(line)
    if not isinstance(entry, dict) or "event" not in entry:
        return show.plain(line)
    more = " ".join(f"{name}={value}" for name, value in entry.items() if name not in _KNOWN)
    words = f"{entry.get('timestamp', '')} {entry.get('level', ''):7} {entry['event']}  {more}"
    return show.plain(words).rstrip()


def _unit(places: Places) -> tuple[str, bool] | None:
    """The systemd service that the daemon runs in, and whether it is a user's; None if it is none."""
    holder = lock_holder(places.data)
    if holder is None:
        return None
    try:
        group = (PROC / str(holder[0]) / "cgroup").read_text().strip()
    except OSError:
        return None
    for part in reversed(group.split("/")):
        if part.startswith(UNIT) and part.endswith(".service"):
            return part, "/user@" in group
    return None


def _become_journalctl(unit: tuple[str, bool], lines: int, follow: bool) -> None:
    name, of_user = unit
    program = shutil.which("journalctl")
    if program is None:
        raise CommandFailed(f"The daemon logs to systemd's journal ({name}), but there is no journalctl on PATH.")
    scope = ["--user"] if of_user else []
    os.execv(program, [program, *scope, f"--unit={name}", f"--lines={lines}", *(["--follow"] if follow else [])])  # noqa: S606


def _lines(path: Path, count: int, follow: bool) -> Iterator[str]:
    """The last lines; then those that are written, also when the file begins anew."""
    with path.open("rb") as file:
        yield from (line.decode(errors="replace").rstrip("\n") for line in deque(file, maxlen=count))
        rest = b""
        while follow:
            if os.fstat(file.fileno()).st_size < file.tell():
                file.seek(0)
            rest += file.read()
            *whole, rest = rest.split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
            time.sleep(PAUSE)
