"""The files into which the CLI writes the output of its commands as they run: where they are, and
their newest part. Nothing here follows a link or reads what is not this user's.

They are in `<temporary>/claude-<uid>/<directory>/<session>/tasks/<id>.output` (CLI 2.1.327).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from pykoclaw_acp.model.events import Output

SUFFIX: Final = ".output"
MOST_FILES: Final = 1000  # that are looked at
MOST_LINE: Final = 256 * 1024  # bytes of a command line
_EVAL: Final = "eval "  # before the user's command, which the CLI quotes
_QUOTED: Final = re.compile(r"""'([^']*)'|"([^"]*)"|\\(.)|([^\s'"\\]+)""", re.DOTALL)
_END: Final = re.compile(r"\n?\[(?:exited with code (?:-?\d{1,5}|unknown)|killed)\]\n?\Z")


class OutputFile(NamedTuple):
    """A file of output; `name` is the CLI's id of the task."""

    name: str
    path: str


class OutputSnapshot(NamedTuple):
    """What a look at a file has found; `mark` is another one when the file has changed."""

    mark: tuple[int, int]
    output: Output


def find(temporary: str) -> list[OutputFile]:
    """The files of all tasks; empty if there are none, or the CLI keeps them elsewhere."""
    places: list[OutputFile] = []
    for user in _directories(temporary):
        if not user.name.startswith("claude-"):
            continue
        for directory in _directories(user.path):
            for session in _directories(directory.path):
                for entry in _entries(os.path.join(session.path, "tasks")):
                    if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
                        places.append(OutputFile(entry.name.removesuffix(SUFFIX), entry.path))
                        if len(places) == MOST_FILES:
                            return places
    return places


def shells(places: Collection[OutputFile]) -> dict[str, str]:
    """By the names of files: the command of the shell whose output goes there."""
    names = {os.path.realpath(one.path): one.name for one in places}
    found: dict[str, str] = {}
    for process in _entries("/proc"):
        if not process.name.isdigit():
            continue
        try:
            name = names.get(os.readlink(f"{process.path}/fd/1"))
            if name is not None:
                with open(f"{process.path}/cmdline", "rb") as file:
                    line = file.read(MOST_LINE).decode(errors="replace")
                if _EVAL in line:
                    found.setdefault(name, command(line))
        except OSError:
            continue  # another user's, or it has ended
    return found


def command(line: str) -> str:
    """What a shell of the CLI with this command line runs: a quoted word, character by character."""
    at, parts = line.find(_EVAL) + len(_EVAL), []
    while (found := _QUOTED.match(line, at)) is not None:
        parts.append(found[found.lastindex or 0])
        at = found.end()
    return "".join(parts)


def look(path: str, most: int, known: tuple[int, int] | None = None) -> OutputSnapshot | None:
    """The newest `most` bytes of a file; None if it cannot be read, or is as it was when `known`."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        mark = (found.st_size, found.st_mtime_ns)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or mark == known:
            return None
        start = max(0, found.st_size - most)
        data = os.pread(file, most, start)
    except OSError:
        return None
    finally:
        os.close(file)
    if start:
        cut = data.find(b"\n") + 1 or _whole_character(data)
        start, data = start + cut, data[cut:]
    return OutputSnapshot(mark, Output(_END.sub("", data.decode(errors="replace")), start))


def _whole_character(data: bytes) -> int:
    """Where the first whole character of a text begins that was cut somewhere."""
    return next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)


def _directories(path: str) -> Iterator[os.DirEntry[str]]:
    return (entry for entry in _entries(path) if entry.is_dir(follow_symlinks=False))


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        return []
