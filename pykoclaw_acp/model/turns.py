"""Sessions and turns: plain data."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.branches import Branch
from pykoclaw_acp.model.choices import Config
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.lost_context import LostContext
from pykoclaw_acp.model.session_environment import ClientEnvironment, StoredEnvironment
from pykoclaw_acp.model.session_options import SessionOptions

AWAY_GRACE: Final = 5.0  # s; a front that reconnects within it was not away


class TurnState(StrEnum):
    """State of a turn; it only moves forward. Values of `acp_turns.state`."""

    QUEUED = "queued"  # accepted and durable; prompt not sent to a worker
    DISPATCHED = "dispatched"  # prompt being sent or sent to a worker; never sent again
    RUNNING = "running"  # Claude has started on it
    DONE = "done"  # Claude has answered
    CANCELLED = "cancelled"  # ended by the user, or before its prompt was sent
    FAILED = "failed"  # ended by an error; part of an answer may be in the log
    UNKNOWN = "unknown"  # its worker ended, and whether Claude had started is unknown


class TurnOrigin(StrEnum):
    """What began a turn. Values of `acp_turns.origin`."""

    CLIENT = "client"  # a prompt, whoever has sent it
    BACKGROUND = "background"  # Claude itself, as when background work ends


_OURS: Final = ("task", "limit")  # as what comes before the `:` in `run_key` and LimitWait's key
UNFINISHED: Final = (TurnState.QUEUED, TurnState.DISPATCHED, TurnState.RUNNING)
STARTED: Final = (TurnState.DISPATCHED, TurnState.RUNNING)  # a worker has its prompt, or may have


@dataclass(slots=True)
class SessionRecord:
    """Row of a session; times are milliseconds since 1970."""

    session_id: str
    conversation_name: str
    cwd: str | None
    additional_directories: tuple[str, ...] = ()
    mode: str | None = None  # None: the setting's
    model: str | None = None
    config: Config = field(default_factory=Config)
    options: SessionOptions = field(default_factory=SessionOptions)
    title: str | None = None
    title_by: str = ""  # as in TitleChanged
    last_seq: int = 0
    pruned_upto: int = 0  # events up to here were deleted
    prompted: bool = False
    auxiliary: bool = False  # prompted, but never by a person
    claude_session_id: str | None = None
    closed: bool = False
    request_key: str | None = None  # of the session/new that made it
    client: str | None = None  # name of the client that made it
    away_policy: AwayPolicy | None = None  # None: the setting's
    steers: bool = False  # prompts go into the running turn, unless they say otherwise
    branch: Branch | None = None  # where its next Claude session begins; None: it has one, or none
    environment: StoredEnvironment = field(default_factory=StoredEnvironment)
    real_cwd: str | None = None  # without symbolic links; None: the same path, or nobody has looked
    works_for: str | None = None  # conversation of the task that it runs aside; None: its own


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of a turn; `usage`: tokens of this turn, under ACP's names. `last_uuid`: its last entry in
    Claude's transcript. `goes_on_at`: when the session resumes by itself (seconds since 1970), after
    so many `tries`. `told`: if it was cancelled, the log needs no line that says so.
    `stopped_in`: where, if the log is to say it. `unsaid`: the prompt was never given to Claude, and the
    log is yet to say what it was.
    """

    state: TurnState
    stop_reason: str | None = None
    failure: TurnFailure | None = None
    usage: dict[str, int] | None = None
    claude_session_id: str | None = None
    last_uuid: str | None = None
    goes_on_at: int | None = None
    tries: int = 0
    told: bool = False
    stopped_in: str = ""
    unsaid: bool = False


@dataclass(frozen=True, slots=True)
class PromptKeys:
    """Keys that identify a re-sent prompt.

    `request`: front and line number. `idempotency`: chosen by the client. `fingerprint`: of the
    user's words.
    """

    request: str | None = None
    idempotency: str | None = None
    fingerprint: str | None = None

    def is_same(self, other: PromptKeys) -> bool:
        """Whether both are keys of one prompt, whatever its words are."""
        return (self.request is not None and self.request == other.request) or (
            self.idempotency is not None and self.idempotency == other.idempotency
        )

    @property
    def front(self) -> str | None:
        """Front that the prompt came through, if any."""
        return None if self.request is None else self.request.rpartition(":")[0]


@dataclass(eq=False, slots=True)
class Turn:
    """A turn in memory: `ended` resolves to its outcome and the seq up to which it is in the log.

    `created_at` is for people; `sent` decides: when its client sent it (ms, data directory's
    clock). `client`, `client_process`: name and process of the client that sent it, if known.
    `taken_up`: its worker says that Claude has begun it; `spoke`: part of the answer is in the log.
    `cancelled`: set to stop the turn; `stopped_in`: as in Outcome. `waiting`:
    number of calls waiting for its end; `lost_at` (s, monotonic): since when there is none.
    `answered`: a client has the response. `unattended`: no client's response waits for its end;
    `detached`: nor does a command wait for it. `attempts`:
    daemons that died while preparing it; `begun`: this one is counted in the journal. `task_id`: of
    the scheduled task whose run it is; `aside`: in a session of its own. `helper`: a prompt that a client
    made for itself. `blobs`: bytes that its
    content refers to, by their hashes, until it is accepted.
    `steers`: it is to go into the turn that runs; `waited`: one ran when it came; `taken_by`: the turn
    that has taken it up; `answered_with`: prompts for this turn that have no response of their own,
    each of them `hosted`;
    `unsaid`: it was given to Claude, and its message is not in the log yet;
    `leaving`: it is `dispatched`, and its worker does not have it yet; `given`: by the command that
    sent it, or that has decided what it tells. `recovered`: an earlier daemon accepted it;
    `resent`: one may have.
    """

    turn_id: str
    session_id: str
    content: list[dict[str, Any]]
    keys: PromptKeys = PromptKeys()
    created_at: int = field(default_factory=lambda: time.time_ns() // 1_000_000)  # ms since 1970
    client: str | None = None
    client_process: str | None = None
    waiting: int = 0
    answered: bool = False
    sent: int = 0
    unattended: bool = False
    detached: bool = False
    attempts: int = 0
    begun: bool = False
    task_id: str | None = None
    aside: bool = False
    helper: bool = False
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    steers: bool = False
    waited: bool = False
    taken_by: str | None = None
    answered_with: list[Turn] = field(default_factory=list)
    hosted: bool = False
    unsaid: bool = False
    leaving: bool = False
    given: ClientEnvironment | None = None
    recovered: bool = False
    resent: bool = False
    lost_at: float | None = None
    state: TurnState = TurnState.QUEUED
    taken_up: bool = False
    spoke: bool = False
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    stopped_in: str = ""
    ended: asyncio.Future[tuple[Outcome, int]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def alone(self) -> bool:
        """Whether nobody stands behind it who could be asked in time."""
        return self.task_id is not None or self.detached

    @property
    def is_ours(self) -> bool:
        """Whether neither a client nor a command has sent its prompt, and nobody sends it again."""
        return self.keys.front in _OURS

    @property
    def tells_answer(self) -> bool:
        """Whether it tells Claude the answer to a parked request."""
        return self.keys.front == "task" and self.task_id is None

    @property
    def length(self) -> int:
        """Length of its texts in characters."""
        return sum(len(block.get("text", "")) for block in self.content)

    @property
    def untold(self) -> bool:
        """Whether its message is not in the log yet."""
        return self.state == TurnState.QUEUED or self.unsaid

    def with_answered(self) -> Iterator[Turn]:
        """Yield it, then the turns of `answered_with`, and of theirs."""
        yield self
        for one in self.answered_with:
            yield from one.with_answered()

    async def over(self) -> None:
        """Wait for its end."""
        await asyncio.wait([self.ended])

    def came_after(self, at: int, request: str | None) -> bool:
        """Whether it was sent after another line: by number within one front, else by the clock."""
        front, _, number = (request or "").rpartition(":")
        if front and self.keys.front == front:
            return int((self.keys.request or "").rpartition(":")[2]) > int(number)
        return self.sent > at


@dataclass(frozen=True, slots=True)
class TurnTimes:
    """Time limits in seconds: of an interrupted turn, a permission request (None: unlimited), a
    re-sent prompt.

    `away_policy` applies to requests while no client is connected, `away_timeout` limits its
    `wait`, `away_grace` is how long a client may be gone before it counts as away. `lost_context`:
    of a prompt whose conversation Claude does not remember. `usage_limit`: what a session does that
    one has stopped, `stop` or `wait`.
    """

    cancel_grace: float
    permission_timeout: float | None
    rejoin_window: float
    away_policy: AwayPolicy
    away_timeout: float
    lost_context: LostContext
    usage_limit: str
    away_grace: float = AWAY_GRACE  # no setting
