"""An attached client, as sessions see it."""

from __future__ import annotations

from typing import Any, Protocol

from pykoclaw_acp.model.choices import Command
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import PermissionRequest


class Client(Protocol):
    """One attached client, as sessions see it; what it raises ends its subscription, never the session.

    `session_id` is in each case the id under which the client was attached, which may be an alias.
    """

    @property
    def name(self) -> str:
        """What it calls itself."""

    @property
    def present(self) -> bool:
        """Whether it can be asked: one that only follows cannot, and is nobody when it comes to questions."""

    @property
    def forms(self) -> bool:
        """Whether it can be asked a question that is a form."""

    def settled(self, ask_id: str) -> None:
        """No answer of this client is needed any more, and the database knows it; told also to who answered."""

    async def attached(self, session_id: str, seq: int, number: int) -> None:
        """What follows `seq` will be delivered; `number` is the client's line that asked for everything, or 0."""

    def detached(self, session_id: str) -> None:
        """The session was closed: nothing more of it will be delivered."""

    async def deliver(self, session_id: str, logged: Logged) -> None:
        """Show an event; returns when the client's buffer has room."""

    async def offer(self, session_id: str, commands: tuple[Command, ...]) -> None:
        """Show which slash commands there are."""

    async def end_line(self, session_id: str, seq: int) -> None:
        """Send an empty line after what was said up to `seq`."""

    async def passed(self, session_id: str, seq: int) -> None:
        """The event at `seq` is the client's own message, which it has already."""

    async def ask(self, session_id: str, question: PermissionRequest) -> dict[str, Any]:
        """Ask; the answer is ACP's `outcome` object, that to a form has `action` and `content`.

        Cancelling it withdraws the question.
        """
