"""What the reader of a transcript remembers from one look to the next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from pykoclaw_acp.model.events import Output, PlanEntry, TextPart
from pykoclaw_acp.translation.tasks import MOST_ID, MOST_WHAT, TaskEnd
from pykoclaw_acp.translation.tools import shown_input
from pykoclaw_acp.translation.translator import Translation

MOST_TURNS: Final = 12  # that may be continued without a search
MOST_ENTRIES: Final = 16  # of each turn, likewise
MOST_CALLS: Final = 1000  # that are running
MOST_TASKS: Final = 200  # of the plan
MOST_NAME: Final = 256  # characters of a name or an id that Claude, or a hostile file, chooses
MOST_TASK: Final = 1000  # characters of a task
MOST_SEEN: Final = 100_000  # entries of a look
MOST_TEXT: Final = 32 * 1024  # characters of a text in the input of a call
MOST_INPUT: Final = 64 * 1024  # bytes of the input of a call
MOST_INPUTS: Final = 512 * 1024  # bytes of those of all calls
MOST_COMMANDS: Final = 128 * 1024  # bytes of the commands that they show
MOST_SHOWN: Final = 64 * 1024  # bytes of what they have put out, and of notes about them

NO_TURN: Final = ""  # of entries before any prompt
Owner = Literal["own", "other", "known"]


class OpenTurn(msgspec.Struct, omit_defaults=True):
    """A turn that entries may still be added to; `after`: what follows this entry is new; `parent`:
    the turn that it continues, `aside`: from where the answer of that is not.

    `answer`: id of Claude's newest message in it; `before`: recent entries that do not follow that;
    `words`: how its prompt begins.
    """

    owner: Owner
    recent: list[str] = []
    after: str | None = None
    parent: str = NO_TURN
    answer: str = ""
    before: list[str] = []
    aside: bool = False
    words: str = ""


class OpenCall(msgspec.Struct, omit_defaults=True):
    """A tool call without a result; `command` is shown above what it puts out. Rows of earlier
    versions have neither `input` nor `quiet`.
    """

    name: str
    turn: str
    background: bool = False
    command: tuple[TextPart, ...] = ()
    task: str = ""  # the CLI's id of it
    what: str = ""  # its command, or what its subagent is to do
    input: dict[str, Any] | None = None  # long texts cut; None: too much, or not known
    quiet: bool | None = None  # clients are not shown it, unless it fails
    notes: list[str] = []
    output: Output | None = None
    stopped: str | None = None
    end: TaskEnd | None = None  # which came before the result of the call
    since: str = ""  # when it began a subagent, or sent one a message

    @classmethod
    def begun(cls, name: str, turn: str, arguments: dict[str, Any]) -> OpenCall:
        """A call as it is made."""
        shown = shown_input(arguments, MOST_TEXT)
        return cls(name, turn, input=shown if _weight(shown) <= MOST_INPUT else None)

    def now(self, call: str, translation: Translation) -> OpenCall:
        """The call as it goes on."""
        background = call in translation.background
        kept = replace(
            self,
            background=background,
            input=None if background else self.input,  # its end needs no more than `what`
            command=translation.commands.get(call, ()),
            quiet=call in translation.quiet or call in translation.long.hidden,
        )
        if (task := translation.long.known.calls.get(call)) is not None:
            kept.task, kept.what = task.id[:MOST_ID], task.what[:MOST_WHAT]
            kept.notes, kept.output, kept.stopped = task.notes, task.output, task.stopped
            kept.end = task.end
        return kept

    def restore(self, call: str, translation: Translation) -> None:
        """Let a translation know the call, as if it had begun there."""
        translation.restore(call, self.name, self.input, quiet=self.quiet)
        known = translation.long.known
        if self.background:
            translation.background[call] = None
            known.named(call, self.task, background=True, tool=self.name)
        if self.command:
            translation.commands[call] = self.command
            translation.long.headed(call, self.command)
        if (task := known.calls.get(call)) is not None:
            task.what = self.what if self.input is None else task.what
            task.notes, task.output, task.stopped = self.notes, self.output, self.stopped
            task.end = self.end


class Seen:
    """Hashes of the newest entries' uuids, at least `MOST_SEEN` of them: a line may be in a
    transcript twice.
    """

    def __init__(self, uuids: Iterable[str]) -> None:
        self._new = {hash(one) for one in uuids}
        self._old: set[int] = set()

    def __contains__(self, uuid: str) -> bool:
        return hash(uuid) in self._new or hash(uuid) in self._old

    def add(self, uuid: str) -> None:
        """The next entry."""
        self._new.add(hash(uuid))
        if len(self._new) >= MOST_SEEN:
            self._old, self._new = self._new, set()


class State(msgspec.Struct, omit_defaults=True):
    """The newest turns, the oldest first; their running tool calls; the plan."""

    turns: dict[str, OpenTurn] = {}
    head: str = NO_TURN
    leaf: str = NO_TURN  # the turn with the entry that the CLI has noted last as the end
    leaf_aside: bool = False  # which does not follow that turn's answer
    rewound: bool = False  # by another program, since the newest prompt
    continued: bool = (
        False  # by a command of another program, such as `/compact`, after a turn of ours
    )
    calls: dict[str, OpenCall] = {}
    interrupted: dict[str, OpenCall] = {}  # that a CLI which resumed found without a result
    over: list[str] = []  # calls whose ids a service may use again
    tasks: dict[str, PlanEntry] = {}
    message: str = ""
    blocks: int = 0
    damaged: bool = False
    title: str = ""  # that a person has given the session, the newest

    def go_on(self, translation: Translation) -> None:
        """Keep what the next look has to know of the translation."""
        self.tasks = translation.tasks.tasks = bounded(translation.tasks.tasks)
        going_on = translation.open_calls
        self.calls = {
            call: found.now(call, translation)
            for call, found in self.calls.items()
            if call in going_on
        }
        calls = [*self.interrupted.values(), *self.calls.values()]
        for found in _beyond(MOST_INPUTS, calls, lambda one: one.input):
            found.input = None
        calls.reverse()  # of what they show, that of the newest stays
        for found in _beyond(MOST_COMMANDS, calls, lambda one: one.command):
            found.command = ()
        for found in _beyond(MOST_SHOWN, calls, lambda one: (one.notes, one.output)):
            found.notes, found.output = [], None
        for found in _beyond(MOST_SHOWN, calls, lambda one: one.end):
            found.end = found.end and replace(found.end, summary=found.end.summary[:MOST_WHAT])

    def drop_ended(self, going_on: Collection[str]) -> None:
        """Keep the calls that go on alone: a look may meet many before it is cut."""
        self.calls = {call: found for call, found in self.calls.items() if call in going_on}

    def entries(self) -> Iterator[str]:
        """The recent entries of the newest turns."""
        for turn, found in self.turns.items():
            yield turn
            yield from found.recent

    def turn_of(self, uuid: str) -> str | None:
        """The turn that a recent entry belongs to."""
        for turn, found in reversed(self.turns.items()):
            if uuid in found.recent or uuid == turn:
                return turn
        return None

    def note_leaf(self, uuid: str | None) -> None:
        """The CLI notes the entry with which its conversation ends, as it does when it exits."""
        self.leaf = self.turn_of(uuid or "") or NO_TURN
        self.leaf_aside = self.lacks_answer(self.leaf, uuid)

    def lacks_answer(self, turn: str, uuid: str | None) -> bool:
        """Whether what follows this entry of the turn does not have the turn's answer."""
        return turn in self.turns and uuid in self.turns[turn].before

    def resumed(self) -> str:
        """The turn that a CLI which resumes goes on from: that of the newest entry, unless the leaf
        that was noted last is on another branch.
        """
        turn, passed, aside = self.head, set[str](), False
        while turn not in passed and turn in self.turns:
            if turn == self.leaf and (self.leaf_aside or not aside):
                return self.head
            passed.add(turn)
            turn, aside = self.turns[turn].parent, self.turns[turn].aside
        return self.leaf if self.leaf in self.turns else self.head

    def since(self, turn: str, earlier: str) -> list[OpenTurn]:
        """The turns that come after `earlier` and lead to `turn`, the newest first, as far as they are
        known; none if it is certain that `earlier` does not lead there.
        """
        found: dict[str, OpenTurn] = {}
        while turn != earlier and turn in self.turns and turn not in found:
            found[turn] = self.turns[turn]
            turn = found[turn].parent
        return [] if NO_TURN == turn != earlier else [*found.values()]

    def parents(self) -> dict[str, str]:
        """The turns that lack the answer of the turn that they continue, or of one before that; and
        after which turn they have everything.
        """
        return {one: whole for one in self.turns if (whole := self._whole(one)) is not None}

    def _whole(self, turn: str) -> str | None:
        found, passed = self.turns[turn], {turn}
        while found.aside and found.parent in self.turns and found.parent not in passed:
            passed.add(found.parent)
            found = self.turns[found.parent]
        return None if found is self.turns[turn] else found.parent

    def follow(self, turn: str, uuid: str, parent: str | None = None) -> None:
        """The newest entry, which belongs to this turn and follows the entry `parent`."""
        found = self.turns.pop(turn, None) or OpenTurn("own")
        found.recent.append(uuid)
        del found.recent[:-MOST_ENTRIES]
        if parent in found.before:
            found.before = [*found.before, uuid][-MOST_ENTRIES:]
        self.turns[turn] = found
        self.head = turn

    def answer(self, turn: str, uuid: str, message_id: str) -> None:
        """The newest entry of the turn is of this message of Claude. What is there already cannot
        follow a new one: a transcript has an entry before those that follow it.
        """
        found = self.turns[turn]
        if message_id == found.answer:
            return
        found.answer, found.before = message_id, [one for one in found.recent if one != uuid]
        self.leaf_aside = self.leaf_aside or self.leaf == turn
        for one in self.turns.values():
            one.aside = one.aside or one.parent == turn

    def begin(self, uuid: str, turn: OpenTurn) -> None:
        """A turn begins with this entry."""
        self.turns[uuid] = turn
        self.follow(uuid, uuid)
        while len(self.turns) > MOST_TURNS:
            gone = self.turns.pop(next(iter(self.turns)))
            gone.recent, gone.before = [], []  # it may be kept for long


def bounded(tasks: dict[str, PlanEntry]) -> dict[str, PlanEntry]:
    """The plan as it is kept: its newest tasks, long ones cut. In those of earlier versions
    they have no ids.
    """
    kept = [(one, task) for one, task in tasks.items() if len(one) <= MOST_NAME][-MOST_TASKS:]
    return {one: PlanEntry(task.content[:MOST_TASK], task.status, one) for one, task in kept}


def _beyond(
    room: int, calls: Iterable[OpenCall], what: Callable[[OpenCall], object]
) -> Iterator[OpenCall]:
    """Calls for whose part, which `what` finds, there is no room (bytes) any more."""
    for one in calls:
        weight = _weight(what(one))
        if weight > room:
            yield one
        else:
            room -= weight


def _weight(value: object) -> int:
    return 0 if value is None else len(msgspec.json.encode(value))


def restored(state: str) -> State:
    """The state that was kept with an offset; an empty one at the beginning, and for one of another
    version: what entries belong to is then searched for.
    """
    try:
        return msgspec.json.decode(state, type=State) if state else State()
    except msgspec.MsgspecError:
        return State()
