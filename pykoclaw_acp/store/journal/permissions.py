"""Permission requests, over `store/permissions.py`."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp import long_texts
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
from pykoclaw_acp.store import events, permissions, rules, task_requests, trust, turns
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Unit
from pykoclaw_acp.tasks import in_pieces


class SqlPermissionStore(SqlStore):
    """Implements `sessions.ports.PermissionStore`."""

    async def settle(self, settled: Settlement, used: str | None = None) -> None:
        """Record a decision, and that the parked request `used` is used up."""
        more = () if used is None else (permissions.use_up(used),)
        told = (permissions.settle(settled), *rules.grant(settled), *more)
        await self._commit(Unit(statements=told, durable=bool(settled.rules)), patient=True)

    async def settle_workspaces(
        self,
        settled: Settlement,
        trusted: Sequence[Workspace],
        without: Sequence[Workspace] = (),
    ) -> None:
        """Record the decision of a trust request: trust directories, or run `without` what acts."""
        by = settled.answered_by or ""
        rows = [row for one in trusted for row in trust.grant(one, by)]
        rows += [trust.run_without(one, by) for one in without]
        unit = Unit(statements=(permissions.settle(settled), *rows), durable=bool(trusted))
        await self._commit(unit, patient=True)

    async def park(
        self, session_id: str, request: PermissionRequest, said: Sequence[Event]
    ) -> list[int]:
        """A pending request outlives its worker."""
        rows = events.rows(session_id, request.turn_id, said)
        return await self._commit(Unit(statements=(permissions.park(request.ask_id),), events=rows))

    async def answer_parked(self, settled: Settlement, turn: Turn) -> None:
        """Record the decision of a parked request and queue the turn that tells Claude, durably, as which
        a scheduled task's run goes on.
        """
        told = (
            task_requests.go_on_as(turn.turn_id, settled.permission_id),
            permissions.settle_parked(settled, turn.turn_id),
        )
        prompt = await in_pieces(long_texts.encoded(turn.content))
        await self._commit(
            Unit(
                statements=(*told, *rules.grant(settled), turns.insert(turn, prompt)), durable=True
            ),
            patient=True,
        )

    async def set_clock(
        self, ask_id: str, policy: RequestPolicy, deadline: Deadline | None
    ) -> None:
        """The away policy of a pending request, and when it acts."""
        await self._run(permissions.set_clock(ask_id, policy, deadline))

    async def find_active(self, session_id: str | None = None) -> list[StoredRequest]:
        """Pending requests, the oldest first; then decided parked ones whose turn has not ended."""
        return await permissions.waiting(self._database, session_id)

    async def find_settled(self, ask_ids: Sequence[str]) -> list[StoredRequest]:
        """Return those of these requests that are settled and were not parked."""
        return await permissions.settled(self._database, ask_ids)

    async def find_by_prefix(self, prefix: str) -> list[StoredRequest]:
        """Requests whose id starts with `prefix`."""
        return await permissions.matching(self._database, prefix)

    async def is_pending(self, ask_id: str) -> bool:
        """Whether the request is pending."""
        return await permissions.is_open(self._database, ask_id)
