"""Decisions on parked requests: each allows or refuses the identical call once, when Claude makes
it again.
"""

from __future__ import annotations

from dataclasses import replace

from pykoclaw_acp.model.permissions import Decision, PermissionRequest, StoredRequest
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.permissions import decisions


class ParkedAnswers:
    """Decisions of one session that were not used yet, by the turn that goes on with them."""

    def __init__(self) -> None:
        self._by_turn: dict[str, tuple[PermissionRequest, Decision]] = {}

    def add(self, turn: Turn, request: PermissionRequest, decision: Decision) -> None:
        """Keep the decision until this turn ends."""
        self._by_turn[turn.turn_id] = (request, decision)
        turn.ended.add_done_callback(lambda _: self._by_turn.pop(turn.turn_id, None))

    def restore(self, row: StoredRequest) -> None:
        """Keep the decision that an earlier daemon recorded, for the turn in the row."""
        if row.turn_id is not None and row.outcome is not None:
            self._by_turn[row.turn_id] = (
                row.request,
                Decision(row.outcome, row.option, row.answered_by),
            )

    def take(self, request: PermissionRequest) -> tuple[str, Decision] | None:
        """Remove and return the decision on this call, with the id of the parked request; None if
        there is none. Where "always" would allow something else now, or a plan would not lead back to
        the same mode, the call is allowed once.
        """
        parked, decision = self._by_turn.get(request.turn_id, (None, None))
        if parked is None or decision is None or not decisions.same_call(parked, request):
            return None
        del self._by_turn[request.turn_id]
        if _lasting(decision, parked) != _lasting(decision, request):
            decision = replace(decision, option=decisions.ALLOW_ONCE)
        return parked.ask_id, decision


def _lasting(decision: Decision, request: PermissionRequest) -> object:
    """What the decision allows beyond the call."""
    if decision.option == decisions.ALLOW_FORMER:
        return request.former
    always = decision.option in (decisions.ALLOW_ALWAYS, decisions.ALLOW_LASTING)
    return (request.always, request.rules) if always else None
