"""What Claude is told about a decision: pure functions."""

from __future__ import annotations

import json
from typing import Any, Final

from pykoclaw_acp.model import former_mode, refused
from pykoclaw_acp.model.events import Event, note_event
from pykoclaw_acp.model.permissions import Decision, PermissionRequest, RequestOutcome
from pykoclaw_acp.model.questions import ANSWERS

ALLOW_ONCE: Final = "allow_once"
ALLOW_ALWAYS: Final = "allow_always"
ALLOW_LASTING: Final = "allow_lasting"
ALLOW_FORMER: Final = "allow_former"
REJECT_ONCE: Final = "reject_once"
IN_CHAT: Final = "in_chat"
"""The option by which questions are answered with the next message."""

MAX_INPUT: Final = 4000  # characters of a tool's input that a prompt repeats
_NOBODY: Final[dict[str, str]] = {
    RequestOutcome.CANCELLED: refused.NOT_DECIDED,
    RequestOutcome.TIMEOUT: refused.NOT_IN_TIME,
    RequestOutcome.DENIED: refused.NOBODY_TO_ASK,
}
IN_SESSION: Final = (
    "Allowed for the rest of the session; `pykoclaw-acp rules list` shows it,"
    " `pykoclaw-acp rules remove` removes it."
)
UNTIL_END: Final = (
    "Allowed until Claude's process ends, not for the rest of the session. Not kept are rules that may contain a "
    "secret, rules in a directory that is not trusted, and access to other directories. A mode that was turned on "
    "stays on."
)
_DECLINED: Final = "Declined: the MCP server is told so."
_UNANSWERED: Final = "Declined: Claude is told that you do not want to answer."
_PLAN_EFFECTS: Final = {
    ALLOW_ONCE: "Approved: Claude carries out the plan, and asks before each edit (mode Ask first).",
    ALLOW_ALWAYS: "Approved: Claude carries out the plan, and edits unasked (mode Accept edits).",
    ALLOW_FORMER: "Approved: Claude carries out the plan, in the mode used before planning",
    REJECT_ONCE: "Not approved: Claude is told to ask what should change.",
}
_CHANGE: Final = "Not approved: Claude is told what should change, and to present the plan again."
_CHOICES: Final = {
    ALLOW_ONCE: "allowed, this once",
    ALLOW_ALWAYS: "allowed, for the rest of this session",
    ALLOW_LASTING: "allowed, from now on",
    REJECT_ONCE: "refused",
}
_PLANNED: Final = {
    ALLOW_ONCE: "approved; the user is asked about each edit",
    ALLOW_ALWAYS: "approved; edits are accepted unasked",
    ALLOW_FORMER: "approved; the mode used before planning holds again",
    REJECT_ONCE: "not approved: keep planning",
}


def refusal(request: PermissionRequest, decision: Decision) -> str:
    """What Claude is told in place of the call's result."""
    if request.questions:
        return _unanswered(decision)
    chosen = decision.outcome == RequestOutcome.SELECTED
    if request.plan:
        if not chosen:
            return _NOBODY.get(decision.outcome, refused.UNDECIDED) + refused.PLAN_UNDECIDED
        if decision.reason:
            return refused.CHANGE_PLAN + decision.reason + refused.CHANGE_PLAN_END
        return refused.KEEP_PLANNING
    if chosen and decision.reason:
        return refused.REFUSED_BECAUSE + decision.reason
    return refused.REFUSED if chosen else _NOBODY.get(decision.outcome, refused.UNDECIDED)


def _unanswered(decision: Decision) -> str:
    if decision.option == IN_CHAT:
        return refused.IN_CHAT
    if decision.outcome == RequestOutcome.DECLINE:
        return refused.DECLINED_BECAUSE + decision.reason if decision.reason else refused.DECLINED
    if decision.outcome in (RequestOutcome.TIMEOUT, RequestOutcome.DENIED):
        return refused.NOBODY
    return refused.UNANSWERED


def effect(request: PermissionRequest, option: str, reason: str = "") -> str | None:
    """What a decision has brought about, and how long it holds, for the operator who has made it;
    None: what its name says. `reason`: of a refusal.
    """
    if request.filled_in:
        declined = _UNANSWERED if request.questions else _DECLINED
        return declined if option == REJECT_ONCE else None
    if request.plan:
        if option == ALLOW_FORMER:
            return f"{_PLAN_EFFECTS[option]} ({former_mode.named(request.former)})."
        return _CHANGE if option == REJECT_ONCE and reason else _PLAN_EFFECTS[option]
    if option != ALLOW_ALWAYS:
        return None
    if request.rules:
        return IN_SESSION
    return (
        f"Allowed. Until another mode is chosen: {request.always}." if request.mode else UNTIL_END
    )


# --- parked requests

UNATTENDED: Final = "Stopped: nobody was there to be asked."


def parked_note(request: PermissionRequest, *, by_subagent: bool) -> list[Event]:
    """The note in the log of a turn that is stopped because nobody is there to answer its request; or
    that its subagent is, if it has ended.
    """
    waits = f"The permission request “{request.title}” still waits"
    if request.questions:
        waits = "Claude's questions still wait"
    elif request.plan:
        waits = "Claude's plan still waits to be approved"
    stopped = "This turn was stopped because nobody was there to be asked."
    if by_subagent:
        stopped = "A subagent was stopped because nobody was there to be asked."
    said = (
        f"**{stopped}** {waits}: answer it, here or with "
        "`pykoclaw-acp approve`, and the work goes on."
    )
    return [note_event(f"{request.ask_id}-parked", said)]


def prompt_with_answer(request: PermissionRequest, decision: Decision) -> list[dict[str, Any]]:
    """The prompt that tells Claude the decision on a parked request; ACP content blocks."""
    stopped = "The last turn" if request.parent_id is None else "A subagent of yours"
    lines = [
        f"{stopped} was stopped because a question waited for an answer and nobody was there. It is answered now."
    ]
    lines += _answered(request, decision) if request.questions else _decided(request, decision)
    return [{"type": "text", "text": "\n".join(lines)}]


def _answered(request: PermissionRequest, decision: Decision) -> list[str]:
    given = (decision.content or {}).get(ANSWERS)
    known = given if isinstance(given, dict) else {}
    lines = [
        f"You asked: {one.question}\nThe user's answer: {known.get(one.question, 'none')}"
        for one in request.questions
    ]
    if decision.outcome != RequestOutcome.ACCEPT:
        return [*(f"You asked: {one.question}" for one in request.questions), _unanswered(decision)]
    return [*lines, "Go on with the task."]


def _decided(request: PermissionRequest, decision: Decision) -> list[str]:
    lines = [f"The question: may this call of {request.tool or 'a tool'} run? {request.title}"]
    if request.plan:
        lines = ["The question: may your plan be carried out?"]
    if request.input is not None:
        shown = json.dumps(request.input, ensure_ascii=False)
        lines.append(f"Its input: {shown if len(shown) <= MAX_INPUT else shown[:MAX_INPUT] + '…'}")
    option = decision.option or REJECT_ONCE
    if option == ALLOW_ALWAYS and not (request.plan or request.kept):
        option = ALLOW_ONCE  # Claude's process, which would have kept it, has ended
    lines.append(f"The user's answer: {(_PLANNED if request.plan else _CHOICES)[option]}.")
    if option != REJECT_ONCE:
        lines.append(
            "The call was not made yet. Make it now, exactly so, if it is still needed, and go on with the task."
        )
    elif request.plan or decision.reason:
        lines.append(refusal(request, decision))
    else:
        lines.append(
            "Do not make this call. Go on with the task in another way, or say what you need."
        )
    return lines
