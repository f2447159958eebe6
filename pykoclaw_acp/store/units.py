"""Units of writing, each committed whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from pykoclaw_acp.errors import StoreClosed


class DatabaseClosed(StoreClosed):
    """The database was closed; nothing was read or written."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One INSERT, UPDATE or DELETE without RETURNING."""

    sql: str
    parameters: tuple[Any, ...] = ()
    rows: int | None = None
    """Number of rows that it must change, or else the unit fails with Conflict; None: any."""


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event for a session's log; the commit assigns its seq."""

    session_id: str
    turn_id: str | None
    kind: str
    payload: str
    """JSON."""
    source_uuid: str | None = None
    """The SDK message that it was made from, unique in its session; such an event is never folded."""
    message: object = None
    """The message that it is a piece of; contiguous pieces are folded into one row when the message ends."""
    weight: int = 0
    """Bytes of the piece in a client's line."""
    state: str | None = None
    """The state that it reports; an earlier passing report of it loses its row."""
    passing: bool = False
    spares: bool = False
    """An earlier progress report keeps its row; later ones do not replace it."""
    frame: tuple[int, int] | None = None
    """Epoch and number of the worker's frame that it acknowledges."""


class EndOfTurn(NamedTuple):
    """The end of a turn: its last message is folded, and its last seq is recorded."""

    session_id: str
    turn_id: str
    events: int | None = None
    """How many events of the unit come before it; None: all."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One commit: statements in their order, then events and, among them, ends of turns."""

    statements: tuple[Statement, ...] = ()
    events: tuple[NewEvent, ...] = ()
    ends: tuple[EndOfTurn, ...] = ()
    """In their order."""
    durable: bool = False
    """Survives a power failure, too (`synchronous=FULL`); the death of the process it survives in any case."""
    worker: tuple[str, int] | None = None
    """Session and epoch of the worker whose frames these are; refused unless it is the session's newest."""
    renumbers: bool = False
    """Whether its statements change `last_seq` of sessions, which the writer caches."""
