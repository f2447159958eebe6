"""Directories below a session's one that have a `.claude`: the CLI loads its skills when it reads a
file there.

It does so in every directory, at any depth, hidden or behind a symbolic link, so none is passed
over.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from pykoclaw_acp.system import shortage
from pykoclaw_acp.system.regular_files import ABSENT

MAX_DIRECTORIES: Final = 100_000
MAX_TIME: Final = 5.0  # s
# directories, about 0.1 s: as many are looked through again before each prompt
QUICK: Final = 2_000
KERNEL: Final = ("/proc", "/sys")  # nobody's files
FOLDER: Final = ".claude"


@dataclass(frozen=True, slots=True)
class Below:
    """`holders`: directories with a `.claude`, without the one that was asked about; `limit`: why
    it is not all.

    `many`: to look through them again takes a moment.
    """

    holders: tuple[str, ...]
    limit: str = ""
    many: bool = field(default=False, compare=False)


def find(root: str, own: str, most: int, until: float) -> Below:
    """Look below the directory, whose path has no symbolic links, at so many directories, until then
    (of the monotonic clock); `own`: the user's own `.claude`, left out.
    """
    until = min(until, time.monotonic() + MAX_TIME)
    waiting, links = deque([] if is_the_kernels(root) else [root]), deque[str]()
    seen = {root}
    holders: list[str] = []
    limit = ""
    while waiting or links:
        path = waiting.popleft() if waiting else links.popleft()  # what is elsewhere comes last
        if len(seen) > most or time.monotonic() > until:
            limit = f"more than {most} directories, or it takes more than {MAX_TIME:g} s"
            break
        try:
            entries, trouble = _directories(path)
        except OSError as error:
            if shortage.of(error) is not None:
                raise  # it says nothing of the directory
            if os.access(path, os.X_OK) and os.path.isdir(path):
                limit = f"a directory that cannot be read ({error.strerror}: {path})"
            continue
        limit = limit or trouble
        for entry in entries:
            if entry.name == FOLDER and path != root:
                holders.append(path)
            target = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
            if target == "/":
                limit = f"a link to / ({entry.path})"
            elif target not in seen and target != own and not is_the_kernels(target):
                seen.add(target)
                (waiting if target == entry.path else links).append(target)
    return Below(tuple(holders), limit, many=len(seen) > QUICK)


def is_the_kernels(path: str) -> bool:
    """Whether there are no files at the path, whatever it looks like."""
    return any(f"{path}/".startswith(f"{one}/") for one in KERNEL)


def _directories(path: str) -> tuple[list[os.DirEntry[str]], str]:
    """Return the directories in it, and links to some, in order; and why a link is not known to be
    none.
    """
    found: list[os.DirEntry[str]] = []
    trouble = ""
    with os.scandir(path) as entries:
        for entry in entries:
            if not (entry.is_dir(follow_symlinks=False) or entry.is_symlink()):
                continue
            try:
                leads = entry.is_dir()
            except OSError as error:
                if shortage.of(error) is not None:
                    raise  # it says nothing of the link
                leads = False
                if error.errno not in ABSENT | {errno.EACCES}:  # nor may Claude go there
                    trouble = f"a link that cannot be followed ({error.strerror}: {entry.path})"
            if leads or entry.name == FOLDER:
                found.append(entry)
    return sorted(found, key=lambda entry: entry.name), trouble
