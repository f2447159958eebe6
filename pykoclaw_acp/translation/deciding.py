"""How the tools look by which Claude presents a plan, asks its user, and keeps its list of tasks:
pure functions.

What such a tool tells the model is not for the user, and what the user sees elsewhere is not shown
as a call.
"""

from __future__ import annotations

import os.path
import re
from typing import Any, Final

from pykoclaw_acp.model.events import TextPart, ToolPart
from pykoclaw_acp.model.questions import ASKS, described, read
from pykoclaw_acp.neutral import neutral

PLANS: Final = "ExitPlanMode"
DECIDED: Final = (PLANS, ASKS)
_ENTERS: Final = "EnterPlanMode"
_TASKS: Final = ("TaskCreate", "TaskUpdate", "TaskList", "TaskGet", "TodoWrite")
_SEARCH: Final = "ToolSearch"
_SELECT: Final = "select:"
_WRITES: Final = ("Write", "Edit", "MultiEdit")
NO_PLAN: Final = "(Claude has written no plan.)"
# With which a plan's heading may begin.
_PLAN: Final = re.compile(r"\Aplan\b[\s:.-]*", re.IGNORECASE)


def is_quiet(name: str, arguments: dict[str, Any], plans: str) -> bool:
    """Whether a call that succeeds is not shown: its effect is, as the plan.

    `plans`: the directory in which Claude keeps the plans that it presents later.
    """
    if name == _SEARCH:
        query = arguments.get("query")
        if not isinstance(query, str) or not query.startswith(_SELECT):
            return False
        found = [one.strip() for one in query.removeprefix(_SELECT).split(",")]
        return all(one in (*_TASKS, PLANS, _ENTERS, ASKS) for one in found)
    if name in _WRITES:
        path = arguments.get("file_path")
        return bool(plans) and isinstance(path, str) and os.path.dirname(path) == plans
    return name in _TASKS


def title(name: str, arguments: dict[str, Any]) -> str | None:
    """Title of a call that presents a plan; None for other tools."""
    if name == PLANS:
        if (text := plan(arguments)) == NO_PLAN:
            return "Leave plan mode without a plan"
        lines = (line.strip("# \t") for line in text.splitlines())
        said = (_PLAN.sub("", line) for line in lines)
        first = next((line for line in said if line), "")
        return f"Plan: {first}" if first else "Plan"
    return None


def plan(arguments: dict[str, Any]) -> str:
    """The plan that the CLI puts into the call, in Markdown."""
    text = arguments.get("plan")
    return text.strip() if isinstance(text, str) and text.strip() else NO_PLAN


def content(name: str, arguments: dict[str, Any]) -> tuple[ToolPart, ...]:
    """What the call shows before there is a result."""
    if name == PLANS:
        return (TextPart(neutral(plan(arguments), "prose"), beside=True),)
    if name == ASKS:
        return (TextPart(described(read(arguments)), beside=True),)
    return ()


def result(
    name: str,
    arguments: dict[str, Any] | None,
    details: object,
    found: tuple[ToolPart, ...],
    *,
    failed: bool,
) -> tuple[ToolPart, ...]:
    """What the call shows in the end, of any tool; `found` is what it has put out. Empty: as before.
    `arguments`: None if they are not known any more.
    """
    if name not in (PLANS, ASKS):
        return found
    asked = () if arguments is None else content(name, arguments)
    if failed:
        return (*asked, *found)
    given = details.get("answers") if isinstance(details, dict) else None
    if name == PLANS or not isinstance(given, dict):
        return ()
    lines = [
        f"**{neutral(str(question), 'prose')}**\n{neutral(str(answer), 'prose')}"
        for question, answer in given.items()
    ]
    if not lines:
        return (*asked, TextPart("(not answered)", beside=True))
    return (TextPart("\n\n".join(lines), beside=True),)
