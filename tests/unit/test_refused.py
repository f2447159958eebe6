"""What a user sees of a call that was refused: nothing of what only Claude should read."""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.model.events import TextPart, ToolEnded
from pykoclaw_acp.model.permissions import Decision, PermissionRequest, RequestOutcome
from pykoclaw_acp.model.questions import Question
from pykoclaw_acp.sessions.permissions.words import IN_CHAT, REJECT_ONCE, refusal
from pykoclaw_acp.translation.translator import ToolResult, Translation

PLAN = {"plan": "1. Clean up"}
ASKED = {"questions": [{"question": "Which?", "options": []}]}
CHOSEN = RequestOutcome.SELECTED


def request(tool: str) -> PermissionRequest:
    return PermissionRequest(
        epoch=1, ask_id="a", turn_id="t", tool_call_id="c", title="x", tool_kind="other", tool=tool,
        plan=tool == "ExitPlanMode", questions=(Question("Which?"),) if tool == "AskUserQuestion" else (),
    )  # fmt: skip


def seen(tool: str, arguments: dict[str, Any], told: str) -> str:
    """What the call shows last, when the CLI has answered it for Claude."""
    translation = Translation("/w")
    translation.start_tool("c", tool, arguments)
    ended = translation.end_tools([ToolResult("c", told, is_error=True)], f"Error: {told}")[0]
    assert isinstance(ended, ToolEnded)
    last = ended.content[-1]
    assert isinstance(last, TextPart)
    return last.text


@pytest.mark.parametrize(
    ("tool", "arguments", "decision", "shown"),
    [
        ("ExitPlanMode", PLAN, Decision(CHOSEN, REJECT_ONCE), "Kept planning."),
        ("ExitPlanMode", PLAN, Decision(CHOSEN, REJECT_ONCE, content={"reason": "Use fewer\nsteps"}),
         "Kept planning: Use fewer\nsteps"),
        ("ExitPlanMode", PLAN, Decision(RequestOutcome.TIMEOUT),
         "Nobody decided the permission request in time. The plan is not approved."),
        ("AskUserQuestion", ASKED, Decision(CHOSEN, IN_CHAT), "To be answered in the chat."),
        ("AskUserQuestion", ASKED, Decision(RequestOutcome.DECLINE), "Declined to answer."),
        ("AskUserQuestion", ASKED, Decision(RequestOutcome.DECLINE, content={"reason": "No idea"}),
         "Declined to answer: No idea"),
        ("AskUserQuestion", ASKED, Decision(RequestOutcome.DENIED), "Nobody was there to answer."),
        ("AskUserQuestion", ASKED, Decision(RequestOutcome.CANCEL), "Not answered."),
        ("Bash", {"command": "ls"}, Decision(CHOSEN, REJECT_ONCE), "Refused."),
        ("Bash", {"command": "ls"}, Decision(RequestOutcome.CANCELLED),
         "The user did not decide the permission request."),
        ("Bash", {"command": "ls"}, Decision(RequestOutcome.DENIED),
         "Nobody was there to be asked, and this session denies what nobody can be asked about."),
        ("Bash", {"command": "ls"}, Decision(CHOSEN, REJECT_ONCE, content={"reason": "Not \x1b[31mnow"}),
         "Refused: Not now"),
    ],
)  # fmt: skip
def test_claude_and_user_get_their_own_words(
    tool: str, arguments: dict[str, Any], decision: Decision, shown: str
) -> None:
    told = refusal(request(tool), decision)
    assert decision.reason in told
    assert seen(tool, arguments, told) == shown


def test_failure_only_beginning_like_refusal_stays_whole() -> None:
    told = "The user wants to keep planning, and did not say yet what it is.\nline 2"
    assert told in seen("Bash", {"command": "ls"}, told)
