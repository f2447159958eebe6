"""What Claude is told in place of a result that a user or nobody has refused, and what the user is
shown of it.

The log and transcripts have the words for Claude; what clients see is found by them.
"""

from __future__ import annotations

from typing import Final

REFUSED: Final = "The user refused this tool call."
REFUSED_BECAUSE: Final = "The user refused this tool call, and said why:\n"

NOT_DECIDED: Final = "The user did not decide the permission request."
NOT_IN_TIME: Final = "Nobody decided the permission request in time."
NOBODY_TO_ASK: Final = (
    "Nobody was there to be asked, and this session denies what nobody can be asked about."
)
UNDECIDED: Final = "The permission request could not be decided."

KEEP_PLANNING: Final = (
    "The user wants to keep planning, and did not say yet what should change. Ask what should change, and end your"
    " turn. Present the plan again only after the answer."
)
CHANGE_PLAN: Final = "The user wants to keep planning, and says what should change:\n"
CHANGE_PLAN_END: Final = "\nChange the plan accordingly, then present it again."
PLAN_UNDECIDED: Final = " The plan is not approved: end your turn."

IN_CHAT: Final = (
    "The user answers in the chat. Write these questions with their choices as text, and end your turn: the"
    " next message holds the answers."
)
DECLINED: Final = "The user did not want to answer these questions."
DECLINED_BECAUSE: Final = f"{DECLINED} They said:\n"
NOBODY: Final = (
    "Nobody was there to answer. Go on without the answers if the task can be done so, and say what you"
    " assumed; else say what you need to know, and end your turn."
)
UNANSWERED: Final = (
    "The user did not answer these questions. Ask them as text if you need the answers."
)

_SHOWN: Final = {
    REFUSED: "Refused.",
    KEEP_PLANNING: "Kept planning.",
    IN_CHAT: "To be answered in the chat.",
    DECLINED: "Declined to answer.",
    NOBODY: "Nobody was there to answer.",
    UNANSWERED: "Not answered.",
    **{told: told for told in (NOT_DECIDED, NOT_IN_TIME, NOBODY_TO_ASK, UNDECIDED)},
}
_WITH_WORDS: Final = (  # how a text begins, how it ends, and what is shown before the user's words
    (CHANGE_PLAN, CHANGE_PLAN_END, "Kept planning: "),
    (REFUSED_BECAUSE, "", "Refused: "),
    (DECLINED_BECAUSE, "", "Declined to answer: "),
)


_ACTS: Final = ("Refused", "Kept planning", "To be answered in the chat", "Declined to answer")


def refused_in(place: str, shown: str) -> str:
    """What the user sees of a refusal, with where it was made; other words as they are."""
    for act in _ACTS:
        if shown.startswith((f"{act}.", f"{act}:")):
            return f"{act} in {place}{shown.removeprefix(act)}"
    return shown


def shown(told: str) -> str | None:
    """What the user sees of what Claude was told; None if it is none of these texts."""
    if (whole := _SHOWN.get(told)) is not None:
        return whole
    for begin, end, before in _WITH_WORDS:
        if told.startswith(begin) and told.endswith(end):
            return before + told.removeprefix(begin).removesuffix(end).strip()
    if told.endswith(PLAN_UNDECIDED) and len(told) <= 2 * len(NOBODY):
        return f"{told.removesuffix(PLAN_UNDECIDED)} The plan is not approved."
    return None
