"""What a session and a turn are."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.failures import TurnFailure

AWAY_GRACE: Final = 5.0  # s; a front that reconnects, also to a new daemon, was never away


class TurnState(StrEnum):
    """How far a turn has come; it moves forward only. The values are those of `acp_turns.state`."""

    QUEUED = "queued"  # accepted and durable; its prompt has not left for a worker
    DISPATCHED = "dispatched"  # its prompt leaves for a worker, or has left: it is never sent again
    RUNNING = "running"  # Claude has taken it up
    DONE = "done"  # Claude has answered
    CANCELLED = "cancelled"  # ended because its user wanted that, or before its prompt left
    FAILED = "failed"  # ended by an error; part of an answer may be in the log
    UNKNOWN = "unknown"  # its worker is gone, and nobody can say whether Claude had begun


UNFINISHED: Final = (TurnState.QUEUED, TurnState.DISPATCHED, TurnState.RUNNING)
STARTED: Final = (TurnState.DISPATCHED, TurnState.RUNNING)  # a worker has its prompt, or may have it


@dataclass(slots=True)
class SessionRecord:
    """A session as the database keeps it; times are milliseconds since 1970."""

    session_id: str
    conversation_name: str
    cwd: str | None
    additional_directories: tuple[str, ...] = ()
    mode: str | None = None  # None: the setting's
    model: str | None = None
    title: str | None = None
    last_seq: int = 0
    pruned_upto: int = 0  # the events up to here are gone
    prompted: bool = False
    auxiliary: bool = False  # prompted, but never by a person
    claude_session_id: str | None = None
    closed: bool = False
    request_key: str | None = None  # of the session/new that made it
    client: str | None = None  # name of the client that made it
    away_policy: AwayPolicy | None = None  # None: the setting's


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended; `usage` counts tokens of this turn alone, by ACP's names."""

    state: TurnState
    stop_reason: str | None = None
    failure: TurnFailure | None = None
    usage: dict[str, int] | None = None
    claude_session_id: str | None = None


@dataclass(frozen=True, slots=True)
class PromptKeys:
    """Keys that identify a re-sent prompt.

    `request`: which line of which front it is. `idempotency`: chosen by the client. `fingerprint`: of the user's words.
    """

    request: str | None = None
    idempotency: str | None = None
    fingerprint: str | None = None

    @property
    def front(self) -> str | None:
        """The front that the prompt came through, if it was one."""
        return None if self.request is None else self.request.rpartition(":")[0]


@dataclass(eq=False, slots=True)
class Turn:
    """A prompt on its way: `ended` resolves to its outcome and the seq up to which it is told.

    `created_at` is for people; what decides is `sent`, when its client sent it (ms, the data directory's own clock).
    `spoke`: something of the answer is in the log. `cancelled` is set when the user wants the turn to stop. `waiting`
    counts the calls that will be answered by it; `lost_at` (s, monotonic) is since when there is none, and `answered`
    says that a client has got the response. `unattended`: it runs although nobody stands behind it.
    `attempts` counts the daemons that died while they prepared it; that this one does (`begun`) is in the journal.
    """

    turn_id: str
    session_id: str
    content: list[dict[str, Any]]
    keys: PromptKeys = PromptKeys()
    created_at: int = field(default_factory=lambda: time.time_ns() // 1_000_000)  # ms since 1970
    client: str | None = None
    waiting: int = 0
    answered: bool = False
    sent: int = 0
    unattended: bool = False
    attempts: int = 0
    begun: bool = False
    lost_at: float | None = None
    state: TurnState = TurnState.QUEUED
    spoke: bool = False
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Future[tuple[Outcome, int]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def length(self) -> int:
        """Characters of its texts."""
        return sum(len(block.get("text", "")) for block in self.content)

    async def over(self) -> None:
        """Wait until it has ended."""
        await asyncio.wait([self.ended])

    def came_after(self, at: int, request: str | None) -> bool:
        """Whether its client sent it after another line: by number if one front sent both, else by the own clock."""
        front, _, number = (request or "").rpartition(":")
        if front and self.keys.front == front:
            return int((self.keys.request or "").rpartition(":")[2]) > int(number)
        return self.sent > at


@dataclass(frozen=True, slots=True)
class TurnTimes:
    """Seconds: for an interrupted turn, a question (None: for ever), and a prompt that comes again to join its turn.

    `away_policy` decides about questions while no client is there, `away_timeout` is the limit of its `wait`, and
    `away_grace` how long a client may be gone before it is away.
    """

    cancel_grace: float
    permission_timeout: float | None
    rejoin_window: float
    away_policy: AwayPolicy
    away_timeout: float
    away_grace: float = AWAY_GRACE
