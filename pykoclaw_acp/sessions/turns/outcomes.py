"""How turns end, and what is said about it: pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from pykoclaw_acp.channel.frames import EventFrame, Gap, Numbered, TurnEnded, TurnStarted
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import Conflict, DamageMet, StoreUnavailable, WorkerFailed
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import Event, UserMessage, split_text
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.plain import plain_prompt
from pykoclaw_acp.model.scheduled import ORIGIN
from pykoclaw_acp.model.turns import Outcome, Turn, TurnState
from pykoclaw_acp.model.work import CUT_OFF

INTERNAL: Final = "Internal error; the log of pykoclaw-acp says more. Send the prompt again."
UNREAD: Final = (
    "The database could not be read. {} The prompt was not sent to Claude; send it again when the"
    " database can be read."
)
DAMAGED: Final = (
    "The data that this prompt needs can be neither read nor written. {} The prompt was not sent to"
    " Claude."
)
KEPT: Final = (
    "What was received is kept here, but Claude may not remember it. "
    "The prompt was not sent again: look at what was done, then repeat it."
)
UNSURE: Final = (
    "Whether Claude had begun to work on the prompt is not known, so it was not sent again: "
    "look first, then repeat it."
)
UNTOLD: Final = (
    "Claude was not told the answer to the permission request. At your next prompt it asks again, if it still needs the"
    " permission."
)
_SEND_AGAIN: Final = re.compile(r"\b([Ss])end (?:it|the prompt) again\b")
END_MISSING: Final = "Its end is missing: what was kept of it was damaged."
ENDED: Final = (
    "This turn has ended, but what was kept of its end was damaged: how it ended is not known. Claude remembers the "
    "turn. The prompt was not sent again: look at what was done."
)
NOT_BEGUN: Final = "pykoclaw-acp stopped before it sent this prompt to Claude. Send it again."
MAX_ATTEMPTS: Final = 2  # daemons that may die over a prompt
DEADLY: Final = (
    f"pykoclaw-acp died {MAX_ATTEMPTS} times while it prepared this prompt, so it does not try again. Nothing of the "
    "prompt was sent to Claude. The prompt is kept here; the log of pykoclaw-acp says more."
)
DEADLY_LINE: Final = (
    f"pykoclaw-acp died {MAX_ATTEMPTS} times before it had accepted this request, so it does not try again. Nothing of "
    "the request is kept, and nothing was sent to Claude. The log of pykoclaw-acp says more."
)
COPIED: Final = (
    "This is a copy of the data directory {path}: the turn may go on there, and is not shown here."
)
WAITS_ELSEWHERE: Final = (
    "This is a copy of the data directory {path}: "
    "the prompt waits there, and was not sent from here."
)
RUNS_ELSEWHERE: Final = (
    "This is a copy of the data directory {path}: the run goes on there, and was ended here."
)
RESTORED: Final = (
    "The database was put back to an earlier state. "
    "What Claude has done since then is not kept here, and was stopped."
)
PUT_BACK: Final = (
    "**The database was put back to an earlier state.** What Claude was doing was stopped. Below is what "
    "Claude's transcript still has of the time since then; files may have changed as well."
)
PROMPT_LOST: Final = (
    "The database was put back to an earlier state, in which this prompt is not known. It was accepted before, and may "
    "have been run, so it was not sent again: look at what was done, then repeat it."
)
PROMPT_BEGUN: Final = (
    "The daemon has lost sight of this prompt's turn, as may happen when memory is short. Claude was given the "
    "prompt, so it was not sent again. Restart the daemon (`pykoclaw-acp restart`): the next one goes on with the "
    "turn, or says how it ended."
)
GIVEN: Final = (
    "The database was put back to an earlier state, from before this prompt was sent to Claude. Claude's transcript "
    "has it, so it was not sent again: look at what was done. To have the prompt carried out once more, send it again."
)
STOPPED: Final = "pykoclaw-acp stopped in the middle of this turn."
WORKER_STOPPED: Final = "pykoclaw-acp was stopped, and Claude's worker with it."
CANCELLED: Final = Outcome(TurnState.CANCELLED, stop_reason="cancelled")


def user_messages(turn: Turn) -> Generator[None, None, list[Event]]:
    """The user's message as events, one for each content block, long texts in pieces; made in
    steps.
    """
    return _messages(turn, prompt_text.unwrap)


def steer(epoch: int, turn: Turn, content: list[dict[str, Any]]) -> Generator[None, None, Steer]:
    """The frame of a prompt for the turn that runs; `content`: for Claude. Made in steps."""
    said = yield from user_messages(turn)
    return Steer(epoch=epoch, turn_id=turn.turn_id, content=content, said=said)


def plain_messages(turn: Turn) -> Generator[None, None, list[Event]]:
    """All that the client sent, as events: the user's words are not looked for in it."""
    return _messages(turn, str)


def _messages(turn: Turn, words: Callable[[str], str]) -> Generator[None, None, list[Event]]:
    events: list[Event] = []
    origin = None if turn.task_id is None else ORIGIN
    for block in turn.content:
        if block.get("type") == "text":
            for piece in split_text(words(block["text"])):
                said = {**block, "text": plain_prompt(piece)}
                events.append(UserMessage(turn.turn_id, said, origin))
                yield
        else:
            events.append(UserMessage(turn.turn_id, block, origin))
            yield
    return events


def said_in(frames: Sequence[Numbered]) -> set[str]:
    """Turns whose message is in the log with these frames: their worker says it first."""
    taken = {one.turn_id for one in frames if isinstance(one, TurnStarted) and one.into is not None}
    return taken | {
        one.turn_id for one in frames if isinstance(one, EventFrame | Gap) if one.turn_id
    }


def of_turn(frame: TurnEnded, turn: Turn | None, said: Collection[str]) -> Outcome:
    """The outcome that a worker reports of a turn, None: of Claude's own. `said`: as `said_in` of the
    frames that come with it.
    """
    outcome = of_frame(frame, cancelled=turn is not None and turn.cancelled.is_set())
    unsaid = turn is not None and turn.unsaid and turn.turn_id not in said
    if unsaid and outcome.state == TurnState.CANCELLED:
        return replace(outcome, told=True, unsaid=True)  # its worker had it, Claude did not
    return outcome


def of_frame(frame: TurnEnded, cancelled: bool) -> Outcome:
    """The outcome that a worker reports. After a cancel it is `cancelled`, whatever else came in
    the meantime (ACP).
    """
    usage = None
    if frame.usage is not None:
        used = frame.usage
        usage = {
            "totalTokens": used.input_tokens + used.output_tokens + used.cached_write_tokens,
            "inputTokens": used.input_tokens,
            "outputTokens": used.output_tokens,
            "cachedReadTokens": used.cached_read_tokens,
            "cachedWriteTokens": used.cached_write_tokens,
        }
    where: dict[str, Any] = {
        "claude_session_id": frame.claude_session_id,
        "last_uuid": frame.last_uuid,
    }
    if cancelled or frame.stop_reason == "cancelled":
        return Outcome(TurnState.CANCELLED, stop_reason="cancelled", usage=usage, **where)
    if frame.error is not None:
        return Outcome(TurnState.FAILED, failure=frame.error, usage=usage, **where)
    stop = frame.stop_reason or "end_turn"
    return Outcome(TurnState.DONE, stop_reason=stop, usage=usage, **where)


def not_started(turn: Turn, error: Exception) -> Outcome:
    """The prompt never left for Claude, or the turn broke on our side."""
    failure = TurnFailure(ErrorKind.INTERNAL, INTERNAL)
    if isinstance(error, WorkerFailed):
        failure = TurnFailure(error.kind, error.message, retry_after=error.retry_after)
    elif isinstance(error, StoreUnavailable) and turn.state == TurnState.QUEUED:
        failure = TurnFailure(ErrorKind(f"store_{error.state}"), _unread(error))
    elif isinstance(error, DamageMet) and turn.state == TurnState.QUEUED:
        failure = TurnFailure(ErrorKind.STORE_DAMAGED, DAMAGED.format(error))
    over = turn.cancelled.is_set() or failure.kind == ErrorKind.SHUTTING_DOWN
    if over or _task_is_gone(turn, error):
        return CANCELLED
    if turn.state == TurnState.QUEUED:
        failure = _unsent(turn, failure)
    return Outcome(TurnState.FAILED, failure=failure)


def _unsent(turn: Turn, failure: TurnFailure) -> TurnFailure:
    """Why the prompt was not sent; nobody has written that which tells Claude an answer, so nobody
    can send it again.
    """
    if not turn.tells_answer:
        return failure
    said = _SEND_AGAIN.sub(r"\1end a prompt", failure.message)
    return msgspec.structs.replace(failure, message=f"{said} {UNTOLD}")


def _unread(error: StoreUnavailable) -> str:
    lasts = error.state == DatabaseState.DAMAGED
    return error.message if lasts else UNREAD.format(error.reason)


def is_fault(turn: Turn, error: Exception) -> bool:
    """Whether a turn could not be run for a fault of ours, which the program's log is to have."""
    known = isinstance(error, WorkerFailed | StoreUnavailable | DamageMet)
    return not (known or _task_is_gone(turn, error))


def _task_is_gone(turn: Turn, error: Exception) -> bool:
    """Whether the turn is a scheduled task's run whose task was deleted before it began."""
    queued = turn.state == TurnState.QUEUED
    return queued and turn.task_id is not None and isinstance(error, Conflict)


def deadly() -> Outcome:
    """One server after the other died while it prepared the prompt."""
    return Outcome(TurnState.FAILED, failure=TurnFailure(ErrorKind.SERVER_DIED, DEADLY))


def not_begun(turn: Turn) -> Outcome:
    """The prompt never left for Claude, and will not."""
    return Outcome(
        TurnState.CANCELLED,
        stop_reason="cancelled",
        failure=_unsent(turn, TurnFailure(ErrorKind.NOT_STARTED, NOT_BEGUN)),
    )


def given_already() -> Outcome:
    """The prompt had left for Claude before the database was put back."""
    return Outcome(TurnState.FAILED, failure=TurnFailure(ErrorKind.RESTORED, GIVEN))


def waits_elsewhere(original: str) -> Outcome:
    """The prompt is the original's to send, of which this database is a copy."""
    return Outcome(
        TurnState.CANCELLED,
        stop_reason="cancelled",
        failure=TurnFailure(ErrorKind.COPIED, WAITS_ELSEWHERE.format(path=original)),
    )


def end_missing(turn: Turn | None = None) -> Outcome:
    """The turn is over, and nobody knows how it ended; None: one that Claude began by itself."""
    if turn is not None and turn.cancelled.is_set():
        return CANCELLED
    return Outcome(TurnState.UNKNOWN, failure=TurnFailure(ErrorKind.END_LOST, ENDED))


def background_lost(message: str, kind: ErrorKind = ErrorKind.WORKER_LOST) -> Outcome:
    """Claude's own turn, after background work ended, was cut off."""
    failure = TurnFailure(kind, f"{message} Claude was telling of background work that ended.")
    return Outcome(TurnState.FAILED, failure=failure)


def cut_off(why: str) -> str:
    """Why a tool call has failed whose worker is gone."""
    return f"{CUT_OFF} {why}"


def lost(turn: Turn, kind: ErrorKind, message: str, *, may_have_spoken: bool = False) -> Outcome:
    """The worker of a dispatched turn is gone: `failed` with partial output in the log, or where
    that cannot be looked at, else `unknown`.
    """
    if turn.cancelled.is_set():
        return CANCELLED
    spoke = turn.spoke or may_have_spoken
    return Outcome(
        TurnState.FAILED if spoke else TurnState.UNKNOWN,
        failure=TurnFailure(kind, f"{message} {KEPT if spoke else UNSURE}"),
    )
