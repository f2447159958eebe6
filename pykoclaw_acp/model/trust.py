"""Trusted directories: plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.model.permissions import Workspace

TOOL: Final = "workspace_trust"  # the tool of a trust request, of which there is none
ANY: Final = "*"  # a `content`: anything in the directory and below
ALLOWS: Final = (  # begins the line about such rules; Claude itself is not told of our trust
    "allows without asking, once Claude itself trusts the directory, too (start `claude` there and accept its dialog)"
)
FIRST_USE: Final = ""  # its content at the next prompt
NOTHING: Final = "-"  # no active content; only its `./.env` is trusted
MAX_FILES: Final = 2000  # files of a directory whose digests are kept
MAX_NAMED: Final = 50  # of them that are named as changed


@dataclass(frozen=True, slots=True)
class Trusted:
    """A trusted directory. `content`: fingerprint of its active content, or one of the constants
    above.

    `dotenv`: fingerprint of its `./.env`, if that may be read. `files`: digests of the files with
    the active content, by path; None: not known.
    """

    path: str
    content: str
    dotenv: str | None
    by: str
    at: int
    files: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class WithoutTrust:
    """A directory in which the last choice was to run without its active content."""

    path: str
    content: str
    by: str
    at: int


def grant(one: Workspace, known: Sequence[Trusted]) -> Trusted | None:
    """Where the user has said that what acts there may; None: that was not said."""
    return next((row for row in known if _has_content(row, one) or covers(row, one)), None)


def _has_content(row: Trusted, one: Workspace) -> bool:
    return row.path == one.path and row.content == one.content != FIRST_USE


def covers(row: Trusted, one: Workspace) -> bool:
    """Whether the directory is trusted whatever it holds."""
    return row.content == ANY and (
        row.path in (one.path, "/") or one.path.startswith(f"{row.path}/")
    )


def changes(path: str, files: Mapping[str, str], known: Sequence[Trusted]) -> list[str]:
    """What has changed in a directory since it was trusted, in lines; none if it never was.

    `files`: the digests of now; empty if they are not known. Names are as the directory has them.
    """
    rows = [row for row in known if row.path == path and row.content not in (ANY, FIRST_USE)]
    if not rows:
        return []
    before = max(
        (row.files for row in rows if row.files is not None), key=_in_common(files), default=None
    )
    if before is None or not files:
        return ["other content; what has changed is not known"]
    named = [
        *(f"changed: {name}" for name in files if before.get(name, files[name]) != files[name]),
        *(f"new: {name}" for name in files if name not in before),
        *(f"gone: {name}" for name in before if name not in files),
    ]
    more = len(named) - MAX_NAMED
    return named if more <= 0 else [*named[:MAX_NAMED], f"and {more} more"]


def _in_common(files: Mapping[str, str]) -> Callable[[Mapping[str, str]], int]:
    """Which of several contents is the one that has become this: the one with most in common."""
    return lambda before: sum(before.get(name) == digest for name, digest in files.items())
