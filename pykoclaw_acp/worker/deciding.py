"""What the user decides beyond whether a tool may run: Claude's plan, and Claude's questions."""

from __future__ import annotations

import os
from typing import Any, Final, cast

from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, PermissionUpdate
from claude_agent_sdk.types import PermissionMode
from msgspec.structs import replace

from pykoclaw_acp.channel.frames import Answer
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.model.events import TextPart
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.model.questions import ANSWERS, ASKS, read
from pykoclaw_acp.model.refused import REFUSED
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.system.credentials import configuration
from pykoclaw_acp.translation import deciding
from pykoclaw_acp.translation.plan import TaskList
from pykoclaw_acp.worker.translate import Translator

_ACCEPTS_EDITS: Final = "edits (mode Accept edits)"


def translator(options: WorkerOptions) -> Translator:
    """The translator of a new worker: it knows the list of tasks, the directories of the session, and
    where Claude keeps plans.
    """
    plans = os.path.join(configuration(os.environ, os.path.expanduser("~")), "plans")
    tasks, added = TaskList.of(options.plan), options.additional_directories
    return Translator(options.cwd, tasks=tasks, added=added, plans=plans)


def presented(
    name: str, arguments: dict[str, Any], called: dict[str, Any] | None
) -> dict[str, Any]:
    """What the user is asked about, of a call that was shown with the input `called`.

    The CLI asks about a plan with what it finds in Claude's file, which is nothing if Claude has
    written none and presents its plan in the call.
    """
    return {**(called or {}), **arguments} if name == deciding.PLANS else arguments


async def no_mode() -> str:
    """No mode to which a plan's approval may lead back."""
    return ""


def special(request: PermissionRequest, arguments: dict[str, Any]) -> PermissionRequest:
    """The request as it is asked: about a plan, or with questions, if the tool is one of these."""
    if request.tool == deciding.PLANS:
        plan = neutral(deciding.plan(arguments), "prose")
        return replace(
            request,
            plan=True,
            always=_ACCEPTS_EDITS,
            rules=(),
            content=(TextPart(plan, beside=True),),
        )
    if request.tool == ASKS and (questions := read(arguments)):
        content = deciding.content(ASKS, arguments)
        return replace(request, questions=questions, always=None, rules=(), content=content)
    return request


def result(
    request: PermissionRequest,
    arguments: dict[str, Any],
    answer: Answer,
    updates: list[PermissionUpdate],
) -> PermissionResultAllow | PermissionResultDeny:
    """What the CLI is told of the user's answer; `updates` are what "always" allows."""
    if request.questions and answer.decision == "accept":
        given = (answer.content or {}).get(ANSWERS, {})
        return PermissionResultAllow(updated_input={**arguments, ANSWERS: given})
    if answer.decision not in ("allow_once", "allow_always", "allow_former"):
        return PermissionResultDeny(message=answer.message or REFUSED)
    if request.plan:
        return PermissionResultAllow(updated_permissions=_after_plan(request, answer))
    return PermissionResultAllow(
        updated_permissions=updates if answer.decision == "allow_always" else None
    )


def _after_plan(request: PermissionRequest, answer: Answer) -> list[PermissionUpdate]:
    """The mode that follows. The CLI passes over a former one that Claude's settings forbid by now;
    what was set before it holds then.
    """
    modes = ["acceptEdits" if answer.decision == "allow_always" else "default"]
    if answer.decision == "allow_former" and request.former:
        modes.append(request.former)
    return [
        PermissionUpdate(type="setMode", mode=cast("PermissionMode", mode), destination="session")
        for mode in modes
    ]
