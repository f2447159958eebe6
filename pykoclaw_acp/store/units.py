"""What is written to the database: units, each of which is committed whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    """How many rows it must change, no more and no less; otherwise its unit fails with Conflict. None: any number."""


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event for a session's log; `commit` gives it its `seq` and its time."""

    session_id: str
    turn_id: str | None
    kind: str
    payload: str
    """JSON."""
    source_uuid: str | None = None
    """The SDK message that it was made from; unique in its session. An event that has one is never folded."""
    message: object = None
    """Of which message it is a piece: contiguous pieces of one message become one row when the message ends."""
    weight: int = 0
    """Bytes that the piece takes in a client's line."""
    state: str | None = None
    """Of what it tells the newest state: a passing one that was told before loses its row."""
    passing: bool = False
    frame: tuple[int, int] | None = None
    """Epoch and number of the worker's frame that is acknowledged with it."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What is committed together: the statements, in their order, then the events, then the ends of turns."""

    statements: tuple[Statement, ...] = ()
    events: tuple[NewEvent, ...] = ()
    ends: tuple[tuple[str, str], ...] = ()
    """Session and id of the turns that end with the unit, after its events: their last message ends with them."""
    durable: bool = False
    """Whether it must also survive a power cut (`synchronous=FULL`); death of the process it survives in any case."""
    worker: tuple[str, int] | None = None
    """Session and epoch of the worker whose frames these are: unless it is the session's newest, they are refused."""
    renumbers: bool = False
    """Whether its statements change `last_seq` of sessions, which the writer remembers."""
