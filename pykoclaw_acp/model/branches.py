"""Branches of Claude sessions, and forks of sessions: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pykoclaw_acp.model.events import Event


class Branch(msgspec.Struct, frozen=True):
    """A new Claude session begins with what `source` remembers up to the entry `at` of its
    transcript; None: with all of it. An empty `source`: with nothing.
    """

    source: str
    at: str | None = None


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """A place between two turns: the history up to `upto`, and what Claude then remembers (None:
    nothing). `complete`: no running turn is left out.
    """

    upto: int
    branch: Branch | None
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork to be made of the session `source`; `said` follows the history up to `point`.

    `at_end`: it is forked where it stands, so that what Claude is still to be told counts for it.
    """

    session_id: str
    conversation_name: str
    source: str
    cwd: str
    directories: tuple[str, ...]
    point: ForkPoint
    said: Sequence[Event]
    at_end: bool
    request_key: str | None = None
    client: str | None = None


@dataclass(frozen=True, slots=True)
class RewindPoint:
    """The beginning of a turn: its id, the turns from there on, and what Claude then remembers."""

    turn_id: str
    turns: int
    branch: Branch


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a rewind changes: the turns that Claude forgets, and files. `files_error`: why files
    cannot be put back; None if they can.
    """

    turn_id: str
    turns: int
    files: list[str]
    insertions: int | None
    deletions: int | None
    files_error: str | None = None
