"""What sessions need from the outside: the journal, the workers, the clients. Implemented in store/, pool/, server/."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pykoclaw_acp.sessions.events import Event
from pykoclaw_acp.sessions.model import Outcome, SessionRecord, Turn
from pykoclaw_acp.worker.frames import Ask, Numbered, ToWorker
from pykoclaw_acp.worker.spec import McpStdio


class WorkerFailed(Exception):
    """No worker could be had; `kind` for programs, the message for people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


@dataclass(frozen=True, slots=True)
class WorkerWish:
    """What a session wants of its worker; which Claude session it resumes is `set_resume`'s business."""

    session_id: str
    cwd: str
    additional_directories: tuple[str, ...]
    mcp_servers: tuple[McpStdio, ...]
    model: str | None
    permission_mode: str
    setting_sources: tuple[str, ...]
    cli_path: str | None
    log_level: Literal["debug", "info", "warning", "error"]


class Workers(Protocol):
    """The pool, as sessions see it."""

    def set_resume(self, acp_session_id: str, claude_session_id: str | None) -> None: ...
    def warm(self) -> None: ...
    def is_live(self, session_id: str) -> bool: ...
    async def acquire(self, wish: WorkerWish) -> int: ...
    def release(self, session_id: str) -> None: ...
    async def send(self, session_id: str, frame: ToWorker) -> None: ...
    def kill(self, session_id: str) -> None: ...
    def retire(self, session_id: str) -> None: ...
    async def stop(self, session_id: str) -> None: ...


class WorkerListener(Protocol):
    """Who gets the workers' frames. `frames` returns after the commit; what it raises ends the worker."""

    async def frames(self, session_id: str, epoch: int, frames: Sequence[Numbered]) -> None: ...
    async def lost(self, session_id: str, epoch: int, kind: str, message: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Logged:
    """An event at its place in a session's log; `event` is None where the row cannot be read. `size` is the row's."""

    seq: int
    turn_id: str | None
    event: Event | None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Settled:
    """How a permission question ended, for its row."""

    permission_id: str
    outcome: str
    option_id: str | None = None
    answered_by: str | None = None


class Journal(Protocol):
    """The database, as sessions see it. Every method that writes returns after the commit."""

    async def create(self, record: SessionRecord) -> None:
        """A new session and its conversation."""

    async def find(self, session_id: str) -> SessionRecord | None:
        """The session, unless there is none or it was deleted."""

    async def name_taken(self, name: str) -> bool:
        """Whether a conversation, ours or another channel's, has this name."""

    async def adopt(self, record: SessionRecord) -> None:
        """What a load changes: its directories, and that it is open again."""

    async def mark_closed(self, session_id: str) -> None:
        """The client closed the session."""

    async def accept(self, turn: Turn) -> None:
        """A prompt was accepted: `queued`, durable."""

    async def dispatch(self, turn: Turn, epoch: int, events: Sequence[Event]) -> list[int]:
        """`queued` to `dispatched`, durable, with the user's message; returns the events' seqs."""

    async def record(
        self, session_id: str, epoch: int, frames: Sequence[Numbered], outcomes: dict[str, Outcome]
    ) -> list[Logged]:
        """A worker's frames: events, turn states, questions, its acknowledged frame, in one transaction.

        `outcomes` are the ends of turns among the frames, by turn.
        """

    async def finish(self, session_id: str, turn_id: str, outcome: Outcome, events: Sequence[Event]) -> list[int]:
        """End a turn that no worker can end, with what is to be said about it."""

    async def append(self, session_id: str, events: Sequence[Event]) -> list[int]:
        """Events outside of any turn."""

    async def settle(self, settled: Settled) -> None:
        """A permission question is answered, or moot."""

    async def read(self, session_id: str, after: int, limit: int) -> list[Logged]:
        """The log from `after` on, in order."""


class Client(Protocol):
    """One attached client, as sessions see it; what it raises ends its attachment, never the session."""

    async def deliver(self, session_id: str, logged: Logged) -> None:
        """Show an event; returns when the client's buffer has room."""

    async def ask(self, session_id: str, question: Ask) -> dict[str, Any]:
        """Ask for permission; the answer is ACP's `outcome` object. Cancelling it withdraws the question."""
