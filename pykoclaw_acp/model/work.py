"""What a turn has led to: work in the background, and the turns in which Claude tells of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
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
_BESIDE: Final = (
    "Agent",
    "Task",
    "Monitor",
    "SendMessage",
)  # tools that may go on when their turn has ended


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
    in the log. `logged`: the log from its first event on, of prompts only those since its end.
    """
    if not turns:
        return Work()
    (of, _, _), *own = turns
    story = _Story(of, {one: begin for one, begin, _ in own})
    for seq, turn_id, event in logged:
        story.begin_turns(seq)
        story.follow(turn_id, event)
    story.begin_turns()
    ends = (one for turn_id, _, one in own if turn_id in story.said)
    unanswered = (one for one in ends if one.state in _WITHOUT_ANSWER)
    lost = Outcome(TurnState.FAILED, failure=TurnFailure(ErrorKind.WORKER_LOST, _LOST))
    return Work(
        tuple(story.said),
        joined([answer(events) for events in story.said.values()], RULE),
        frozenset(story.calls),
        not story.passed and story.beside,
        not story.passed and story.just_over,
        next(unanswered, lost if story.cut else None),
    )


class _Story:
    """What is of a turn, and what of others that go on beside it.

    Claude tells of each end in a turn of its own, in their order, or within a turn of which a call ends
    then. So of its own turns those are of the turn that come for an end of one of the turn's calls, or in
    which it hears of one; and without any end, as for news, those while a Monitor of the turn runs.
    """

    def __init__(self, turn_id: str, own: dict[str, int]) -> None:
        self.said: dict[str, list[Event]] = {turn_id: []}
        self.calls: dict[str, tuple[str, ToolStarted]] = {}
        # A prompt came when no call was open: Claude's own turns are about that
        self.passed = False
        self.cut = False
        self.just_over = False
        self._others: dict[str, list[Event]] = {}
        self._to_come = own
        # Calls of any turn, and the turn in which they ended
        self._over: dict[str, str | None] = {}
        # Of any turn; others are of subagents
        self._own_calls: set[str] = set()
        # Ends in the background; whether of the turn's calls
        self._untold: list[bool] = []
        # Ends of the turn's calls of which Claude was told already, or never is, it seems
        self._late = 0

    @property
    def beside(self) -> bool:
        """Whether there was a call that may go on when its turn has ended."""
        return any(
            self._over.get(one, "") != turn_id and (call.name in _BESIDE or _in_background(call))
            for one, (turn_id, call) in self.calls.items()
        )

    def begin_turns(self, upto: float = math.inf) -> None:
        """Begin Claude's own turns up to this place in the log."""
        for turn_id in [one for one, at in self._to_come.items() if at <= upto]:
            del self._to_come[turn_id]
            if self._is_about_it() and not self.passed:
                self.said[turn_id] = []
            else:
                self._others[turn_id] = []

    def _is_about_it(self) -> bool:
        if self._untold:
            return self._untold.pop(0)
        if self._late:
            self._late -= 1
            return True
        return any(call.name == "Monitor" for call in self._open())

    def _open(self) -> Iterator[ToolStarted]:
        return (call for one, (_, call) in self.calls.items() if one not in self._over)

    def follow(self, turn_id: str | None, event: Event | None) -> None:
        """The next event of the log."""
        if isinstance(event, UserMessage):
            self.passed = self.passed or not any(self._open())
            self._told()
        elif isinstance(event, ToolEnded):
            self._ended(turn_id, event)
        elif event is not None and turn_id is not None:
            if isinstance(event, ToolStarted) and event.parent_id is None:
                self._own_calls.add(event.tool_call_id)
            if (events := self._others.get(turn_id)) is not None:
                events.append(event)
            elif turn_id in self.said:
                self._say(turn_id, event)

    def _say(self, turn_id: str, event: Event) -> None:
        self.said[turn_id].append(event)
        if isinstance(event, ToolStarted) and event.parent_id in (None, *self.calls):
            self.calls[event.tool_call_id] = turn_id, event

    def _ended(self, turn_id: str | None, event: ToolEnded) -> None:
        self._over[event.tool_call_id] = turn_id
        began_in, _ = self.calls.get(event.tool_call_id, (None, None))
        if began_in is not None:
            self.cut = self.cut or (event.reason or "").startswith(CUT_OFF)
            self.just_over = self.just_over or (began_in == turn_id and event.background)
        if event.tool_call_id not in self._own_calls and not event.background:
            return
        # Workers of earlier versions do not say that a call had gone on in the background.
        later = began_in not in (None, turn_id)
        if event.background or (later and event.status == "completed"):
            self._untold.append(began_in is not None)
        elif later:
            self._late += 1
        elif turn_id is not None:
            if any(self._untold) and turn_id in self._others and not self.passed:
                self._take_in(turn_id)
            self._told()

    def _told(self) -> None:
        self._late += sum(self._untold)
        self._untold.clear()

    def _take_in(self, turn_id: str) -> None:
        """A turn that was about something else tells of an end as well."""
        self.said[turn_id] = []
        for event in self._others.pop(turn_id):
            self._say(turn_id, event)


_WITHOUT_ANSWER: Final = (TurnState.FAILED, TurnState.CANCELLED, TurnState.UNKNOWN)


def joined(texts: Sequence[str], between: str) -> str:
    """What was said in several turns; of a single one exactly that."""
    said = [one for one in texts if one.strip()]
    return between.join(one.strip("\n") for one in said) if len(said) > 1 else "".join(said)


def _in_background(call: ToolStarted) -> bool:
    return (call.input or {}).get("run_in_background") is True
