"""Finds the process of pykoclaw's own scheduler, which claims nothing: see proc(5)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from pykoclaw_acp.system.proc import has_open
from pykoclaw_acp.system.processes import check_descriptors

_PROC: Final = Path("/proc")
_PROGRAM: Final = "pykoclaw"
_COMMAND: Final = "scheduler"


def find(database: Path, proc: Path = _PROC) -> int | None:
    """Pid of a process that was started as `pykoclaw scheduler` and has the database open; None
    without one.

    A process of another user, whose files cannot be seen, counts if it may open the database.
    Raises OSError for want of descriptors.
    """
    try:
        wanted = database.stat()
    except OSError:
        return None
    for pid, arguments in _processes(proc):
        if is_scheduler(arguments) and _may_use(proc / str(pid), wanted):
            return pid
    return None


def is_scheduler(arguments: Sequence[str]) -> bool:
    """Whether a command line is that of the scheduler: a console script, or `-m pykoclaw`."""
    return any(
        _is_program(program) and command == _COMMAND for program, command in pairwise(arguments)
    )


def _is_program(argument: str) -> bool:
    folder, _, name = argument.rpartition("/")
    return name == _PROGRAM or (name == "__main__.py" and folder.rpartition("/")[2] == _PROGRAM)


def _processes(proc: Path) -> Iterator[tuple[int, list[str]]]:
    for name in os.listdir(proc):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            line = (proc / name / "cmdline").read_bytes()
        except OSError as error:
            check_descriptors(error)
            continue  # it has ended
        if _PROGRAM.encode() in line:
            yield int(name), [os.fsdecode(part) for part in line.split(b"\0")]


def _may_use(process: Path, wanted: os.stat_result) -> bool:
    try:
        return has_open(str(process), wanted)
    except PermissionError:
        return _may_open(process, wanted)
    except OSError as error:
        check_descriptors(error)
        return False  # it has ended


def _may_open(process: Path, wanted: os.stat_result) -> bool:
    try:
        owner = process.stat().st_uid
    except OSError:
        return False
    return owner in (0, wanted.st_uid) or bool(wanted.st_mode & 0o066)
