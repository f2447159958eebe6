"""What a turn has led to: work in the background, and the turns in which Claude tells of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.events import Event, ToolEnded, ToolStarted
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.scheduled import RULE, answer
from pykoclaw_acp.model.turns import Outcome, TurnState

CUT_OFF: Final = "Cut off before its end."  # so begins why a tool call failed whose worker is gone
_LOST: Final = (
    "Claude's worker was lost before its work in the background had ended. What was said until then"
    " is kept. Send a prompt to go on."
)
_BESIDE: Final = ("Agent", "Task", "Monitor")  # tools that may go on when their turn has ended


@dataclass(frozen=True, slots=True)
class Work:
    """A turn, and those that Claude has begun by itself since; `turns`: their ids, that turn first.

    `text`: what was said in them. `calls`: tool calls that were begun in them; `beside`: one is of a kind that goes
    on in the background. `failed`: how the first of Claude's own turns, or a call, ended without an answer.
    """

    turns: tuple[str, ...] = ()
    text: str = ""
    calls: frozenset[str] = frozenset()
    beside: bool = False
    failed: Outcome | None = None


def led_to(
    turns: Sequence[tuple[str, Outcome]], logged: Iterable[tuple[str | None, Event | None]]
) -> Work:
    """What the first of these turns has led to; the others are Claude's own since. `logged`: the log
    from its first event on.
    """
    said: dict[str, list[Event]] = {turn_id: [] for turn_id, _ in turns}
    began: dict[str, ToolStarted] = {}
    cut = False
    for turn_id, event in logged:
        if turn_id in said and event is not None:
            said[turn_id].append(event)
            if isinstance(event, ToolStarted):
                began[event.tool_call_id] = event
        if isinstance(event, ToolEnded) and event.tool_call_id in began:
            cut = cut or (event.reason or "").startswith(CUT_OFF)
    own = (one for _, one in turns[1:] if one.state in _WITHOUT_ANSWER)
    lost = Outcome(TurnState.FAILED, failure=TurnFailure(ErrorKind.WORKER_LOST, _LOST))
    return Work(
        tuple(said),
        joined([answer(events) for events in said.values()], RULE),
        frozenset(began),
        any(map(_goes_on_beside, began.values())),
        next(own, lost if cut else None),
    )


_WITHOUT_ANSWER: Final = (TurnState.FAILED, TurnState.CANCELLED, TurnState.UNKNOWN)


def joined(texts: Sequence[str], between: str) -> str:
    """What was said in several turns; of a single one exactly that."""
    said = [one for one in texts if one.strip()]
    return between.join(one.strip("\n") for one in said) if len(said) > 1 else "".join(said)


def _goes_on_beside(call: ToolStarted) -> bool:
    return call.name in _BESIDE or (call.input or {}).get("run_in_background") is True
