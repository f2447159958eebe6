"""Folding of a log: merges contiguous parts of a message, and drops replaced states.

Folding preserves what a client ends up with: `fold(live) == fold(replay)`, over text and states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from pykoclaw_acp.model import synthetic_calls
from pykoclaw_acp.model.events import (
    WHY,
    ConfigChanged,
    Event,
    ModeChanged,
    Plan,
    Text,
    Thinking,
    TitleChanged,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    Usage,
    UserMessage,
)
from pykoclaw_acp.model.log import Logged

USAGE: Final = "usage"
PLAN: Final = "plan"
OF_TURN: Final = frozenset({USAGE, PLAN})
"""States of which each turn has its own."""
PART: Final = 960 * 1024  # bytes of text as JSON in one part; a client's line stays below 1 MiB

MessagePiece = Text | Thinking
Aside = Usage | TitleChanged | ModeChanged | ConfigChanged
"""Events between two parts of a message, which end none."""


def message(event: Event | None) -> tuple[type[MessagePiece], str] | None:
    """Message that the event is a part of; None for other events."""
    return (type(event), event.message_id) if isinstance(event, MessagePiece) else None


def weight(piece: MessagePiece) -> int:
    """Bytes of the part's text in a line."""
    return len(msgspec.json.encode(piece.text)) - 2


def state(event: Event | None) -> str | None:
    """Key of the state that the event reports; a newer event with this key replaces it."""
    if isinstance(event, Usage):
        return USAGE
    if isinstance(event, Plan):
        return PLAN
    if isinstance(event, ToolProgressed | ToolEnded):
        if isinstance(event, ToolProgressed) and (event.allowed or event.input is not None):
            return None  # no later event has this title or input
        synthetic = event.title is not None and synthetic_calls.is_synthetic(event.tool_call_id)
        return f"tool {event.tool_call_id}" if event.content or synthetic else None
    return f"call {event.tool_call_id}" if isinstance(event, ToolStarted) else None


def passing(event: Event | None) -> bool:
    """Whether a later event with its key replaces the event."""
    if isinstance(event, ToolStarted):
        return event.pending
    return isinstance(event, Usage | ToolProgressed) or (
        isinstance(event, Plan) and bool(event.entries)
    )


def spares(event: Event | None) -> bool:
    """Whether the event replaces none: an emptied list of tasks leaves the one that it was."""
    return isinstance(event, Plan) and not event.entries


def may_go_on(logged: Logged) -> bool:
    """Whether the next event may be merged with this one."""
    return isinstance(logged.event, MessagePiece) and weight(logged.event) < PART


def merged(logged: Sequence[Logged]) -> list[Logged]:
    """Merge contiguous parts of a message into events of at most `PART` bytes."""
    found: list[Logged] = []
    begin, room = 0, 0
    for at, one in enumerate(logged):
        mine = message(one.event)
        size = weight(one.event) if isinstance(one.event, MessagePiece) else 0
        if mine is None or at == begin or size > room or not _goes_on(logged[at - 1], one, mine):
            found.extend(_joined(logged[begin:at]))
            begin, room = at, PART
        room -= size
    found.extend(_joined(logged[begin:]))
    return found


def begins(one: Logged) -> bool:
    """Whether an imported turn begins here: its events have no other mark of their turn."""
    if one.turn_id is not None:
        return False
    return isinstance(one.event, UserMessage) or (
        isinstance(one.event, Text) and one.event.note and one.event.message_id.endswith(WHY)
    )


def open_plan(logged: Sequence[Logged]) -> int | None:
    """Which of the events is the list of tasks of an imported turn that may go on after them."""
    for at in range(len(logged) - 1, -1, -1):
        one = logged[at]
        if begins(one):
            return None
        if isinstance(one.event, Plan) and one.turn_id is None:
            return at if one.event.entries else None
    return None


def replayed(logged: Sequence[Logged]) -> Sequence[Logged]:
    """Without lists of tasks that a later one of their turn replaces: rows of imported turns stay in
    the log, as their sources are known by them.
    """
    kept: list[Logged] = []
    newest: set[str | None] = set()  # turns with a later list
    for one in reversed(logged):
        if isinstance(one.event, Plan):
            if one.turn_id in newest and one.event.entries:
                after = kept[-1]
                kept[-1] = replace(after, count=after.count + one.count)
                continue
            (newest.add if one.event.entries else newest.discard)(one.turn_id)
        elif begins(one):
            newest.discard(None)
        kept.append(one)
    return merged(kept[::-1]) if len(kept) < len(logged) else logged


def _goes_on(before: Logged, one: Logged, mine: tuple[type[MessagePiece], str]) -> bool:
    return (
        before.seq + 1 == one.first
        and before.turn_id == one.turn_id
        and message(before.event) == mine
    )


def _joined(run: Sequence[Logged]) -> Sequence[Logged]:
    if len(run) < 2:
        return run
    last = run[-1]
    assert isinstance(last.event, MessagePiece)
    text = "".join(one.event.text for one in run if isinstance(one.event, MessagePiece))
    event = msgspec.structs.replace(last.event, text=text)
    return [
        replace(
            last, event=event, size=sum(one.size for one in run), count=last.seq - run[0].first + 1
        )
    ]
