"""The channel between daemon and worker: length-bounded JSON lines over the worker's own unix socket.

Every frame carries the worker's epoch; a frame of another epoch is dropped. What the worker reports is numbered from 1
and kept by it until the daemon has acknowledged it, which it does after the commit.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

import msgspec

from pykoclaw_acp.sessions.events import Event, ToolPart

PROTOCOL: Final = 1
MAX_FRAME: Final = 96 * 1024 * 1024  # bytes; a prompt of one 64 MiB line fits


class _Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="frame", omit_defaults=True):
    epoch: int


# --- daemon to worker ----------------------------------------------------------------------------------------------


class Hello(_Frame, frozen=True, kw_only=True, tag="hello"):
    """First frame: the daemon has committed everything up to frame `after`."""

    after: int
    protocol: int


class Prompt(_Frame, frozen=True, kw_only=True, tag="prompt"):
    """Run a turn; `content` are ACP content blocks of the kinds text and resource_link."""

    turn_id: str
    content: list[dict[str, Any]]


class Interrupt(_Frame, frozen=True, kw_only=True, tag="interrupt"):
    """Stop the turn, keep the session."""

    turn_id: str


class Answer(_Frame, frozen=True, kw_only=True, tag="answer"):
    """The user's answer to an `ask`."""

    ask_id: str
    decision: Literal["allow_once", "allow_always", "reject"]
    message: str = ""


class Ack(_Frame, frozen=True, kw_only=True, tag="ack"):
    """Frames up to this number are committed."""

    upto: int


class Stop(_Frame, frozen=True, kw_only=True, tag="stop"):
    """End: interrupt what runs, close the CLI, exit."""


# --- worker to daemon ----------------------------------------------------------------------------------------------


class Ready(_Frame, frozen=True, kw_only=True, tag="ready"):
    """The CLI is connected. `fresh`: it began a new Claude session, nothing was resumed."""

    pid: int
    protocol: int
    claude_session_id: str
    fresh: bool


class _Numbered(_Frame, frozen=True, kw_only=True):
    n: int = 0


class TurnStarted(_Numbered, frozen=True, kw_only=True, tag="turn_started"):
    """Claude took the turn up; `background`: nobody asked, a background task ended."""

    turn_id: str
    background: bool = False


class EventFrame(_Numbered, frozen=True, kw_only=True, tag="event"):
    """Something happened."""

    turn_id: str | None
    event: Event


class Ask(_Numbered, frozen=True, kw_only=True, tag="ask"):
    """May this tool run?"""

    ask_id: str
    turn_id: str
    tool_call_id: str
    title: str
    tool_kind: str
    always: str | None = None  # what "always" would allow, in words; None where it cannot be offered
    content: tuple[ToolPart, ...] = ()
    input: dict[str, Any] | None = None


class AskWithdrawn(_Numbered, frozen=True, kw_only=True, tag="ask_withdrawn"):
    """The question is moot: its turn was interrupted."""

    ask_id: str


class TurnError(msgspec.Struct, frozen=True):
    """Why a turn failed: `kind` for programs, `message` for people, `status` of HTTP where there is one."""

    kind: str
    message: str
    status: int | None = None


class TurnUsage(msgspec.Struct, frozen=True):
    """Tokens of this turn alone."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_read_tokens: int = 0
    cached_write_tokens: int = 0


class TurnEnded(_Numbered, frozen=True, kw_only=True, tag="turn_ended"):
    """Exactly one per turn: a stop reason of ACP, or an error."""

    turn_id: str
    stop_reason: str | None
    claude_session_id: str
    error: TurnError | None = None
    usage: TurnUsage | None = None


class Background(_Numbered, frozen=True, kw_only=True, tag="background"):
    """How many background tasks run: a worker with any is not idle."""

    running: int


class Heartbeat(_Frame, frozen=True, kw_only=True, tag="heartbeat"):
    """The worker's loop is alive."""


class Lost(_Frame, frozen=True, kw_only=True, tag="lost"):
    """The worker cannot go on and exits; `kind` as in TurnError."""

    kind: str
    message: str


ToWorker = Hello | Prompt | Interrupt | Answer | Ack | Stop
Numbered = TurnStarted | EventFrame | Ask | AskWithdrawn | TurnEnded | Background
FromWorker = Ready | Numbered | Heartbeat | Lost

to_worker: Final = msgspec.json.Decoder(ToWorker)
from_worker: Final = msgspec.json.Decoder(FromWorker)


def encode(frame: ToWorker | FromWorker) -> bytes:
    """One line, with its newline. Half an emoji, which the CLI passes on from models and tools, becomes a `?`."""
    try:
        return msgspec.json.encode(frame) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(frame), ensure_ascii=False).encode(errors="replace") + b"\n"
