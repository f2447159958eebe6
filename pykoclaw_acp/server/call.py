"""A client's call, from its line to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.peer import ClientLine
from pykoclaw_acp.sessions.registry import Sessions

if TYPE_CHECKING:
    from pykoclaw_acp.server.connection import Connection

FollowUp = Callable[[], Coroutine[Any, Any, None]]


@dataclass(eq=False, slots=True)
class Call:
    """A call that is being answered, as its handler sees it."""

    connection: Connection
    request_id: bytes | None
    line: ClientLine
    method: Method[Call, Any] | None
    task: asyncio.Task[None] | None = None
    started: bool = False
    withdrawn: bool = False
    handed_over: bool = False
    cancel_turn: Callable[[], object] | None = None
    follow_ups: list[FollowUp] = field(default_factory=list)  # what begins when the answer was written

    @property
    def sessions(self) -> Sessions:
        """All sessions."""
        return self.connection.sessions

    @property
    def key(self) -> str | None:
        """What names this request for ever; None for a client whose connection is all that we know of it."""
        front = self.connection.peer.key
        return None if front is None else f"{front}:{self.line.number}"

    def on_cancel(self, cancel: Callable[[], object]) -> None:
        """Let `$/cancel_request` call this, instead of giving up the call: the call then answers by itself."""
        self.cancel_turn = cancel
        if self.withdrawn:
            cancel()

    def withdraw(self) -> None:
        """The client sent `$/cancel_request`."""
        self.withdrawn = True
        if self.method is not None and self.method.answers_cancel:
            if self.cancel_turn is not None:
                self.cancel_turn()
        elif self.started and self.task is not None:
            self.task.cancel()

    def warm(self) -> None:
        """A prompt is likely to follow: after the answer, since to start a process takes some milliseconds."""
        self.follow_ups.append(self._warm)

    async def _warm(self) -> None:
        self.sessions.workers.warm()
