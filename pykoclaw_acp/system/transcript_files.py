"""Where transcripts are, and what a look at one says."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping
from typing import Final, NamedTuple

from pykoclaw_acp.system.regular_files import ABSENT, opened

_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


class FileStamp(NamedTuple):
    """What a look at a file without opening it says; equal as long as nothing was written."""

    size: int
    mtime: int
    inode: int


def folder(environment: Mapping[str, str] | None = None) -> str:
    """The folder with one folder for each project, as the CLI finds it."""
    given = os.environ if environment is None else environment
    return projects(given.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude"))


def projects(configuration: str) -> str:
    """Folder of transcripts in a configuration directory of Claude."""
    return os.path.join(configuration, "projects")


def plans(path: str) -> str:
    """The directory of Claude's plans in the configuration that a transcript belongs to."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(path))), "plans")


def find(projects: str, claude_session_id: str) -> str | None:
    """The transcript of a Claude session, in whatever project's folder; the newest one if there are
    several.
    """
    found = [
        (seen.mtime, path)
        for path in _paths(projects, claude_session_id)
        if (seen := look(path)) is not None
    ]
    return max(found)[1] if found else None


def is_obstructed(projects: str, claude_session_id: str) -> bool:
    """Whether something that is no file has the transcript's name in a project's folder: whoever opens
    a pipe waits for its writer.
    """
    return any(
        os.path.exists(one) and look(one) is None for one in _paths(projects, claude_session_id)
    )


def _paths(projects: str, claude_session_id: str) -> list[str]:
    """Where the transcript may be."""
    if not _ID.fullmatch(claude_session_id):
        return []
    with contextlib.suppress(OSError), os.scandir(projects) as places:
        return [os.path.join(place.path, f"{claude_session_id}.jsonl") for place in places]
    return []


def unsearchable(projects: str, claude_session_id: str) -> list[str]:
    """What of that folder cannot be searched for the transcript, which may be there therefore; what
    does not exist holds nothing.
    """
    if not _ID.fullmatch(claude_session_id):
        return []
    try:
        with os.scandir(projects) as found:
            places = [one.path for one in found]
    except FileNotFoundError:
        return []
    except OSError:
        return [projects]
    return [one for one in places if not _is_known(os.path.join(one, f"{claude_session_id}.jsonl"))]


def _is_known(path: str) -> bool:
    """Whether it can be said that the file is there, or that it is not."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return True


def look(path: str) -> FileStamp | None:
    """The file as it is now; None if there is none, it is no file, or it cannot be looked at."""
    try:
        return look_closely(path)
    except OSError:
        return None


def look_closely(path: str) -> FileStamp | None:
    """The file as it is now; None if there is none, or it is no file. Raises OSError if it cannot be
    looked at.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise
    if not stat.S_ISREG(found.st_mode):
        return None
    return FileStamp(found.st_size, found.st_mtime_ns, found.st_ino)


def begins_line(path: str, offset: int) -> bool:
    """Whether a line may begin there: not if the file is shorter, or was replaced by another one."""
    if not offset:
        return True
    try:
        with opened(path) as descriptor:
            return os.pread(descriptor, 1, offset - 1) == b"\n"
    except OSError:
        return True  # the reader says so
