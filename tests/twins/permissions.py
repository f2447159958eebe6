"""The twin of `sessions.ports.PermissionStore`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.permissions import (
    Deadline,
    PermissionRequest,
    RequestOutcome,
    RequestPolicy,
    Settlement,
    StoredRequest,
    Workspace,
)
from pykoclaw_acp.model.turns import Turn
from tests.twins.base import MemoryStore

MATCHES = 20


class MemoryPermissionStore(MemoryStore):
    async def settle(self, settled: Settlement, used: str | None = None) -> None:
        def settle() -> None:
            self._settle(settled)
            if used is not None and self._is_parked(used):
                self._change(used, turn_id=None)

        await self.database.write(settle, patient=True)

    async def settle_workspaces(
        self,
        settled: Settlement,
        trusted: Sequence[Workspace],
        without: Sequence[Workspace] = (),
    ) -> None:
        def settle() -> None:
            self._settle(settled)
            for one in trusted:
                self.database.trust_content(one, settled.answered_by or "")

        await self.database.write(settle, patient=True)

    async def park(
        self, session_id: str, ask: PermissionRequest, events: Sequence[Event]
    ) -> list[int]:
        def park() -> list[int]:
            self._require_pending(ask.ask_id)
            self._change(
                ask.ask_id, policy=RequestPolicy.PARKED, deadline=None, deadline_clock=None
            )
            return self.database.log(session_id, ask.turn_id, events)

        return await self.database.write(park)

    async def answer_parked(self, settled: Settlement, turn: Turn) -> None:
        def answer() -> None:
            parked = self._require_pending(settled.permission_id)
            if parked.policy != RequestPolicy.PARKED:
                raise Conflict(f"the request {settled.permission_id} is not parked")
            self.database.queue(turn)
            run = self.database.runs.get(parked.turn_id or "")
            if run is not None and not run.ended:
                placed = replace(run, run=replace(run.run, turn_id=turn.turn_id))
                self.database.place_run(run.run.turn_id, placed)
            self._settle(settled)
            self._change(settled.permission_id, turn_id=turn.turn_id)

        await self.database.write(answer, patient=True)

    async def set_clock(
        self, ask_id: str, policy: RequestPolicy, deadline: Deadline | None
    ) -> None:
        def change() -> None:
            known = self.database.requests.get(ask_id)
            if known is not None and known.outcome is None and known.policy != RequestPolicy.PARKED:
                shown, clock = (
                    (None, None) if deadline is None else (deadline.shown, deadline.clock)
                )
                self._change(ask_id, policy=policy, deadline=shown, deadline_clock=clock)

        await self.database.write(change)

    async def find_active(self, session_id: str | None = None) -> list[StoredRequest]:
        rows = self.database.read().requests.values()
        mine = [one for one in rows if session_id in (None, one.session_id)]
        pending = [
            one
            for one in mine
            if one.outcome is None and not self.database.sessions[one.session_id].deleted
        ]
        return [*pending, *(one for one in mine if self._goes_on(one))]

    async def find_settled(self, ask_ids: Sequence[str]) -> list[StoredRequest]:
        rows = self.database.read().requests.items()
        return [
            one
            for key, one in rows
            if key in ask_ids and one.outcome is not None and one.policy != RequestPolicy.PARKED
        ]

    async def find_by_prefix(self, prefix: str) -> list[StoredRequest]:
        rows = [one for key, one in self.database.read().requests.items() if key.startswith(prefix)]
        rows.reverse()  # the newest first, and those that are pending before others
        return sorted(rows, key=lambda one: one.outcome is not None)[:MATCHES]

    async def is_pending(self, ask_id: str) -> bool:
        known = self.database.read().requests.get(ask_id)
        return known is not None and known.outcome is None

    def _goes_on(self, one: StoredRequest) -> bool:
        """Whether a turn goes on with the decision on this parked request."""
        turn = self.database.turns.get(one.turn_id or "")
        chosen = one.policy == RequestPolicy.PARKED and one.outcome == RequestOutcome.SELECTED
        return chosen and turn is not None and turn.unfinished

    def _require_pending(self, ask_id: str) -> StoredRequest:
        known = self.database.requests.get(ask_id)
        if known is None or known.outcome is not None:
            raise Conflict(f"the request {ask_id} is not pending")
        return known

    def _is_parked(self, ask_id: str) -> bool:
        known = self.database.requests.get(ask_id)
        return known is not None and known.policy == RequestPolicy.PARKED

    def _settle(self, settled: Settlement) -> None:
        known = self.database.requests.get(settled.permission_id)
        if known is not None and known.outcome is None:
            self._change(
                settled.permission_id,
                outcome=settled.outcome,
                option=settled.option_id,
                answered_by=settled.answered_by,
                content=settled.content,
            )
            where = settled.path or known.session_id
            self.database.rules |= {(where, rule) for rule in settled.rules}

    def _change(self, ask_id: str, **changes: object) -> None:
        self.database.requests[ask_id] = replace(self.database.requests[ask_id], **changes)  # type: ignore[arg-type]
