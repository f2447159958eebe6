"""Notes of our own in a session's log: pure functions."""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.model.events import Event, Failure, note_event
from pykoclaw_acp.model.imports import Side
from pykoclaw_acp.model.turns import Outcome, TurnState
from pykoclaw_acp.neutral import neutral

CANCELLED: Final = "Cancelled"
NOT_SENT: Final = "before it was sent to Claude"


def ended(turn_id: str, outcome: Outcome) -> list[Event]:
    """What the log says to the user about a turn that has ended without an answer, or was
    cancelled.
    """
    if outcome.failure is not None:
        return [Failure(f"{turn_id}-failure", outcome.failure.message, outcome.failure.kind)]
    if outcome.state is TurnState.CANCELLED and not outcome.told:
        return cancelled(turn_id, outcome.stopped_in)
    return []


def cancelled(turn_id: str, stopped_in: str = "") -> list[Event]:
    """Says that a turn was cancelled, and where, if that is to be said."""
    return [note_event(f"{turn_id}-cancelled", f"{CANCELLED}{_in(stopped_in)}.")]


def not_sent(turn_id: str, stopped_in: str = "", words: str = "") -> list[Event]:
    """Says that a prompt was cancelled that waited for its turn. `words`: how it begins, for who
    reads this below the answer of another one.
    """
    named = f": “{words}”" if words else "."
    said = f"{CANCELLED}{_in(stopped_in)} {NOT_SENT}{named}"
    return [note_event(f"{turn_id}-cancelled", said)]


def closed(note_id: str, place: str) -> list[Event]:
    """Says to clients that have a session open that another one has closed it."""
    return [note_event(note_id, f"Closed in {place}. The next message opens the session again.")]


def _in(place: str) -> str:
    return f" in {place}" if place else ""


def joined(message_id: str) -> list[Event]:
    """Says that a prompt was not given to Claude, because it is the one before, sent again."""
    said = (
        "**Claude was not asked again.** This prompt repeats the one before, which is answered above. Clients repeat"
        " prompts by themselves after a lost connection, and this client had just reopened the session. To have"
        " Claude asked anyway, send the prompt once more."
    )
    return [note_event(message_id, said)]


def gap(message_id: str, missing: int, file: str | None) -> list[Event]:
    """Says that at least so many entries of a worker's spool are missing here; `file` is where the
    rest is kept.
    """
    kept = f" The rest of the file is kept in {file}." if file is not None else ""
    said = (
        "**Something is missing here.** Until a daemon could receive it, the worker kept what Claude said and did in"
        f" a file, and at least {missing} of its entries are damaged, gone or unreadable.{kept} What follows comes"
        " after the gap."
    )
    return [note_event(message_id, said)]


def transcript_missing(claude_session_id: str) -> list[Event]:
    """Says that what another program said in this Claude session is not known here."""
    said = (
        "**Another program has continued this conversation, and what was said there is missing here.** It did so in"
        f" the Claude session {claude_session_id}, which has no transcript on this machine. Claude goes on with what"
        " is shown above."
    )
    return [note_event(f"missing-{claude_session_id}", said)]


def waits_for(wait_id: str, holder: str) -> list[Event]:
    """Says that a prompt waits for the turn of this program."""
    said = f"Waiting for {neutral(holder[:100])}, which runs a turn of this conversation."
    return [note_event(f"waits-{wait_id}", said)]


def branched(note_id: str, side: Side) -> list[Event]:
    """Says that another program ran turns at the same time, and of which side's Claude remembers
    nothing.
    """
    said = (
        f"**Another program has continued this conversation at the same time.** {_FORGOTTEN[side]}"
    )
    return [note_event(f"branched-{note_id}", said)]


_FORGOTTEN: Final = {
    Side.THERE: (
        "Claude does not remember what was said there; it gets a summary with the next prompt."
    ),
    Side.HERE: (
        "Claude goes on from what was said there, and does not remember what was said here meanwhile; it gets a"
        " summary of that with the next prompt."
    ),
    Side.BOTH: (
        "Claude remembers only a part of what was said there and here meanwhile; it gets a summary of the rest with"
        " the next prompt."
    ),
}


def rewound_elsewhere(message_id: str, words: str, *, in_terminal: bool) -> Event:
    """Says that the user has rewound the conversation in another program, to before the prompt that
    begins with these words.
    """
    where = "in a terminal" if in_terminal else "in another program"
    gone = (
        f"Claude no longer remembers the conversation from “{words or '…'}” on, which stays above."
    )
    return note_event(f"rewound-{message_id}", f"(Rewound {where}: {gone})")


def not_looked(note_id: str) -> list[Event]:
    """Says that turns of other programs may be missing."""
    said = (
        "**Turns of other programs may be missing here.** Claude's transcripts could not be read; the log of"
        " pykoclaw-acp says why."
    )
    return [note_event(note_id, said)]
