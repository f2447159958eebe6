"""Transcripts that are found in Claude's folders, whichever program has written them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundTranscript:
    """A transcript, as its beginning and its end say.

    `mtime`: nanoseconds. `cwd`: None if no entry names one. `updated_at`: when its newest message was
    written, in ms since 1970. `is_session`: a person has prompted it, and it is nobody's helper.
    `account`: whose it is; empty for Claude's own configuration. `mode`: the permission mode in which
    it was left; None if it is not known, or nobody opens the transcript.
    """

    path: str
    claude_session_id: str
    size: int
    mtime: int
    cwd: str | None
    title: str | None
    updated_at: int
    is_session: bool
    account: str = ""
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """What became of transcripts that were to be deleted: whether there were `some` that are, the paths
    of what is `left` of others, and their Claude sessions.
    """

    some: bool = False
    left: tuple[str, ...] = ()
    left_of: frozenset[str] = frozenset()
