"""What is said about directories that are not trusted: requests, notes and refusals; pure
functions.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final, Literal
from uuid import uuid4

from pykoclaw_acp.model.events import Event, TextPart, ToolEnded, ToolStarted, note_event
from pykoclaw_acp.model.permissions import Decision, PermissionRequest, StoredRequest, Workspace
from pykoclaw_acp.model.trust import ALLOWS, TOOL
from pykoclaw_acp.neutral import fenced, neutral
from pykoclaw_acp.sessions.permissions.decisions import (
    ALLOW_ALWAYS,
    ALLOW_ONCE,
    REJECT_ONCE,
    is_choice,
)

_CHOICES: Final = (
    "Run without it: hooks, programs, MCP servers, plugins, skills, agents and commands of the directory are ignored,"
    " and so are its settings, except permission rules that deny or ask. CLAUDE.md is still read.\nTrust it: its"
    " present content takes effect, in every conversation there, until it changes; then you are asked again.\nRefuse:"
    " the prompt is not sent."
)
_INCOMPLETE: Final = (
    "Its content could not be examined completely, so it cannot be trusted here: `pykoclaw-acp trust add --tree` trusts"
    " a directory whatever its content is."
)
_AGAIN: Final = (
    "If you expect such changes, this command stops the questions. It trusts the directory and all directories below"
    " it, whatever their content becomes:"
)
DONE: Final = {
    ALLOW_ONCE: "Claude runs without the active content of the directory.",
    ALLOW_ALWAYS: "Trusted: the present content of the directory takes effect until it changes.",
    REJECT_ONCE: "Refused: the prompt is not sent, and nothing has run.",
}
"""What a choice on the command line has brought about."""
WITHDRAWN: Final = "withdrawn"  # in place of a choice
_ENDS: Final = {**DONE, WITHDRAWN: "Withdrawn: nobody has answered."}

_Changes = Mapping[str, Sequence[str]]
"""By directory: what has changed in it since it was trusted, in lines."""


def request(
    turn_id: str, workspaces: Sequence[Workspace], changes: _Changes | None = None
) -> PermissionRequest:
    """The request to trust these directories."""
    ask_id = str(uuid4())
    complete = all(one.content for one in workspaces)
    changes = changes or {}
    changed = [one for one in workspaces if changes.get(one.path)]
    again = " again" if changed else ""
    listed = (_listed(one, changes) for one in workspaces)
    said = [*listed, _CHOICES, *([] if complete else [_INCOMPLETE])]
    if changed:
        said += [_AGAIN, _adds(changed, "--tree ")]
    return PermissionRequest(
        epoch=0,
        ask_id=ask_id,
        turn_id=turn_id,
        tool_call_id=ask_id,
        title=f"Trust {_names(workspaces)}{again}? It has active content ({_count(workspaces)})",
        tool_kind="other",
        tool=TOOL,
        always="what the directory holds now" if complete else None,
        content=(TextPart("\n\n".join(said), beside=True),),
        input={"directories": {one.path: list(one.found) for one in workspaces}},
        workspaces=tuple(workspaces),
    )


def log_events(request: PermissionRequest, choice: str | None) -> list[Event]:
    """The log events of a request that is settled; whatever is no choice lets Claude run without."""
    said = _ENDS.get(choice or ALLOW_ONCE, DONE[ALLOW_ONCE])
    found = (line for one in request.workspaces for line in one.found)
    if choice == ALLOW_ALWAYS and any(ALLOWS in line for line in found):
        said += " Its rules that allow calls do so once Claude itself trusts it, too."
    done = TextPart(said, beside=True)
    failed = choice in (REJECT_ONCE, WITHDRAWN)
    status: Literal["completed", "failed"] = "failed" if failed else "completed"
    started = ToolStarted(
        request.tool_call_id, TOOL, request.title, "other", request.input, request.content
    )
    return [started, ToolEnded(request.tool_call_id, status, (*request.content, done))]


def ends(asked: Sequence[StoredRequest], said: Sequence[Event] = ()) -> list[Event]:
    """The log events of a turn's requests, the newest first, that `said` has nothing of. Claude does
    not run by their answers.
    """
    known = {one.tool_call_id for one in said if isinstance(one, ToolStarted)}
    return [
        event
        for one in reversed(asked)
        if one.request.tool_call_id not in known
        for event in log_events(one.request, _chosen(one) or WITHDRAWN)
    ]


def _chosen(one: StoredRequest) -> str | None:
    if one.outcome is None or not is_choice(one.request, Decision(one.outcome, one.option)):
        return None
    return one.option


def left_out(turn_id: str, workspaces: Sequence[Workspace]) -> list[Event]:
    """What the conversation says when Claude runs without what acts, which the request lists."""
    said = (
        f"**Claude runs here without the active content of {_names(workspaces)}**, because it is not trusted."
        " The request above lists it.\n\nInstructions such as CLAUDE.md are still read."
        " To let the rest take effect from the next prompt on:"
        f"\n\n{_adds(workspaces)}"
    )
    return [note_event(f"{turn_id}-workspace", said)]


def _adds(workspaces: Sequence[Workspace], option: str = "") -> str:
    adds = (f"pykoclaw-acp trust add {option}{shlex.quote(one.path)}" for one in workspaces)
    return fenced("\n".join(adds), "sh")


def refusal(workspaces: Sequence[Workspace]) -> str:
    """Why the prompt was not sent."""
    paths = (neutral(shlex.quote(one.path)) for one in workspaces)
    shows = ", ".join(f"`pykoclaw-acp trust show {path}`" for path in paths)
    return (
        f"The prompt was not sent to Claude, because {_names(workspaces)} is not trusted and you refused to run there."
        f" Send it again to be asked again, or look at the directory first: {shows}."
    )


def too_many_rules(cwd: str, size: int) -> str:
    """Why Claude cannot run without trust where so many characters of rules forbid something."""
    return (
        f"The prompt was not sent to Claude: the settings in {neutral(cwd)} forbid more than can be kept without trust "
        f"({size:,} characters of `permissions.deny` and `permissions.ask`). Trust the directory, or shorten them."
    )


def _names(workspaces: Sequence[Workspace]) -> str:
    return " and ".join(neutral(one.path) for one in workspaces)


def _count(workspaces: Sequence[Workspace]) -> str:
    count = sum(len(one.found) for one in workspaces)
    return "1 thing found" if count == 1 else f"{count} things found"


def _listed(one: Workspace, changes: _Changes) -> str:
    said = f"{neutral(one.path)} has this active content:\n" + fenced("\n".join(one.found))
    if changed := changes.get(one.path):
        said += "\n\nSince it was trusted:\n" + fenced("\n".join(neutral(line) for line in changed))
    return said
