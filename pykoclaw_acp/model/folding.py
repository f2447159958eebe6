"""What of a log need not be told piece by piece: contiguous pieces of a message, and states that were replaced.

Folding never changes what a client has in the end: `fold(live) == fold(replay)`, over text and states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from pykoclaw_acp.model.events import Event, Text, Thinking, ToolEnded, ToolProgressed, Usage
from pykoclaw_acp.model.log import Logged

PART: Final = 960 * 1024  # bytes of a message's text as JSON in one part: with what stands around it below 1 MiB

Piece = Text | Thinking


def message(event: Event | None) -> tuple[type[Piece], str] | None:
    """Which message the event is a piece of; None if it is none."""
    return (type(event), event.message_id) if isinstance(event, Piece) else None


def weight(piece: Piece) -> int:
    """Bytes that the piece's text takes in a line."""
    return len(msgspec.json.encode(piece.text)) - 2


def state(event: Event | None) -> str | None:
    """Of what the event tells the newest state, so that a passing one before it need not be told any more."""
    if isinstance(event, Usage):
        return "usage"
    if isinstance(event, ToolProgressed | ToolEnded) and event.content:
        return f"tool {event.tool_call_id}"
    return None


def passing(event: Event | None) -> bool:
    """Whether a later state replaces it."""
    return isinstance(event, Usage | ToolProgressed)


def merged(logged: Sequence[Logged]) -> list[Logged]:
    """The log with contiguous pieces of one message as one event each, of one part at most."""
    found: list[Logged] = []
    begin, room = 0, 0
    for at, one in enumerate(logged):
        mine = message(one.event)
        size = weight(one.event) if isinstance(one.event, Piece) else 0
        if mine is None or at == begin or size > room or not _goes_on(logged[at - 1], one, mine):
            found.extend(_joined(logged[begin:at]))
            begin, room = at, PART
        room -= size
    found.extend(_joined(logged[begin:]))
    return found


def _goes_on(before: Logged, one: Logged, mine: tuple[type[Piece], str]) -> bool:
    return before.seq + 1 == one.first and before.turn_id == one.turn_id and message(before.event) == mine


def _joined(run: Sequence[Logged]) -> Sequence[Logged]:
    if len(run) < 2:
        return run
    last = run[-1]
    assert isinstance(last.event, Piece)
    text = "".join(one.event.text for one in run if isinstance(one.event, Piece))
    event = msgspec.structs.replace(last.event, text=text)
    return [replace(last, event=event, size=sum(one.size for one in run), count=last.seq - run[0].first + 1)]
