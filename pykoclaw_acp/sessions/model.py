"""What a session and a turn are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

TurnState = Literal["queued", "dispatched", "running", "done", "cancelled", "failed", "unknown"]


@dataclass(slots=True)
class SessionRecord:
    """A session as the database keeps it; times are milliseconds since 1970."""

    session_id: str
    conversation_name: str
    cwd: str | None
    additional_directories: tuple[str, ...] = ()
    model: str | None = None
    last_seq: int = 0
    claude_session_id: str | None = None
    closed: bool = False


@dataclass(frozen=True, slots=True)
class TurnFault:
    """Why a turn has no answer: `kind` for programs, `message` for people, HTTP `status` where there is one."""

    kind: str
    message: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended; `usage` counts tokens of this turn alone, by ACP's names."""

    state: TurnState
    stop_reason: str | None = None
    fault: TurnFault | None = None
    usage: dict[str, int] | None = None
    claude_session_id: str | None = None


@dataclass(eq=False, slots=True)
class Turn:
    """A prompt on its way: `ended` resolves to its outcome and the seq up to which it is told.

    `spoke`: something of the answer is in the log. `cancelled` is set when the user wants the turn to stop.
    """

    turn_id: str
    session_id: str
    content: list[dict[str, Any]]
    state: TurnState = "queued"
    spoke: bool = False
    ending: bool = False
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Future[tuple[Outcome, int]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(frozen=True, slots=True)
class TurnTimes:
    """Seconds: how long an interrupted turn may take, and how long a question waits (None: for ever)."""

    cancel_grace: float
    permission_timeout: float | None
