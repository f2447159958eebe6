"""What a decision means for Claude, for the stored row and for people: pure functions."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from pykoclaw_acp.channel.frames import Answer
from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.events import Event, Text
from pykoclaw_acp.model.permissions import (
    Decision,
    PermissionRequest,
    RequestOutcome,
    Settlement,
    StoredRequest,
)

ALLOW_ONCE: Final = "allow_once"
ALLOW_ALWAYS: Final = "allow_always"
REJECT_ONCE: Final = "reject_once"
_REFUSALS: Final[dict[str, str]] = {
    RequestOutcome.SELECTED: "The user refused this tool call.",
    RequestOutcome.CANCELLED: "The user did not decide the permission request.",
    RequestOutcome.TIMEOUT: "Nobody decided the permission request in time.",
    RequestOutcome.DENIED: "Nobody was there to be asked, and this session denies what nobody can be asked about.",
}
_CHOICES: Final = {
    ALLOW_ONCE: "allowed, this once",
    ALLOW_ALWAYS: "allowed, for the rest of this session",
    REJECT_ONCE: "refused",
}
MAX_INPUT: Final = 4000  # characters of a tool's input that a prompt repeats


UNANSWERED: Final = Decision(RequestOutcome.UNANSWERED)
UNSUPPORTED: Final = Decision(
    RequestOutcome.UNSUPPORTED
)  # clients are there, and none of them shows forms
OVERDUE: Final = Decision(RequestOutcome.TIMEOUT, by="timeout")
_DENIED: Final = Decision(RequestOutcome.DENIED, by="policy")
_FORM_ACTIONS: Final = (RequestOutcome.ACCEPT, RequestOutcome.DECLINE, RequestOutcome.CANCEL)
_ACTIONS: Final[dict[str, Literal["accept", "decline"]]] = {
    RequestOutcome.ACCEPT: "accept",
    RequestOutcome.DECLINE: "decline",
    _DENIED.outcome: "decline",
}


def by_policy(request: PermissionRequest, policy: AwayPolicy) -> Decision:
    """The decision of an away policy when its time is over; it declines a form, which it cannot
    fill in.
    """
    if policy == AwayPolicy.WAIT:
        return OVERDUE
    if policy == AwayPolicy.DENY or request.form is not None:
        return _DENIED
    return Decision(RequestOutcome.SELECTED, ALLOW_ONCE, "policy")


def by_operator(request: PermissionRequest, option: str, by: str) -> Decision:
    """An operator's decision; raises InvalidParams for a form, unless it is denied."""
    if request.form is None:
        return Decision(RequestOutcome.SELECTED, option, by)
    if option != REJECT_ONCE:
        raise InvalidParams(
            "This request is a form: only a client that shows forms can fill it in. Deny it, or wait."
            if request.form.url is None
            else "This request is a page to be opened: only a client that opens pages can do it. Deny it, or wait."
        )
    return Decision(RequestOutcome.DECLINE, by=by)


def by_client(request: PermissionRequest, outcome: dict[str, Any], name: str) -> Decision:
    """A client's answer as it came: what was not offered is kept in the row, and does not allow
    anything.
    """
    if request.form is not None:
        action = str(outcome.get("action"))
        content = outcome.get("content") if action == RequestOutcome.ACCEPT else None
        return Decision(action, by=name if action in _FORM_ACTIONS else None, content=content)
    kind, option = str(outcome.get("outcome")), outcome.get("optionId")
    chosen = option if kind == RequestOutcome.SELECTED and isinstance(option, str) else None
    return Decision(
        kind, chosen, name if kind in (RequestOutcome.SELECTED, RequestOutcome.CANCELLED) else None
    )


def is_choice(request: PermissionRequest, decision: Decision) -> bool:
    """Whether an offered option was chosen, or the form was filled in or declined."""
    if request.form is not None:
        return decision.outcome in (RequestOutcome.ACCEPT, RequestOutcome.DECLINE)
    return decision.outcome == RequestOutcome.SELECTED and decision.option in offered(request)


def offered(request: PermissionRequest) -> tuple[str, ...]:
    """Ids of the options that the request offers."""
    return (
        (ALLOW_ONCE, REJECT_ONCE)
        if request.always is None
        else (ALLOW_ONCE, ALLOW_ALWAYS, REJECT_ONCE)
    )


def to_worker(epoch: int, request: PermissionRequest, decision: Decision) -> Answer:
    """The answer for the worker: allowed only by an option that was offered, else refused."""
    if request.form is not None:
        action: Literal["accept", "decline", "cancel"] = _ACTIONS.get(decision.outcome, "cancel")
        return Answer(epoch=epoch, ask_id=request.ask_id, decision=action, content=decision.content)
    if is_choice(request, decision) and decision.option == ALLOW_ONCE:
        return Answer(epoch=epoch, ask_id=request.ask_id, decision="allow_once")
    if is_choice(request, decision) and decision.option == ALLOW_ALWAYS:
        return Answer(epoch=epoch, ask_id=request.ask_id, decision="allow_always")
    words = _REFUSALS.get(decision.outcome, "The permission request could not be decided.")
    return Answer(epoch=epoch, ask_id=request.ask_id, decision="reject", message=words)


def stored_to_worker(epoch: int, row: StoredRequest) -> Answer:
    """The answer for a worker that still waits for a request which is settled."""
    decision = Decision(row.outcome or "", row.option, row.answered_by, row.content)
    return to_worker(epoch, row.request, decision)


def settlement(ask_id: str, decision: Decision) -> Settlement:
    """The decision as its row keeps it."""
    return Settlement(ask_id, decision.outcome, decision.option, decision.by, decision.content)


# --- parked requests


def parked_note(request: PermissionRequest) -> list[Event]:
    """The note in the log of a turn that is stopped because nobody is there to answer
    its request.
    """
    said = (
        "\n\n**This turn was stopped because nobody was there to be asked.** The question whether "
        f"“{request.title}” may run still waits: answer it, here or with `pykoclaw-acp approve`, "
        "and the work goes on.\n\n"
    )
    return [Text(f"{request.ask_id}-parked", said, note=True)]


def prompt_with_answer(request: PermissionRequest, decision: Decision) -> list[dict[str, Any]]:
    """The prompt that tells Claude the decision on a parked request; ACP content blocks."""
    lines = [
        "The last turn was stopped because a question waited for an answer and nobody was there. It is answered now.",
        f"The question: may this tool call run? {request.title}",
    ]
    if request.input is not None:
        shown = json.dumps(request.input, ensure_ascii=False)
        lines.append(f"Its input: {shown if len(shown) <= MAX_INPUT else shown[:MAX_INPUT] + '…'}")
    option = decision.option or REJECT_ONCE
    lines.append(f"The user's answer: {_CHOICES[option]}.")
    if option == REJECT_ONCE:
        lines.append(
            "Do not make this call. Go on with the task in another way, or say what you need."
        )
    else:
        lines.append(
            "The call was not made yet. Make it now, exactly so, if it is still needed, and go on with the task."
        )
    return [{"type": "text", "text": "\n".join(lines)}]


def same_call(one: PermissionRequest, other: PermissionRequest) -> bool:
    """Whether both are about the same tool with the same arguments."""
    return one.call != "" and one.call == other.call
