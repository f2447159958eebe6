"""The neutral events that make up a session's log: the one vocabulary between worker, log and clients.

An event makes at most one update for a client. `fold(live) == fold(replay)`: whatever a client is told comes from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from pykoclaw_acp.model.choices import Selection

MAX_TEXT: Final = 128 * 1024  # characters in one event; six bytes each at worst keeps a line below 1 MiB

PlanStatus = Literal["pending", "in_progress", "completed"]
ToolStatus = Literal["pending", "in_progress", "completed", "failed"]
ToolKind = Literal["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"]


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Text that a tool shows."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image"):
    """An image that a tool shows; `data` is base64."""

    data: str
    mime_type: str


class DiffPart(msgspec.Struct, frozen=True, tag_field="type", tag="diff"):
    """A change to a file; `old_text` is None for a new one."""

    path: str
    old_text: str | None
    new_text: str


ToolPart = TextPart | ImagePart | DiffPart


class Location(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a tool works on; `line` counts from 1."""

    path: str
    line: int | None = None


class _Event(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    pass


class UserMessage(_Event, frozen=True, tag="user_message"):
    """One content block of what the user sent."""

    message_id: str
    content: dict[str, Any]


class Text(_Event, frozen=True, tag="text"):
    """A piece of the agent's answer."""

    message_id: str
    text: str


class Thinking(_Event, frozen=True, tag="thinking"):
    """A piece of the agent's reasoning."""

    message_id: str
    text: str


class ToolStarted(_Event, frozen=True, tag="tool_started"):
    """The agent calls a tool; `input` is complete."""

    tool_call_id: str
    name: str
    title: str
    tool_kind: ToolKind
    input: dict[str, Any] | None = None
    content: tuple[ToolPart, ...] = ()
    locations: tuple[Location, ...] = ()
    parent_id: str | None = None


class ToolProgressed(_Event, frozen=True, tag="tool_progressed"):
    """A running tool has something to show, and is not done: a command moved to the background, for instance."""

    tool_call_id: str
    content: tuple[ToolPart, ...] = ()


class ToolEnded(_Event, frozen=True, tag="tool_ended"):
    """The tool is done; empty `content` leaves what was shown before."""

    tool_call_id: str
    status: Literal["completed", "failed"]
    content: tuple[ToolPart, ...] = ()


class Usage(_Event, frozen=True, tag="usage"):
    """The context window: tokens used, its size, and the conversation's cost so far in US dollars."""

    used: int
    size: int
    cost: float | None = None


class PlanEntry(msgspec.Struct, frozen=True):
    """Something that the agent means to do."""

    content: str
    status: PlanStatus = "pending"


class Plan(_Event, frozen=True, tag="plan"):
    """All that the agent means to do, in the place of what was said of it before."""

    entries: tuple[PlanEntry, ...]


class ModeChanged(_Event, frozen=True, tag="mode_changed"):
    """The session's permission mode is another one now, whoever changed it."""

    mode: str


class ConfigChanged(_Event, frozen=True, tag="config_changed"):
    """The session's mode or model is another one now, with everything that could be chosen."""

    selection: Selection


class TitleChanged(_Event, frozen=True, tag="title_changed"):
    """The session has a title, or another one."""

    title: str


class Failure(_Event, frozen=True, tag="failure"):
    """A turn ended without its answer, said to the user in words."""

    message_id: str
    text: str
    error_kind: str


Event = (
    UserMessage
    | Text
    | Thinking
    | ToolStarted
    | ToolProgressed
    | ToolEnded
    | Usage
    | Plan
    | ModeChanged
    | ConfigChanged
    | TitleChanged
    | Failure
)

_decoder: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


def encode(event: Event) -> str:
    """The event as the log keeps it."""
    return msgspec.json.encode(event).decode()


def size(event: Event) -> int:
    """About how many characters the event's row has; a user's text, the one that may be long, is not encoded again."""
    if isinstance(event, UserMessage):
        return 100 + sum(len(value) for value in event.content.values() if isinstance(value, str))
    return len(encode(event))


def decode(payload: str) -> Event | None:
    """The event of a log row; None if the row cannot be read."""
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def split_text(text: str, limit: int = MAX_TEXT) -> list[str]:
    """Pieces of at most `limit` characters, so that no event grows beyond what a client can read."""
    return [text[at : at + limit] for at in range(0, len(text), limit)] or [""]


class OpenTools:
    """Ids of the tool calls that were started and not ended, in order, as a fold over events."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._ids))

    def follow(self, event: Event | None) -> None:
        """Take the next event."""
        if isinstance(event, ToolStarted):
            self._ids[event.tool_call_id] = None
        elif isinstance(event, ToolEnded):
            self._ids.pop(event.tool_call_id, None)
