"""What is said when Claude's memory of a conversation is gone: to the user, and to Claude."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from pykoclaw_acp.model.events import Event, note_event
from pykoclaw_acp.model.prompt_text import Note

SETTING: Final = "PYKOCLAW_LOST_CONTEXT"


def entry_uuid(turn_id: str) -> str:
    """Uuid of a turn's prompt in Claude's transcript; the id of a fork's copy of the turn ends with it."""
    return turn_id.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A turn as Claude's transcript has it: its prompt, and its last entry. `whole`: it ended well.
    `first_seq`: of its events in the log; 0 if that is not known. `taken`: prompts that it has taken
    up: of those that wait together, the CLI makes one entry, under the id of the last.
    """

    turn_id: str
    last_uuid: str
    whole: bool = False
    first_seq: int = 0
    taken: tuple[str, ...] = ()

    @property
    def prompts(self) -> tuple[str, ...]:
        """Uuids of which the entry of its prompt has one."""
        return tuple(entry_uuid(one) for one in (self.turn_id, *self.taken))

    @property
    def entries(self) -> tuple[str, ...]:
        """Uuids that its first and its last entry may have."""
        return *self.prompts, self.last_uuid

    def lost(self, held: Collection[str]) -> bool:
        """Whether a transcript with these entries lacks the turn, its beginning, or its end."""
        ended = self.last_uuid in held
        return not (self.begun(held) and ended if self.whole else self.begun(held) or ended)

    def begun(self, held: Collection[str]) -> bool:
        """Whether they have its prompt, so that its end may be about to be written."""
        return any(one in held for one in self.prompts)


@dataclass(frozen=True, slots=True)
class Loss:
    """What Claude does not remember: the turns `lost`, the newest first, or everything (None).
    `name`: of this loss, the same one as long as nothing was prompted. `kept`: turns beside them that
    it remembers, `upto`: the place in the log where those that follow begin; None: none follow. `place`:
    it was to go on from a place in the transcript, which may still be there without this.
    """

    lost: tuple[TurnEnd, ...] | None
    name: str
    kept: frozenset[str] = frozenset()
    upto: int | None = None
    place: bool = False

    @property
    def note_id(self) -> str:
        """Id of the note that tells Claude."""
        return str(uuid5(NAMESPACE_OID, f"lost {self.name}"))


def refusal(loss: Loss) -> str:
    """Why the prompt ends, where Claude's memory is required."""
    return (
        f"{_what(loss)} The prompt was not sent. The history is kept and can be read; to go on without"
        f" that memory, set {SETTING} to auto, or start a new session."
    )


def said(loss: Loss, *, digest: bool) -> list[Event]:
    """What the log says."""
    goes_on = "without it"
    if digest:
        goes_on = "with a summary of them" if loss.lost else "with a summary of the newest turns"
    text = f"**{_what(loss)}** The history above is kept; Claude goes on {goes_on}. The setting {SETTING} decides this."
    return [note_event(f"context-{loss.note_id}", text)]


def refused(turn_id: str) -> list[Event]:
    """What the log says of a refused prompt before the next one."""
    text = (
        "(Claude refused to go on, so it no longer remembers the last turn above. The turn stays in the"
        " history, and its changes to files stay.)"
    )
    return [note_event(f"refused-{turn_id}", text)]


def note(loss: Loss, digest: str) -> Note:
    """What Claude is told."""
    what = "You have no record of the newest turns of this conversation."
    if loss.upto is not None:
        what = "You have no record of some turns of this conversation, before its newest ones."
    if loss.lost is None:
        what = "Your record of this conversation was lost: it had begun before what you remember."
    return _note(loss.note_id, what, digest)


def no_record(name: str, digest: str) -> Note:
    """What Claude is told where a conversation goes on from a place that it does not remember."""
    what = "You have no record of some of this conversation, up to here."
    return _note(name, what, digest)


def _note(name: str, what: str, digest: str) -> Note:
    return Note(name, f"{what} This is a summary of what was said:\n\n{digest}")


def _what(loss: Loss) -> str:
    if loss.lost is None:
        why = (
            "gone, or no longer leads to the place where Claude was to go on"
            if loss.place
            else "gone or empty, or belongs to another conversation"
        )
        return f"Claude does not remember this conversation any more: its transcript is {why}."
    count = len(loss.lost)
    if loss.upto is not None:
        turns = "a turn" if count == 1 else f"{count} turns"
        return (
            f"Claude does not remember {turns} before the newest ones: the transcript was removed, cut"
            " off or replaced meanwhile."
        )
    turns = "turn" if count == 1 else f"{count} turns"
    return f"Claude does not remember the last {turns}: the transcript was cut off."
