"""Answers to parked questions: each holds for the very same call when Claude makes it again, once."""

from __future__ import annotations

from pykoclaw_acp.model.permissions import Ask, Question, Verdict
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.permissions import decisions


class Grants:
    """Those of one session that were not used yet, by the turn that goes on with the answer."""

    def __init__(self) -> None:
        self._by_turn: dict[str, tuple[Ask, Verdict]] = {}

    def add(self, turn: Turn, ask: Ask, verdict: Verdict) -> None:
        """This turn goes on with the answer, which ends with it."""
        self._by_turn[turn.turn_id] = (ask, verdict)
        turn.ended.add_done_callback(lambda _: self._by_turn.pop(turn.turn_id, None))

    def restore(self, row: Question) -> None:
        """A turn of another daemon's time goes on with the answer to this question."""
        if row.turn_id is not None and row.outcome is not None:
            self._by_turn[row.turn_id] = (row.ask, Verdict(row.outcome, row.option, row.answered_by))

    def take(self, ask: Ask) -> tuple[str, Verdict] | None:
        """The answer to this question, with the id of the parked one that it was given to, if there is one."""
        parked, verdict = self._by_turn.get(ask.turn_id, (None, None))
        if parked is None or verdict is None or not decisions.same_call(parked, ask):
            return None
        del self._by_turn[ask.turn_id]  # once is once
        return parked.ask_id, verdict
