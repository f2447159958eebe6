"""The channel between daemon and worker: length-bounded JSON lines over the worker's own unix
socket.

Every frame carries the worker's epoch; a frame of another epoch is dropped. What the worker reports
is numbered from 1 and kept by it until the daemon has acknowledged it, which it does after the
commit.

A worker outlives its daemon, and meets one of another version: Hello and Ready name the protocol.
What Hello and `_FrameHead` hold stays as it is for ever; a frame that the other side does not know is
skipped.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

import msgspec

from pykoclaw_acp.channel.choosing import SetConfig, SetMode, SetModel
from pykoclaw_acp.channel.database import DatabaseAnswer, DatabaseCall
from pykoclaw_acp.channel.frame import Frame
from pykoclaw_acp.channel.requests import (
    MakeTitle,
    RewindFiles,
    StopSubagents,
    StopTask,
    WorkerReply,
)
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.channel.usage import TurnUsage
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.choices import Config, Offer
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.permissions import PermissionRequest

PROTOCOL: Final = 1
MAX_FRAME: Final = 96 * 1024 * 1024  # bytes; a prompt of one 64 MiB line fits


# --- daemon to worker


class Hello(Frame, frozen=True, kw_only=True, tag="hello"):
    """First frame: the daemon has committed frames up to `after`; its data directory is `data`.

    `database`: it takes DatabaseCall. An earlier version does not, and would end the worker.
    `scheduler`: whether it runs scheduled tasks, `on` or `off`; an earlier version does not say it.
    """

    after: int
    protocol: int
    data: str = ""
    database: bool = False
    scheduler: str = ""


class Where(Frame, frozen=True, kw_only=True, tag="where"):
    """Asks for the worker's data directory: first frame instead of Hello, of any epoch; answered
    with Place.

    The daemon that the worker serves notices nothing. A worker of a version before this frame
    closes the connection.
    """


class Prompt(Frame, frozen=True, kw_only=True, tag="prompt"):
    """Run a turn; `content` are ACP content blocks of the kinds text and resource_link; for a worker
    that says so in Ready also image, and resource with its fields in the block itself.

    `helper`: the client's own prompt, whose answer nobody reads. `links`: a client is there that
    can open a page for the user.
    """

    turn_id: str
    helper: bool = False
    links: bool = False
    content: list[dict[str, Any]]


class Interrupt(Frame, frozen=True, kw_only=True, tag="interrupt"):
    """Stop the turn, keep the session. `why`: if the user did not want it."""

    turn_id: str
    why: str = ""


class Answer(Frame, frozen=True, kw_only=True, tag="answer"):
    """The user's answer to an `ask`; of a form `accept` with its content, `decline`, `cancel`; of a
    plan with a `former` mode also `allow_former`.
    """

    ask_id: str
    decision: Literal[
        "allow_once", "allow_always", "allow_former", "reject", "accept", "decline", "cancel"
    ]
    message: str = ""
    content: dict[str, Any] | None = None


class Ack(Frame, frozen=True, kw_only=True, tag="ack"):
    """Frames up to this number are committed."""

    upto: int


class Ping(Frame, frozen=True, kw_only=True, tag="ping"):
    """A prompt is about to come: answered with Pong if Claude can take one."""


class Stop(Frame, frozen=True, kw_only=True, tag="stop"):
    """End: interrupt what runs, close the CLI, exit. `hooks`: those of the CLI may run as it ends;
    a worker of an earlier version always lets them.
    """

    hooks: bool = True


# --- worker to daemon


class Ready(Frame, frozen=True, kw_only=True, tag="ready"):
    """The CLI is connected; the answer to each Hello. `fresh`: it began a new Claude session,
    nothing was resumed.

    `turn_id` is the last prompt that the worker was given, sent to Claude or not, `asks` are its open
    questions, `background` counts what runs in the background, `mode`, `model` and `config` are what
    Claude runs with: what a daemon must know that did not launch it. `config` None: a version that
    does not take SetConfig. It is so after frame `upto`; 0: the daemon has all frames. `told`: as in
    LaunchSpec, what this worker has said or will say. `blocks`: it takes images and embedded
    resources in a Prompt; a worker of an earlier version does not.
    `steers`: it takes Steer; `steered` are those that have not ended. `running`: the other turns that
    have not; None: of an earlier version.
    """

    pid: int
    protocol: int
    claude_session_id: str
    fresh: bool
    turn_id: str | None = None
    asks: list[str] = msgspec.field(default_factory=list)
    background: int = 0
    mode: str | None = None
    model: str | None = None
    config: Config | None = None
    upto: int = 0
    offer: Offer = Offer()
    told: str = ""
    blocks: bool = False
    steers: bool = False
    steered: list[str] = msgspec.field(default_factory=list)
    running: list[str] | None = None


class _Numbered(Frame, frozen=True, kw_only=True):
    n: int = 0


class TurnStarted(_Numbered, frozen=True, kw_only=True, tag="turn_started"):
    """Claude has begun the turn; `background`: by itself, since a background task ended. `into`: the
    running turn has taken the prompt up.
    """

    turn_id: str
    background: bool = False
    into: str | None = None


class EventFrame(_Numbered, frozen=True, kw_only=True, tag="event"):
    """Carries an event."""

    turn_id: str | None
    event: Event


class AskWithdrawn(_Numbered, frozen=True, kw_only=True, tag="ask_withdrawn"):
    """Withdraws an `ask`: its turn was interrupted."""

    ask_id: str


class TurnEnded(_Numbered, frozen=True, kw_only=True, tag="turn_ended"):
    """Exactly one per turn: a stop reason of ACP, or an error. `last_uuid`: of Claude's transcript.
    `told`: as in LaunchSpec; None: of an earlier version. `windows`: of models, in tokens.
    `untaken`: a hook has taken the prompt away, so that Claude does not remember what it carried.
    """

    turn_id: str
    stop_reason: str | None
    claude_session_id: str
    error: TurnFailure | None = None
    usage: TurnUsage | None = None
    last_uuid: str | None = None
    into: str | None = None  # the turn that has taken its prompt up, and ended with it
    told: str | None = None
    windows: dict[str, int] = msgspec.field(default_factory=dict)
    untaken: bool = False


class Background(_Numbered, frozen=True, kw_only=True, tag="background"):
    """Number of background tasks: a worker that has some is not idle."""

    running: int


class Skipped(_Numbered, frozen=True, kw_only=True, tag="skipped"):
    """Replaces a frame of another version; it makes no event."""


class Gap(_Numbered, frozen=True, kw_only=True, tag="gap"):
    """Replaces the frames from `first` to `n`, which cannot be read from the spool.

    `turn_id` is the turn that was told of there, as far as that is known, `file` where the damaged
    spool is kept.
    """

    first: int
    turn_id: str | None = None
    file: str | None = None


class Offered(Frame, frozen=True, kw_only=True, tag="offered"):
    """What Claude offers has changed since Ready: an MCP server brought prompts, or skills were
    loaded anew.
    """

    offer: Offer


class Heartbeat(Frame, frozen=True, kw_only=True, tag="heartbeat"):
    """The worker's loop is alive. `hangs`: in its turn, Claude's process does not answer."""

    hangs: bool = False


class Pong(Frame, frozen=True, kw_only=True, tag="pong"):
    """The worker and its CLI are alive."""


class Place(Frame, frozen=True, kw_only=True, tag="place"):
    """Answers Where: a worker of `instance` with frames up to `last`, of which those up to `acked`
    are committed.

    `device` and `inode` are those of its data directory, which it holds, wherever that is now: at
    `path`, or deleted. An inode of 0 says that it does not hold one. `attached`: it serves a
    daemon.
    """

    instance: str
    session_id: str
    pid: int
    last: int
    acked: int
    attached: bool
    path: str = ""
    device: int = 0
    inode: int = 0
    deleted: bool = False


class Lost(Frame, frozen=True, kw_only=True, tag="lost"):
    """The worker cannot go on and exits; `kind` and `message` as in TurnFailure."""

    kind: ErrorKind
    message: str

    @property
    def failure(self) -> TurnFailure:
        """Why."""
        return TurnFailure(self.kind, self.message)


ToWorker = (
    Hello
    | Where
    | Prompt
    | Steer
    | StopTask
    | StopSubagents
    | RewindFiles
    | MakeTitle
    | Interrupt
    | SetMode
    | SetModel
    | SetConfig
    | Answer
    | Ack
    | Ping
    | Stop
    | DatabaseAnswer
)
Numbered = (
    TurnStarted
    | EventFrame
    | PermissionRequest
    | AskWithdrawn
    | TurnEnded
    | Background
    | Skipped
    | Gap
)
FromWorker = (
    Ready | Numbered | Offered | Heartbeat | Pong | Place | Lost | DatabaseCall | WorkerReply
)

to_worker: Final[msgspec.json.Decoder[ToWorker]] = msgspec.json.Decoder(ToWorker)
from_worker: Final[msgspec.json.Decoder[FromWorker]] = msgspec.json.Decoder(FromWorker)


def check_order(frame: Numbered, after: int) -> None:
    """Raises ValueError unless the frame is the one that follows number `after`."""
    if (frame.first if isinstance(frame, Gap) else frame.n) != after + 1:
        raise ValueError(f"frame {frame.n} came after {after}")


def decode_to_worker(line: bytes) -> ToWorker | None:
    """Decode a daemon's frame; None if it is unknown. Raises ValueError for what is not JSON."""
    try:
        return to_worker.decode(line)
    except msgspec.ValidationError:
        return None


def encode(frame: ToWorker | FromWorker) -> bytes:
    """Encode a frame as a line. A lone surrogate, which models and tools may produce, becomes a
    `?`.
    """
    try:
        return msgspec.json.encode(frame) + b"\n"
    except UnicodeEncodeError:
        return (
            json.dumps(msgspec.to_builtins(frame), ensure_ascii=False).encode(errors="replace")
            + b"\n"
        )
