"""Notices from what the journal has: whether one is due, and its words."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any, Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.notices import EndedTurn, Notice, NoticeKind, NoticeSession, WaitingRequest
from pykoclaw_acp.model.permissions import PermissionRequest, RequestPolicy
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.neutral import neutral

LONGEST: Final = 500  # characters of others' words in a notice
SHORT_ID: Final = 12  # characters of a request's id, as `pykoclaw-acp approve` shows it
USAGE_LIMITS: Final = frozenset(
    {ErrorKind.USAGE_LIMIT, ErrorKind.RATE_LIMIT, ErrorKind.BILLING_ERROR}
)
WORKER_FAILURES: Final = frozenset(
    {
        ErrorKind.WORKER_LOST,
        ErrorKind.START_FAILED,
        ErrorKind.START_TIMEOUT,
        ErrorKind.START_LIMIT,
        ErrorKind.SPOOL_PENDING,
        ErrorKind.SPOOL_FULL,
        ErrorKind.CLI_NOT_FOUND,
        ErrorKind.CLI_ENDED,
        ErrorKind.OUT_OF_DESCRIPTORS,
        ErrorKind.OUT_OF_MEMORY,
        ErrorKind.OUT_OF_PROCESSES,
        ErrorKind.SERVER_LOST,
        ErrorKind.SERVER_DIED,
        ErrorKind.WORKER_FOREIGN,
        ErrorKind.ORPHANED,
        ErrorKind.WORKER_STOPPED,
        ErrorKind.INTERNAL,
    }
)
_WAITING: Final = (RequestPolicy.WAIT, RequestPolicy.PARK, RequestPolicy.PARKED)


def of_turn(turn: EndedTurn) -> Notice | None:
    """The notice of an ended turn; None if nobody needs to be told."""
    outcome, failure = turn.outcome, turn.outcome.failure
    if outcome.state == TurnState.CANCELLED:
        return None
    failed = None if failure is None else failure.kind
    where = _where(turn.place, of_task=turn.of_task)
    said = "" if failure is None else _short(failure.message)
    if failed in USAGE_LIMITS:
        kind, text = NoticeKind.USAGE_LIMIT, f"A usage limit stopped Claude in {where}: {said}"
    elif failed in WORKER_FAILURES:
        kind, text = NoticeKind.WORKER_FAILED, f"Claude's worker failed in {where}: {said}"
    elif turn.watched:
        return None
    elif failed is not None:
        kind, text = NoticeKind.TURN_ENDED, f"Claude stopped in {where}: {said}"
    elif outcome.stop_reason in (None, "end_turn"):
        kind, text = NoticeKind.TURN_ENDED, f"Claude has finished in {where}."
    else:
        reason = neutral(str(outcome.stop_reason))
        kind, text = NoticeKind.TURN_ENDED, f"Claude stopped in {where}: {reason}."
    about: dict[str, Any] = {"id": turn.turn_id, "state": str(outcome.state)}
    if outcome.stop_reason is not None:
        about["stopReason"] = outcome.stop_reason
    if failure is not None:
        about |= {"errorKind": failure.kind, "message": _short(failure.message)}
        if failure.retry_after is not None:
            about["retryAfter"] = failure.retry_after
    return Notice(
        f"turn-{turn.turn_id}",
        kind,
        turn.ended_at,
        turn.place,
        text,
        {"turn": about},
        unanswered=turn.of_task and outcome.state != TurnState.DONE,
    )


def of_request(waiting: WaitingRequest) -> Notice | None:
    """The notice of a pending permission request; None if somebody is there, or if the away policy
    decides within seconds.
    """
    if waiting.policy not in _WAITING:
        return None
    request = waiting.request
    kind, text = _asked(request, _where(waiting.place, of_task=waiting.of_task))
    about = {
        "id": request.ask_id,
        "title": _short(request.title),
        "kind": kind,
        "form": request.form is not None,
        "parked": waiting.policy == RequestPolicy.PARKED,
    }
    return Notice(
        f"question-{request.ask_id}",
        NoticeKind.QUESTION,
        waiting.asked_at,
        waiting.place,
        text,
        {"question": about},
    )


def body(notice: Notice) -> dict[str, Any]:
    """A notice as commands and webhooks get it."""
    return {
        "id": notice.notice_id,
        "event": str(notice.kind),
        "at": datetime.fromtimestamp(notice.at / 1000, UTC).isoformat(),
        "session": notice.place.session_id,
        "conversation": notice.place.conversation,
        "title": notice.place.title,
        "cwd": notice.place.cwd,
        "text": notice.text,
        **notice.about,
    }


def _asked(request: PermissionRequest, where: str) -> tuple[str, str]:
    """What kind of request it is, and its words with the commands that settle it."""
    title = _short(request.title)
    command = f"pykoclaw-acp approve {request.ask_id[:SHORT_ID]}"
    if request.form is not None and request.form.url is not None:
        return "page", (
            f"A page waits in {where} to be opened: {title}\n"
            f"Open it where the conversation is open, or refuse: {command} --deny"
        )
    if request.form is not None:
        return "form", (
            f"Claude waits in {where} for a form: {title}\n"
            f"Fill it in where the conversation is open, or refuse: {command} --deny"
        )
    if request.questions:
        answers = " ".join(["--answer TEXT"] * len(request.questions))
        return "questions", (
            f"Claude asks in {where}: {title}\n"
            f"See the choices: {command}\n"
            f"Answer: {command} {answers}\n"
            f"Refuse to: {command} --deny"
        )
    if request.workspaces:
        trust = "" if request.always is None else f"\nTrust it: {command} --always"
        return "trust", (
            f"A prompt waits in {where}: {title}\n"
            f"See what it holds: {command}\n"
            f"Run without it: {command} --allow{trust}\n"
            f"Refuse, so that the prompt is not sent: {command} --deny"
        )
    return "permission", (
        f"Claude waits in {where} for your permission: {title}\n"
        f"See all of it: {command}\n"
        f"Allow: {command} --allow\n"
        f"Deny: {command} --deny"
    )


def _where(place: NoticeSession, *, of_task: bool) -> str:
    """The conversation as a person knows it, or its task."""
    folder = os.path.basename(place.cwd or "")
    name = f"“{_short(place.title)}”" if place.title else neutral(place.conversation)
    name = f"a scheduled task of {name}" if of_task else name
    return f"{name} ({neutral(folder)})" if folder else name


def _short(text: str) -> str:
    text = neutral(text[: LONGEST + 1], "command").strip()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
