"""What a turn has led to: work in the background, and the turns in which Claude tells of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.events import Event, ToolEnded, ToolStarted, UserMessage
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
    """A turn, and those that Claude has begun by itself about it; `turns`: their ids, that turn first.

    `text`: what was said in them. `calls`: tool calls that were begun in them. Claude may still tell of one
    in the background: `beside`, if it did not end in its turn, `just_over`, if it did. `failed`: how the first
    of Claude's own turns, or a call, ended without an answer.
    """

    turns: tuple[str, ...] = ()
    text: str = ""
    calls: frozenset[str] = frozenset()
    beside: bool = False
    just_over: bool = False
    failed: Outcome | None = None


def led_to(
    turns: Sequence[tuple[str, int, Outcome]],
    logged: Iterable[tuple[int, str | None, Event | None]],
) -> Work:
    """What the first of these turns has led to; the others are Claude's own since, with where they begin
    in the log. `logged`: the log from its first event on, of prompts only those since its end. Turns of
    Claude's own after such a prompt are about that, unless a call was still open then.
    """
    said: dict[str, list[Event]] = {turn_id: [] for turn_id, _, _ in turns}
    began: dict[str, tuple[str, ToolStarted]] = {}
    going: set[str] = set()
    within: set[str] = set()  # calls that ended in their turn
    just_over = False
    cut = passed = False
    for seq, turn_id, event in logged:
        if isinstance(event, UserMessage) and not going:
            turns = [one for one in turns if one[1] < seq]
            said = {one: said[one] for one, _, _ in turns}
            passed = True
        elif turn_id in said and event is not None:
            said[turn_id].append(event)
            if isinstance(event, ToolStarted):
                began[event.tool_call_id] = turn_id, event
                going.add(event.tool_call_id)
        if isinstance(event, ToolEnded) and event.tool_call_id in began:
            going.discard(event.tool_call_id)
            if began[event.tool_call_id][0] == turn_id:
                within.add(event.tool_call_id)
                just_over = just_over or event.background
            cut = cut or (event.reason or "").startswith(CUT_OFF)
    own = (one for _, _, one in turns[1:] if one.state in _WITHOUT_ANSWER)
    lost = Outcome(TurnState.FAILED, failure=TurnFailure(ErrorKind.WORKER_LOST, _LOST))
    return Work(
        tuple(said),
        joined([answer(events) for events in said.values()], RULE),
        frozenset(began),
        not passed
        and any(
            one not in within and (call.name in _BESIDE or _in_background(call))
            for one, (_, call) in began.items()
        ),
        not passed and just_over,
        next(own, lost if cut else None),
    )


_WITHOUT_ANSWER: Final = (TurnState.FAILED, TurnState.CANCELLED, TurnState.UNKNOWN)


def joined(texts: Sequence[str], between: str) -> str:
    """What was said in several turns; of a single one exactly that."""
    said = [one for one in texts if one.strip()]
    return between.join(one.strip("\n") for one in said) if len(said) > 1 else "".join(said)


def _in_background(call: ToolStarted) -> bool:
    return (call.input or {}).get("run_in_background") is True
