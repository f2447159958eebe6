"""How a permission request was settled, in words, and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_CLI: Final = "cli"
_BY: Final = {_CLI: "a command, or another terminal", "policy": "the away policy"}
_OUTCOMES: Final = {
    "accept": "answered",
    "decline": "declined",
    "cancel": "dismissed",
    "cancelled": "nothing was chosen",
    "denied": "refused",
    "timeout": "nobody has answered in time",
    "unanswered": "the client gave no answer",
    "unsupported": "no client can show it",
}


def of(question: Mapping[str, Any], how: Mapping[str, Any]) -> str:
    """What follows "settled"; empty if the daemon, an older one, does not say. A choice is named as
    the request has offered it.
    """
    if "outcome" not in how:
        return ""
    outcome, decision, by = how["outcome"], how.get("decision"), how.get("by")
    if outcome is None:
        return ": withdrawn"
    label = (question.get("choices") or {}).get(decision)
    what = f"“{label}”" if outcome == "selected" and label else _OUTCOMES.get(outcome, outcome)
    named = by and outcome != "timeout"
    return f": {what}, by {_BY.get(str(by), by)}" if named else f": {what}"
