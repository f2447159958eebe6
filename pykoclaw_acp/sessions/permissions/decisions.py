"""What a decision means for the worker, for the stored row and for people: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec.structs import replace

from pykoclaw_acp.channel.frames import Answer
from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model import questions
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.permissions import (
    REASON,
    Decision,
    PermissionRequest,
    RequestOutcome,
    Settlement,
    StoredRequest,
)
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.sessions import worker_options
from pykoclaw_acp.sessions.permissions.words import (
    ALLOW_ALWAYS,
    ALLOW_FORMER,
    ALLOW_LASTING,
    ALLOW_ONCE,
    IN_CHAT,
    REJECT_ONCE,
    refusal,
)

__all__ = [
    "ALLOW_ALWAYS",
    "ALLOW_FORMER",
    "ALLOW_LASTING",
    "ALLOW_ONCE",
    "IN_CHAT",
    "REJECT_ONCE",
]

UNANSWERED: Final = Decision(RequestOutcome.UNANSWERED)
# Clients are there, and none of them shows forms
UNSUPPORTED: Final = Decision(RequestOutcome.UNSUPPORTED)
OVERDUE: Final = Decision(RequestOutcome.TIMEOUT, by="timeout")
BY_POLICY: Final = "policy"
_DENIED: Final = Decision(RequestOutcome.DENIED, by=BY_POLICY)
_FLAGS: Final = {  # of `pykoclaw-acp approve`
    ALLOW_ONCE: "--allow",
    ALLOW_ALWAYS: "--always",
    ALLOW_LASTING: "--lasting",
    ALLOW_FORMER: "--former",
    REJECT_ONCE: "--deny",
}
_FORM_ACTIONS: Final = (RequestOutcome.ACCEPT, RequestOutcome.DECLINE, RequestOutcome.CANCEL)
_ACTIONS: Final[dict[str, Literal["accept", "decline"]]] = {
    RequestOutcome.ACCEPT: "accept",
    RequestOutcome.DECLINE: "decline",
    _DENIED.outcome: "decline",
}


def by_policy(request: PermissionRequest, policy: AwayPolicy) -> Decision:
    """The decision of an away policy when its time is over; it declines what it cannot fill in."""
    if policy == AwayPolicy.WAIT:
        return OVERDUE
    if policy == AwayPolicy.DENY or request.filled_in:
        return _DENIED
    return Decision(RequestOutcome.SELECTED, ALLOW_ONCE, BY_POLICY)


def by_operator(
    request: PermissionRequest, option: str, by: str, reason: str = "", given: Sequence[str] = ()
) -> Decision:
    """An operator's decision, with a reason of a refusal, or with answers to questions, in their
    order.

    Raises InvalidParams for an option that is not offered, for a form, unless it is denied, and for
    answers that do not fit.
    """
    said = {REASON: reason} if reason and option == REJECT_ONCE else None
    if given and (not request.questions or option == REJECT_ONCE):
        raise InvalidParams("There is nothing to answer here: allow it, or deny it.")
    if not request.filled_in:
        if option not in offered(request):
            flags = ", ".join(_FLAGS[one] for one in offered(request))
            raise InvalidParams(f"This permission request can be decided with: {flags}.")
        return Decision(RequestOutcome.SELECTED, option, by, said)
    if option == REJECT_ONCE:
        return Decision(RequestOutcome.DECLINE, by=by, content=said)
    if request.questions:
        chosen = map(questions.by_number, request.questions, given)
        answered = questions.answers(request.questions, list(chosen))
        if len(given) != len(request.questions) or not answered:
            raise InvalidParams(_how_to_answer(len(request.questions)))
        return Decision(RequestOutcome.ACCEPT, by=by, content={questions.ANSWERS: answered})
    raise InvalidParams(
        "This request is a form: only a client that shows forms can fill it in. Deny it, or wait."
        if request.form is None or request.form.url is None
        else "This request is a page to be opened: only a client that opens pages can do it. Deny it, or wait."
    )


def _how_to_answer(asked: int) -> str:
    if asked == 1:
        return "Claude asks a question: answer it with `--answer`, or refuse to with `--deny`."
    return f"Claude asks {asked} questions: answer each, in order, with an `--answer`, or refuse to with `--deny`."


def by_client(request: PermissionRequest, outcome: dict[str, Any], name: str) -> Decision:
    """A client's answer as it came: what was not offered is kept in the row, and does not allow
    anything.
    """
    if request.filled_in:
        action, option = str(outcome.get("action")), outcome.get("optionId")
        content = outcome.get("content") if action == RequestOutcome.ACCEPT else None
        known = action in _FORM_ACTIONS
        return Decision(action, option, name if known else None, content)
    kind, option = str(outcome.get("outcome")), outcome.get("optionId")
    chosen = option if kind == RequestOutcome.SELECTED and isinstance(option, str) else None
    reason = outcome.get(REASON)
    return Decision(
        kind,
        chosen,
        name if kind in (RequestOutcome.SELECTED, RequestOutcome.CANCELLED) else None,
        {REASON: reason} if isinstance(reason, str) and reason.strip() else None,
    )


def is_choice(request: PermissionRequest, decision: Decision) -> bool:
    """Whether an offered option was chosen, or what is to be filled in was, or was declined."""
    if request.filled_in:
        return decision.outcome in (RequestOutcome.ACCEPT, RequestOutcome.DECLINE)
    return decision.outcome == RequestOutcome.SELECTED and decision.option in offered(request)


def refused_by(request: PermissionRequest, decision: Decision) -> str:
    """The client that has refused the call, or "cli"; empty if it was not refused, or by nobody."""
    refused = decision.option == REJECT_ONCE or request.questions
    if not refused or not is_choice(request, decision) or decision.by == BY_POLICY:
        return ""
    return "" if decision.outcome == RequestOutcome.ACCEPT else decision.by or ""


def offered(request: PermissionRequest) -> tuple[str, ...]:
    """Ids of the options that the request offers."""
    always = () if request.always is None else (ALLOW_ALWAYS,)
    lasting = (ALLOW_LASTING,) if request.rules else ()
    former = (ALLOW_FORMER,) if request.former else ()
    return (ALLOW_ONCE, *always, *lasting, *former, REJECT_ONCE)


def still_offered(request: PermissionRequest, options: SessionOptions) -> PermissionRequest:
    """The request as it may be asked in a session with these options: without the way back to a mode
    that is forbidden by now.
    """
    kept = worker_options.allowed(request.former, options) == request.former
    return request if kept else replace(request, former="")


def to_worker(epoch: int, request: PermissionRequest, decision: Decision) -> Answer:
    """The answer for the worker: allowed only by an option that was offered, else refused."""
    ask_id = request.ask_id
    if request.filled_in:
        action: Literal["accept", "decline", "cancel"] = _ACTIONS.get(decision.outcome, "cancel")
        words = refusal(request, decision) if request.questions and action != "accept" else ""
        return Answer(
            epoch=epoch, ask_id=ask_id, decision=action, content=decision.content, message=words
        )
    if is_choice(request, decision) and decision.option == ALLOW_ONCE:
        return Answer(epoch=epoch, ask_id=ask_id, decision="allow_once")
    if is_choice(request, decision) and decision.option in (ALLOW_ALWAYS, ALLOW_LASTING):
        return Answer(epoch=epoch, ask_id=ask_id, decision="allow_always")
    if is_choice(request, decision) and decision.option == ALLOW_FORMER:
        return Answer(epoch=epoch, ask_id=ask_id, decision="allow_former")
    if decision.option is not None and not is_choice(request, decision):
        decision = Decision("")  # of an option that was not offered
    return Answer(epoch=epoch, ask_id=ask_id, decision="reject", message=refusal(request, decision))


def stored_to_worker(epoch: int, row: StoredRequest) -> Answer:
    """The answer for a worker that still waits for a request which is settled."""
    decision = Decision(row.outcome or "", row.option, row.answered_by, row.content)
    return to_worker(epoch, row.request, decision)


def settlement(request: PermissionRequest, decision: Decision, path: str = "") -> Settlement:
    """The decision as its row keeps it, with the rules that last: in the directory `path`, or in the
    session, where they do as well if it has no directory.
    """
    chosen = decision.option if is_choice(request, decision) else None
    return Settlement(
        request.ask_id,
        decision.outcome,
        decision.option,
        decision.by,
        decision.content,
        request.rules if chosen in (ALLOW_ALWAYS, ALLOW_LASTING) else (),
        path if chosen == ALLOW_LASTING else "",
    )


def same_call(one: PermissionRequest, other: PermissionRequest) -> bool:
    """Whether both are about the same tool with the same arguments."""
    return one.call != "" and one.call == other.call
