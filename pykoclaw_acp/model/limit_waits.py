"""Sessions that a usage limit has stopped, and that go on by themselves when it ends: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.model.events import Event, note_event

WAIT: Final = "wait"  # the value of PYKOCLAW_USAGE_LIMIT with which they do
KEY: Final = "limit:"  # begins the request key of the turn with which one goes on
TRIES: Final = "~"  # stands before the number of those that failed
PROMPT: Final = (
    "The usage limit that stopped you has ended. Go on with the last request where you were stopped,"
    " and do not repeat what is done already."
)
LEFT: Final = (
    "**This session does not resume by itself here when the usage limit ends.** This is a copy of the data directory"
    " {path}: the original goes on. Here it goes on when you send a prompt."
)
GIVEN_UP: Final = "**This session no longer waits for the end of the usage limit.** It goes on when you send a prompt."


@dataclass(frozen=True, slots=True)
class LimitWait:
    """A session that waits: the turn that the limit has ended, and when it goes on (seconds since
    1970). `tries`: how often it could not, one after the other; `turn_id` is the last of these.
    """

    session_id: str
    turn_id: str
    due: int
    tries: int = 0

    @property
    def request_key(self) -> str:
        """The key of the turn with which the session goes on, which therefore runs once."""
        return f"{KEY}{self.turn_id}" + (f"{TRIES}{self.tries}" if self.tries else "")


def goes_on_from(request_key: str | None) -> str | None:
    """The turn that the turn with this key continues; None if it is no such turn."""
    if request_key is None or not request_key.startswith(KEY):
        return None
    return request_key.removeprefix(KEY).partition(TRIES)[0]


def tries_of(request_key: str) -> int:
    """How often the session could not go on before the turn with this key."""
    return int(request_key.rpartition(TRIES)[2]) if TRIES in request_key else 0


def given_up(turn_id: str) -> list[Event]:
    """What the log says when the session does not resume by itself any more."""
    return [note_event(f"{turn_id}-limit", GIVEN_UP)]


def left_to_original(turn_id: str, original: str) -> list[Event]:
    """What the log of a copy says of a session that goes on in the original."""
    return [note_event(f"{turn_id}-limit-copied", LEFT.format(path=original))]
