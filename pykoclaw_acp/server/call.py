"""A call of a client, from its line to its response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pykoclaw_acp.server.acp_client import AcpClient
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.peer import ClientLine
from pykoclaw_acp.sessions.follow_ups import FollowUp
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.subscriber import Subscriber


@dataclass(eq=False, slots=True)
class Call:
    """A call as its handler sees it."""

    client: AcpClient
    request_id: bytes | None
    line: ClientLine
    method: Method[Call, Any] | None
    task: asyncio.Task[None] | None = None
    started: bool = False
    begun: bool = False
    """Whether the handler has begun."""
    withdrawn: bool = False
    handed_over: bool = False
    cancel_turn: Callable[[], object] | None = None
    # What begins when the answer was written
    follow_ups: list[FollowUp] = field(default_factory=list)

    @property
    def sessions(self) -> Sessions:
        """All sessions."""
        return self.client.subscriber.sessions

    @property
    def subscriber(self) -> Subscriber:
        """The client, as sessions know it."""
        return self.client.subscriber

    @property
    def legacy_models(self) -> bool:
        """Whether the client gets `models` and `session/set_model`, which ACP has given up."""
        setting = self.sessions.showing.legacy_models
        return self.subscriber.traits.legacy_models if setting is None else setting

    @property
    def key(self) -> str | None:
        """The request key; None for a client that is known by its connection only."""
        return self.client.request_key(self.line.number)

    def on_cancel(self, cancel: Callable[[], object]) -> None:
        """Call this on `$/cancel_request` instead of abandoning the call, which then responds by
        itself.
        """
        self.cancel_turn = cancel
        if self.withdrawn:
            cancel()

    def withdraw(self) -> None:
        """The client sent `$/cancel_request`."""
        self.withdrawn = True
        if self.method is not None and self.method.answers_cancel:
            if self.cancel_turn is not None:
                self.cancel_turn()
        elif self.started:
            self.give_up()

    def give_up(self) -> None:
        """Cancel the call, unless it changes something already: that is done to its end."""
        changing = self.begun and self.method is not None and self.method.changes
        if self.task is not None and not changing:
            self.task.cancel()
