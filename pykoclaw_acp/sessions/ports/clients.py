"""An attached client, as sessions see it."""

from __future__ import annotations

from typing import Any, Protocol

from pykoclaw_acp.model.choices import Command, Selection
from pykoclaw_acp.model.events import PlanEntry
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import Decision, PermissionRequest


class Client(Protocol):
    """One attached client, as sessions see it; what it raises ends its subscription, never the
    session.

    `session_id` is in each case the id under which the client was attached, which may be an alias.
    """

    @property
    def name(self) -> str:
        """What it calls itself."""

    @property
    def present(self) -> bool:
        """Whether it can be asked; one that only follows cannot."""

    @property
    def forms(self) -> bool:
        """Whether it can show a form."""

    @property
    def pages(self) -> bool:
        """Whether it can open a page for the user."""

    @property
    def only_declines(self) -> bool:
        """Whether a form that it shows can be declined there, and not be filled in."""

    @property
    def asks_together(self) -> bool:
        """Whether it shows several permission requests of a session at the same time."""

    @property
    def cancels_when_absent(self) -> bool:
        """Whether it cancels a permission request because nobody is there to see it."""

    @property
    def drops_plan(self) -> bool:
        """Whether it shows no plan any more when it sends a prompt."""

    async def repeat_request(self, ask_id: str) -> None:
        """Show once more what the client has not answered of a request that it was asked."""

    def close_request(self, ask_id: str, decision: Decision | None = None) -> None:
        """Close a request, which is settled in the database; also called on the client that
        answered. `decision`: how; None if it was withdrawn, or this client is asked no more.
        """

    async def start_updates(self, session_id: str, seq: int, number: int) -> None:
        """Announce the updates after `seq`; `number` is the client's line that asked for
        everything, or 0.
        """

    def stop_updates(self, session_id: str) -> None:
        """End the updates: the client follows the session no longer."""

    def recall(self, session_id: str, logged: Logged) -> None:
        """Note that the client was shown this event, which still holds, by an earlier daemon."""

    async def deliver(self, session_id: str, logged: Logged) -> None:
        """Show an event; returns when the client's buffer has room."""

    async def offer(self, session_id: str, commands: tuple[Command, ...]) -> None:
        """Show which slash commands there are."""

    async def show_choices(self, session_id: str, selection: Selection) -> None:
        """Show what can be chosen, since Claude now offers something else."""

    async def insert(self, session_id: str, message_id: str, text: str) -> None:
        """Show text that is not in the log, as a part of this message of Claude's."""

    async def show(self, session_id: str, message_id: str, text: str) -> None:
        """Show text that is not in the log, as a note of ours."""

    async def show_plan(self, session_id: str, entries: tuple[PlanEntry, ...]) -> None:
        """Show the plan once more, which holds, and which the client has dropped."""

    async def skip_own(self, session_id: str, seq: int) -> None:
        """Move on past the event at `seq`, the client's own message, which it has already."""

    async def request_permission(
        self, session_id: str, request: PermissionRequest
    ) -> dict[str, Any]:
        """Ask for a decision; returns ACP's `outcome` object, or `action` and `content` for a form.

        Cancelling it withdraws the request.
        """
