"""Reasons for failed turns and starts: a kind for programs, a sentence for people."""

from __future__ import annotations

import re
import signal
from typing import Final

from claude_agent_sdk import ResultMessage
from msgspec.structs import replace

from pykoclaw_acp.error_kinds import MISREAD, ErrorKind
from pykoclaw_acp.model.events import Event, note_event
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.system import shortage
from pykoclaw_acp.translation import service_errors
from pykoclaw_acp.translation.service_errors import LOOKED_AT
from pykoclaw_acp.worker import refusals

_UNUSABLE: Final = (
    "is not known, or this account may not use it. Choose another one in your client, or send `/model` with its name."
    " PYKOCLAW_MODEL is that of new sessions only."
)
_OWN_ADVICE: Final = (
    " (There's an issue with the selected model"  # whose remedy is an option of the CLI
)
_BY_STATUS: Final = {
    400: ErrorKind.INVALID_REQUEST,
    401: ErrorKind.AUTHENTICATION_FAILED,
    402: ErrorKind.BILLING_ERROR,
    403: ErrorKind.AUTHENTICATION_FAILED,
    404: ErrorKind.MODEL_NOT_FOUND,
    413: ErrorKind.CONTEXT_TOO_LARGE,
    429: ErrorKind.RATE_LIMIT,
    529: ErrorKind.OVERLOADED,
}
_ADVICE: Final = {
    ErrorKind.AUTHENTICATION_FAILED: "Claude refused the credential: log in with `claude`, or set ANTHROPIC_API_KEY.",
    ErrorKind.BILLING_ERROR: "The account cannot be billed. Check how it pays, then send the prompt again.",
    ErrorKind.RATE_LIMIT: "Claude's rate limit is reached. Wait, then send the prompt again.",
    ErrorKind.OVERLOADED: "Claude is overloaded. Wait a moment, then send the prompt again.",
    ErrorKind.SERVER_ERROR: "Claude's service had an error. Send the prompt again.",
    ErrorKind.CONTEXT_TOO_LARGE: refusals.TOO_LONG,
    ErrorKind.MODEL_NOT_FOUND: f"The model {_UNUSABLE}",
    ErrorKind.INVALID_REQUEST: (
        "Claude's service refused the request as invalid. If it happens again, go on with another model, or in a new"
        " session."
    ),
}


_EARLY: Final = {
    "refusal": "Claude refused to go on. Say it differently, choose another model, or begin a new session.",
    "max_tokens": "The answer has reached the longest that the model may give. Ask Claude to go on.",
    "max_turn_requests": "The turn has reached the most steps that it may take. Ask Claude to go on.",
}
_CRASHES: Final = {
    -signal.SIGSEGV,
    -signal.SIGABRT,
    -signal.SIGTRAP,
    -signal.SIGILL,
    -signal.SIGBUS,
}
_SAID: Final = ("Overloaded", "Internal server error")  # which our own words say
_LOST: Final = re.compile(
    r"connection (?:to the API )?(?:was )?(?:lost|closed|error)|ECONNRESET", re.IGNORECASE
)
_AGAIN: Final = re.compile(r"(?<=[Ss]end )the prompt again")
_GO_ON: Final = "a prompt to have it go on"
_CONTINUE: Final = "“Go on”"
_STAYS: Final = " What was done before stays."
LONGEST: Final = 300  # characters of other programs' words

_SPOOL_LIMIT: Final = (
    "The answer reached the limit of what a worker keeps on disk until a daemon receives it, so the turn was stopped. "
    "Raise PYKOCLAW_SPOOL_LIMIT, or keep the daemon running, and send the prompt again."
)
_SPOOL_FAILED: Final = (
    "The answer could not be kept on disk until a daemon receives it ({why}), so the turn was stopped. Make room "
    "there, or make it writable, and send the prompt again."
)


def spool_full(trouble: OSError | None) -> TurnFailure:
    """The failure of a turn whose answer the spool does not take: its limit is reached, or it cannot
    be written.
    """
    if trouble is None:
        return TurnFailure(ErrorKind.SPOOL_FULL, _SPOOL_LIMIT)
    words = _SPOOL_FAILED.format(why=f"{trouble.strerror}: {trouble.filename}")
    return TurnFailure(ErrorKind.SPOOL_FULL, words)


def lacks(error: BaseException, words: str) -> tuple[ErrorKind, str] | None:
    """What had run out when the CLI died with this error and this output: the kind, and a sentence
    with the remedy.

    A CLI that crashes under a limit of its address space says nothing: that limit is the likely
    cause.
    """
    crashed = getattr(error, "exit_code", None) in _CRASHES and shortage.memory_is_limited()
    return (
        shortage.of(error, forks=True)
        or shortage.of_words(words)
        or (shortage.MEMORY if crashed else None)
    )


def fault(error: BaseException) -> tuple[ErrorKind, str]:
    """Kind and message for an error of the worker itself."""
    if (found := shortage.of(error)) is not None:
        return found[0], f"Claude's worker had to end: {found[1]}"
    return (
        ErrorKind.INTERNAL,
        "Internal error in Claude's worker; `pykoclaw-acp logs --workers` says more.",
    )


def foreign(words: str) -> str:
    """What another program says of an error, as one line without addresses."""
    return in_one_line(service_errors.cause(words))


def in_one_line(words: str, most: int = LONGEST) -> str:
    """Output of another program as one line of at most so many characters, escaped, and without
    digits that a client would misread.
    """
    line = " ".join("…" if MISREAD in word else word for word in words[:LOOKED_AT].split())
    return _cut(neutral(line), most)


def _cut(line: str, most: int) -> str:
    """The line, or its sentences that fit, or its words, and a mark."""
    if len(line) <= most:
        return line
    begin = line[: most - 1]
    ends = [begin.rfind(f"{mark} ") + 1 for mark in ".!?"]
    if (end := max(ends)) > most // 3:
        return f"{begin[:end]} …"[:most]
    return f"{begin.rpartition(' ')[0] or begin}…"


def refused_to_root(words: str) -> str | None:
    """What to do if the CLI refused a permission mode to root."""
    if "cannot be used with root" not in words:
        return None
    return (
        "Claude refuses the permission mode bypassPermissions to root. Set IS_SANDBOX=1 in the environment of the"
        " daemon if this machine is a disposable sandbox, run the daemon as another user, or set"
        " PYKOCLAW_PERMISSION_MODE to another mode."
    )


def early_end(turn_id: str, stop_reason: str | None) -> list[Event]:
    """A note for the log if the answer is incomplete: many clients do not show the stop reason."""
    why = _EARLY.get(stop_reason or "")
    if why is None:
        return []
    return [note_event(f"{turn_id}-early", f"**This turn ended early.** {why}")]


def turn_failure(result: ResultMessage, api_error: tuple[str, str] | None) -> TurnFailure:
    """Why a turn ended without an answer."""
    status = result.api_error_status
    named, said = api_error or ("", "")
    words = service_errors.cause(
        said or (result.errors or [""])[0] or result.result or result.subtype
    )
    if (known := _BY_STATUS.get(status or 0)) is not None:
        kind = known
    elif named not in ("", "unknown"):
        kind = ErrorKind(named)
    else:
        broken = status is not None and status >= 500
        kind = ErrorKind.SERVER_ERROR if broken else ErrorKind.TURN_FAILED
    refused = refusals.of(words[:LOOKED_AT]) or (refusals.TOO_LARGE if status == 413 else None)
    if refused is not None:
        kind = refused.kind
    elif result.terminal_reason == "prompt_too_long":
        kind = ErrorKind.CONTEXT_TOO_LARGE
    sentence = _ADVICE.get(kind) if refused is None else refused.advice
    if kind == ErrorKind.SERVER_ERROR and status is None and _LOST.search(words[:LOOKED_AT]):
        sentence = "The connection to Claude's service was lost. Send the prompt again."
    detail = in_one_line(words)
    if kind == ErrorKind.CONTEXT_TOO_LARGE:
        detail = neutral(" ".join(words[:LOOKED_AT].split()))[:LONGEST]
    if refused is not None and refused.guessed and status is not None:
        detail = f"HTTP status {status}"
    if sentence and detail.rstrip(".") not in _SAID:
        sentence = f"{sentence} ({detail})"
    return TurnFailure(kind=kind, message=sentence or detail, status=status)


def of_own_turn(failure: TurnFailure) -> TurnFailure:
    """The failure of a turn that Claude began by itself: its prompt has had its answer, and sent again
    would do all again.
    """
    advice, changed = _AGAIN.subn(_GO_ON, failure.message)
    if not changed and failure.resets_at is None:  # what follows a limit's end is said later
        advice = f"{advice} Send {_GO_ON}."
    return replace(failure, message=f"Claude could not go on by itself. {advice}")


def of_begun_turn(failure: TurnFailure) -> TurnFailure:
    """The failure of a turn that has used tools, which its prompt, sent again, would have done again."""
    said, changed = _AGAIN.subn(_CONTINUE, failure.message)
    return replace(failure, message=said + _STAYS if changed else said, begun=True)


def naming(failure: TurnFailure, model: str) -> TurnFailure:
    """The failure, with the model that Claude's service refuses."""
    if failure.kind != ErrorKind.MODEL_NOT_FOUND:
        return failure
    said = failure.message.partition(_OWN_ADVICE)[0]
    named = f"The model `{in_one_line(model)}` {_UNUSABLE}"
    return replace(failure, message=said.replace(_ADVICE[ErrorKind.MODEL_NOT_FOUND], named))
