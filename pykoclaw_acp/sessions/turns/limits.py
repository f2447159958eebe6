"""Turns that a usage limit has ended: what the user is told, and whether the session goes on by
itself.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as replaced

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.limit_waits import WAIT, goes_on_from, tries_of
from pykoclaw_acp.model.turns import Outcome, Turn, TurnState

SHORTEST: Final = 60  # s before a session goes on that has gone on and met the limit again
LONGEST: Final = 3600  # s between two tries to go on
MOST_TRIES: Final = 10  # that fail; the last one is made some 6 hours after the first
SEND: Final = "Send the prompt again then."
GO_ON: Final = "Send a prompt then to have Claude go on."
_UNLESS: Final = (
    "unless you send a prompt or close the session before, or run"
    " `pykoclaw-acp sessions stop-waiting {}`."
)
GOES_ON: Final = f"The session resumes by itself then, {_UNLESS}"
TRIES_AGAIN: Final = f"The session tries again by itself to go on, {_UNLESS}"


def told(
    outcome: Outcome, turn: Turn | None, setting: str, *, own: str = "", auxiliary: bool = False
) -> Outcome:
    """The outcome of a turn, with what follows if a usage limit has ended it. `own`: the session of
    a turn that Claude began by itself. `auxiliary`: the session is that of a client's helper.
    """
    failure = outcome.failure
    if turn is not None and failure is not None and failure.kind == ErrorKind.SERVICE_UNREACHABLE:
        return again(outcome, turn)
    if failure is None or failure.kind != ErrorKind.USAGE_LIMIT or failure.resets_at is None:
        return outcome
    waits = own if turn is None else turn.session_id if _may_go_on(turn) else ""
    if setting != WAIT or auxiliary or not waits:
        then = GO_ON if turn is None or failure.begun else SEND
        return replace(outcome, failure=replaced(failure, message=f"{failure.message} {then}"))
    due = failure.resets_at
    if turn is None or goes_on_from(turn.keys.request) is not None:
        due = max(due, int(time.time()) + SHORTEST)
    failure = replaced(failure, message=f"{failure.message} {GOES_ON.format(waits[:8])}")
    return replace(outcome, failure=failure, goes_on_at=due)


def again(outcome: Outcome, turn: Turn) -> Outcome:
    """The outcome of a turn that Claude's service did not get: if it is the one with which a session
    goes on, that is tried again, a few times.
    """
    key, failure = turn.keys.request, outcome.failure
    if key is None or failure is None or goes_on_from(key) is None:
        return outcome
    tries = tries_of(key) + 1
    if tries > MOST_TRIES or outcome.state == TurnState.CANCELLED:
        return outcome
    due = int(time.time()) + min(SHORTEST * 2 ** (tries - 1), LONGEST)
    said = TRIES_AGAIN.format(turn.session_id[:8])
    failure = replaced(failure, message=f"{failure.message} {said}")
    return replace(outcome, failure=failure, goes_on_at=due, tries=tries)


def _may_go_on(turn: Turn) -> bool:
    """Whether a person waits for what the turn was to do."""
    return turn.task_id is None and not turn.aside and not turn.helper
