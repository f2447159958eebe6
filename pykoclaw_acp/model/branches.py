"""Branches of Claude sessions, and forks of sessions: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.prompt_text import Note


class Branch(msgspec.Struct, frozen=True):
    """A new Claude session begins with what `source` remembers up to the entry `at` of its
    transcript; None: with all of it. An empty `source`: with nothing.
    """

    source: str
    at: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What Claude remembers at a place of a log: `branch`, or nothing. `lacks`: it does not have what
    the log has after this seq, and is to be told of it; None: it has all.
    """

    branch: Branch | None
    lacks: int | None = None


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """A place between two turns: the history up to `upto`, and what Claude then remembers.
    `complete`: no running turn is left out.
    """

    upto: int
    memory: Memory
    complete: bool = True


@dataclass(frozen=True, slots=True)
class ForkedAt:
    """Where a fork was made: it has the history of its source up to `upto`. `complete`: no running
    turn was left out.
    """

    upto: int
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork to be made of the session `source`; `said` follows the history up to `point`. `note`: for
    Claude.

    `at_end`: it is forked where it stands, or before the turn that runs, so that what Claude is still
    to be told counts for it.
    """

    session_id: str
    conversation_name: str
    source: str
    cwd: str
    directories: tuple[str, ...]
    point: ForkPoint
    said: Sequence[Event]
    at_end: bool
    note: Note | None = None
    request_key: str | None = None
    client: str | None = None


@dataclass(frozen=True, slots=True)
class RewindPoint:
    """The beginning of a turn: its id, the turns from there on that Claude knows, the history before it
    up to `upto`, and what Claude then remembers. `commands`: those of the turns that were slash commands
    before the first that was none, `after`: before one of its own the CLI makes no copies of files.
    `moved`: the session's directory is another one since, and Claude had changed files before.
    """

    turn_id: str
    turns: int
    upto: int
    memory: Memory
    commands: tuple[str, ...] = ()
    after: str | None = None
    moved: bool = False

    @property
    def branch(self) -> Branch:
        """Where the next Claude session begins."""
        return self.memory.branch or Branch("")


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a rewind changes: the turns that Claude forgets, and files. `files_error`: why files
    cannot be put back; None if they can. `deleted`: those of the files that were deleted, as they
    did not exist before; None before it is done, or if an earlier daemon did it.
    """

    turn_id: str
    turns: int
    files: list[str]
    insertions: int | None
    deletions: int | None
    files_error: str | None = None
    deleted: list[str] | None = None


def files_now(count: int, deleted: Sequence[str]) -> str:
    """What became of so many files, some of which are deleted."""
    gone, left = len(deleted), count - len(deleted)
    said = []
    if left:
        said.append("1 file was put back" if left == 1 else f"{left} files were put back")
    if gone:
        said.append(
            "1 file that did not exist then was deleted"
            if gone == 1
            else f"{gone} files that did not exist then were deleted"
        )
    return "; ".join(said) + "."
