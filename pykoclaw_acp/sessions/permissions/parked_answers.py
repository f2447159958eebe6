"""Answers to parked questions: each holds for the very same call when Claude makes it again, once."""

from __future__ import annotations

from pykoclaw_acp.model.permissions import Decision, PermissionRequest, StoredRequest
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.permissions import decisions


class ParkedAnswers:
    """Those of one session that were not used yet, by the turn that goes on with the answer."""

    def __init__(self) -> None:
        self._by_turn: dict[str, tuple[PermissionRequest, Decision]] = {}

    def add(self, turn: Turn, request: PermissionRequest, verdict: Decision) -> None:
        """This turn goes on with the answer, which ends with it."""
        self._by_turn[turn.turn_id] = (request, verdict)
        turn.ended.add_done_callback(lambda _: self._by_turn.pop(turn.turn_id, None))

    def restore(self, row: StoredRequest) -> None:
        """A turn of another daemon's time goes on with the answer to this question."""
        if row.turn_id is not None and row.outcome is not None:
            self._by_turn[row.turn_id] = (row.request, Decision(row.outcome, row.option, row.answered_by))

    def take(self, request: PermissionRequest) -> tuple[str, Decision] | None:
        """The answer to this question, with the id of the parked one that it was given to, if there is one."""
        parked, verdict = self._by_turn.get(request.turn_id, (None, None))
        if parked is None or verdict is None or not decisions.same_call(parked, request):
            return None
        del self._by_turn[request.turn_id]  # once is once
        return parked.ask_id, verdict
