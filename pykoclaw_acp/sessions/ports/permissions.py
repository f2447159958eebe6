"""Permission requests in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.permissions import (
    Deadline,
    PermissionRequest,
    RequestPolicy,
    Settlement,
    StoredRequest,
    Workspace,
)
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.ports.store import Store


class PermissionStore(Store, Protocol):
    """Permission requests: pending, parked, settled. The first settlement of a request counts."""

    async def settle(self, settled: Settlement, used: str | None = None) -> None:
        """Record a decision. `used`: the parked request whose decision this is, which is thereby
        used up. Waits while the database cannot be written.
        """

    async def settle_workspaces(
        self,
        settled: Settlement,
        trusted: Sequence[Workspace],
        without: Sequence[Workspace] = (),
    ) -> None:
        """Record the decision of a trust request: trust directories from now on, or run `without`
        what acts there. Waits while the database cannot be written.
        """

    async def park(
        self, session_id: str, request: PermissionRequest, events: Sequence[Event]
    ) -> list[int]:
        """A pending request outlives its worker; logs these events and returns their seqs.

        Raises Conflict if it was settled meanwhile.
        """

    async def answer_parked(self, settled: Settlement, turn: Turn) -> None:
        """Record the decision of a parked request and queue the turn that tells Claude, durably; a
        scheduled task's run whose turn has asked goes on as that. Waits while the database cannot be written.

        Raises Conflict if it was settled before.
        """

    async def set_clock(
        self, ask_id: str, policy: RequestPolicy, deadline: Deadline | None
    ) -> None:
        """The away policy of a pending request, and when it acts; a parked request has none."""

    async def find_active(self, session_id: str | None = None) -> list[StoredRequest]:
        """Pending requests, the oldest first; then decided parked ones whose turn has not ended."""

    async def find_settled(self, ask_ids: Sequence[str]) -> list[StoredRequest]:
        """Return those of these requests that are settled and were not parked."""

    async def find_by_prefix(self, prefix: str) -> list[StoredRequest]:
        """Requests whose id starts with `prefix`, settled ones too, pending ones first;
        20 at most.
        """

    async def is_pending(self, ask_id: str) -> bool:
        """Whether the request is pending."""
