"""What a turn has led to: work in the background, and the turns in which Claude tells of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.events import BLOCKED, WHY, Event, Text, ToolEnded, ToolStarted, UserMessage
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.scheduled import RULE, answer
from pykoclaw_acp.model.turns import UNFINISHED, Outcome, TurnState

SETTLED: Final = 3.0  # s from the end of background work in which Claude begins a turn about it
CUT_OFF: Final = "Cut off before its end."  # so begins why a tool call failed whose worker is gone
_LOST: Final = (
    "Claude's worker was lost before its work in the background had ended. What was said until then"
    " is kept. Send a prompt to go on."
)
# Tools that begin a subagent, or let it go on
SUBAGENTS: Final = frozenset({"Agent", "Task", "SendMessage"})
# Tools that may go on when their turn has ended
_BESIDE: Final = SUBAGENTS | {"Monitor"}


@dataclass(frozen=True, slots=True)
class Work:
    """A turn, and those that Claude has begun by itself about it; `turns`: their ids, that turn first.

    `text`: what was said in them. `calls`: tool calls that were begun in them, `subagents`: those of SUBAGENTS
    among them. Claude may still tell of one in the background: `beside`, if it did not end in its turn,
    `just_over`, if it did. `own`: how Claude's own turns ended, without one that runs; `failed`: how the first
    of them, or a call, ended without an answer. `blocked`: what `blocked` tells of that turn.
    """

    turns: tuple[str, ...] = ()
    text: str = ""
    calls: frozenset[str] = frozenset()
    subagents: frozenset[str] = frozenset()
    beside: bool = False
    just_over: bool = False
    own: tuple[Outcome, ...] = ()
    failed: Outcome | None = None
    blocked: str | None = None


def led_to(
    turns: Sequence[tuple[str, Outcome]],
    logged: Sequence[tuple[str | None, Event | None]],
    tools: Collection[str] | None = None,
) -> Work:
    """What the first of these turns has led to; the others are Claude's own since. `logged`: the log from
    its first event on, with the turn of each event, of prompts only those since its end. `tools`: calls of
    others are as good as not there.
    """
    if not turns:
        return Work()
    if tools is not None:
        logged = [
            one for one in logged if not isinstance(one[1], ToolStarted) or one[1].name in tools
        ]
    (of, _), *own = turns
    taken = {of}
    while True:
        story = _Story(of, [one for one, _ in own], taken)
        for turn_id, event in logged:
            story.follow(turn_id, event)
        if not (further := story.heard_of_late()):
            break
        taken |= further
    said = {one: story.said[one] for one, _ in turns if one in story.said}
    ends = tuple(one for turn_id, one in own if turn_id in said and one.state not in UNFINISHED)
    unanswered = (one for one in ends if one.state in _WITHOUT_ANSWER)
    lost = Outcome(TurnState.FAILED, failure=TurnFailure(ErrorKind.WORKER_LOST, _LOST))
    return Work(
        tuple(said),
        joined([answer(events) for events in said.values()], RULE),
        frozenset(story.calls),
        frozenset(one for one, (_, call) in story.calls.items() if call.name in SUBAGENTS),
        not story.passed and story.beside,
        not story.passed and story.just_over,
        ends,
        next(unanswered, lost if story.cut else None),
        blocked(story.said[of]),
    )


def blocked(events: Iterable[Event | None]) -> str | None:
    """What is said of the hooks that have taken a turn's prompt away, from the turn's events; None of a
    turn in which Claude has done something: what was blocked had come into it. A turn of Claude's own may
    have run under its name before: the note that explains that is one of the events.
    """
    notes: list[str] = []
    own = False
    for event in events:
        if isinstance(event, Text) and event.note:
            if event.message_id.endswith(BLOCKED):
                notes.append(event.text.strip())
                own = False
            own = own or event.message_id.endswith(WHY)
        elif not own and isinstance(event, Text | ToolStarted):
            return None
    return "\n".join(notes) or None


class _Story:
    """What is of a turn, and what of others that go on beside it.

    A turn of Claude's own begins with a note that names the calls of whose ends it tells. Of an end that
    no note names, Claude has heard in the turn that ran then. `taken`: turns that are known to be of it.
    """

    def __init__(self, turn_id: str, own: Sequence[str], taken: Collection[str]) -> None:
        self.said: dict[str, list[Event]] = {one: [] for one in (turn_id, *own) if one in taken}
        self.calls: dict[str, tuple[str | None, ToolStarted]] = {}
        # A prompt came when no call was open: Claude has heard of all ends with it
        self.passed = False
        self.cut = False
        self.just_over = False
        self._others: dict[str, list[Event]] = {one: [] for one in own if one not in taken}
        self._explained: set[str] = set()
        # Calls of any turn, and the turn in which they ended
        self._over: dict[str, str | None] = {}
        # Ends in the background that no note has named so far
        self._unnamed: dict[str, str | None] = {}

    @property
    def beside(self) -> bool:
        """Whether there was a call that may go on when its turn has ended."""
        return any(
            not (one in self._over and self._over[one] == turn_id)
            and (call.name in _BESIDE or _in_background(call))
            for one, (turn_id, call) in self.calls.items()
        )

    def follow(self, turn_id: str | None, event: Event | None) -> None:
        """The next event of the log."""
        if isinstance(event, UserMessage):
            self.passed = self.passed or not any(self._open())
        elif isinstance(event, ToolEnded):
            self._end(turn_id, event)
        elif isinstance(event, Text) and event.note and event.message_id.endswith(WHY):
            explained = event.message_id.removesuffix(WHY)
            self._explain(explained, event.calls)
            if explained in self.said:
                self.said[explained].append(event)
        elif event is not None and turn_id in self.said:
            self._say(turn_id, event)
        elif event is not None and turn_id in self._others:
            self._others[turn_id].append(event)
        elif isinstance(event, ToolStarted) and event.continues in self.calls:
            self.calls[event.tool_call_id] = turn_id, event

    def heard_of_late(self) -> set[str]:
        """Claude's own turns, not taken so far, in which it has heard of ends, or which ended without a
        word.
        """
        heard_in = {one for one in self._others if one in self._unnamed.values()}
        silent = [one for one in self._others if one not in self._explained]
        unheard = [one for one in self._unnamed.values() if one is None]
        return {*heard_in, *silent[: len(unheard)]}

    def _explain(self, turn_id: str, calls: tuple[str, ...] | None) -> None:
        self._explained.add(turn_id)
        heard = self.calls.keys() & (calls or ())
        for one in heard:
            self._unnamed.pop(one, None)
        if calls is None:  # of a worker of an earlier version
            is_about_it = not self.passed
        elif calls:
            is_about_it = bool(heard)
        else:
            is_about_it = any(call.name == "Monitor" for call in self._open())
        if is_about_it and turn_id in self._others:
            self.said[turn_id] = []
            for event in self._others.pop(turn_id):
                self._say(turn_id, event)

    def _say(self, turn_id: str, event: Event) -> None:
        self.said[turn_id].append(event)
        if isinstance(event, ToolStarted) and event.parent_id in (None, *self.calls):
            self.calls[event.tool_call_id] = turn_id, event

    def _open(self) -> Iterator[ToolStarted]:
        return (call for one, (_, call) in self.calls.items() if one not in self._over)

    def _end(self, turn_id: str | None, event: ToolEnded) -> None:
        self._over[event.tool_call_id] = turn_id
        if event.tool_call_id not in self.calls:
            return
        began_in, call = self.calls[event.tool_call_id]
        self.cut = self.cut or (event.reason or "").startswith(CUT_OFF)
        # Workers of earlier versions do not say that a call had gone on in the background
        known = event.status == "completed" or event.exit_code is not None
        in_background = event.background or (
            known and (_in_background(call) or began_in != turn_id)
        )
        self.just_over = self.just_over or (began_in == turn_id and in_background)
        if in_background and call.parent_id is None:  # a subagent hears of the others
            self._unnamed[event.tool_call_id] = turn_id


_WITHOUT_ANSWER: Final = (TurnState.FAILED, TurnState.CANCELLED, TurnState.UNKNOWN)


def joined(texts: Sequence[str], between: str) -> str:
    """What was said in several turns; of a single one exactly that."""
    said = [one for one in texts if one.strip()]
    return between.join(one.strip("\n") for one in said) if len(said) > 1 else "".join(said)


def _in_background(call: ToolStarted) -> bool:
    return (call.input or {}).get("run_in_background") is True
