"""Permission requests, and forms of MCP servers, as ACP has them: pure functions."""

from __future__ import annotations

import re
from typing import Final, Literal

from pykoclaw_acp.model import former_mode
from pykoclaw_acp.model.events import DiffPart, TextPart
from pykoclaw_acp.model.permissions import Form, PermissionRequest
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.protocol.client_requests import (
    AskedToolCall,
    CreateElicitation,
    PermissionKind,
    PermissionOption,
    RequestPermission,
)
from pykoclaw_acp.protocol.content import ToolContent
from pykoclaw_acp.protocol.projection import locations, meta_of_call, parts
from pykoclaw_acp.protocol.updates import ToolCall

MAX_RULE: Final = 160  # characters of a rule in an option's name; the request has all of them
REJECT_WITH_REASON: Final = "reject_with_reason"
_CUT_TITLE: Final = re.compile(r"… \[cut: [\d a-z,]+ characters in all\]\Z")
_Option = Literal["allow_once", "allow_always", "allow_lasting", "allow_former", "reject_once"]
_KINDS: Final[dict[_Option, PermissionKind]] = {
    "allow_once": "allow_once",
    "allow_always": "allow_always",
    "allow_lasting": "allow_always",
    "allow_former": "allow_always",
    "reject_once": "reject_once",
}


def permission(
    session_id: str, request: PermissionRequest, *, reasons: bool = False
) -> RequestPermission:
    """Parameters of `session/request_permission`; "once" comes first, as some clients select the
    first allow option.

    For a workspace trust request this is the option without trust, for a plan the one by which
    edits are asked for. `reasons`: the client can be asked for the reason of a refusal.
    """
    named = choices(request)
    if reasons and request.plan:
        named["reject_once"] = "Keep planning, and say what should change"
    options = [
        PermissionOption(option_id=option, name=name, kind=_KINDS[option])
        for option, name in named.items()
    ]
    if reasons and not request.plan and not request.workspaces:
        words = "Reject, and say why"
        options.append(
            PermissionOption(option_id=REJECT_WITH_REASON, name=words, kind="reject_once")
        )
    call = asked_call(request, neutral(request.title), shown(request))
    return RequestPermission(session_id=session_id, tool_call=call, options=options)


def asked_call(
    request: PermissionRequest, title: str, content: list[ToolContent] | None
) -> AskedToolCall:
    """The call of a request, with this title and content."""
    return AskedToolCall(
        tool_call_id=request.tool_call_id,
        title=title,
        kind=request.tool_kind,
        status="pending",
        name=request.tool or None,
        content=content,
        locations=locations(request.locations),
        raw_input=request.input,
        meta=meta_of_call(request.tool, request.parent_id) or None,
    )


def choices(request: PermissionRequest) -> dict[_Option, str]:
    """Labels of the options by their ids, for a request that is not filled in."""
    until = "in this session" if request.kept else "until Claude's process ends"
    once, always, reject = (
        "Allow once",
        f"Always allow {_cut(neutral(request.always or ''))} {until}",
        "Reject",
    )
    if request.workspaces:
        once, always, reject = (
            "Run without it",
            "Trust it, as it is now",
            "Refuse: do not send the prompt",
        )
    if request.plan:
        return _of_plan(request.former)
    named: dict[_Option, str] = {"allow_once": once}
    if request.always is not None:
        named["allow_always"] = always
    if request.rules:
        words = _cut(neutral(request.always or ", ".join(request.rules)))
        named["allow_lasting"] = f"Always allow {words}, in later sessions in this directory too"
    return {**named, "reject_once": reject}


def _of_plan(former: str) -> dict[_Option, str]:
    """Options of a plan; the former mode comes behind all that allow less."""
    back = f"Approve, and go back to the mode {former_mode.named(former)}"
    return {
        "allow_once": "Approve, and ask for each edit",
        "allow_always": "Approve, and accept edits",
        **({"allow_former": back} if former else {}),
        "reject_once": "Keep planning",
    }


def announcement(request: PermissionRequest) -> ToolCall | None:
    """The tool call of a request that comes from no tool: the client has not seen it when it is
    asked. Its content is in the request. None for others.
    """
    if not request.workspaces:
        return None
    return ToolCall(
        tool_call_id=request.tool_call_id,
        title=neutral(request.title),
        kind=request.tool_kind,
        status="pending",
        name=request.tool,
        meta=meta_of_call(request.tool, None),
    )


def text_beside(request: PermissionRequest) -> str:
    """What somebody has to know who sees the title of a request alone, as Markdown: the plan, what was
    found in directories, the whole of a call whose title is cut; empty if the title says it.
    """
    if not (request.plan or request.workspaces or _CUT_TITLE.search(request.title)):
        return ""
    files = [neutral(part.path) for part in request.content if isinstance(part, DiffPart)]
    texts = [part.text for part in request.content if isinstance(part, TextPart)]
    return "\n\n".join([*files, *texts])


def shown(request: PermissionRequest) -> list[ToolContent] | None:
    """Content that shows what would run."""
    return parts(request.content)


def mcp_form(session_id: str, ask_id: str, form: Form) -> CreateElicitation:
    """Parameters of `elicitation/create`; the message names the server, as ACP has no field for it."""
    message = f"{form.server} asks: {form.message}"
    if form.url is not None:
        return CreateElicitation(
            session_id=session_id, message=message, mode="url", elicitation_id=ask_id, url=form.url
        )
    return CreateElicitation(
        session_id=session_id, message=message, mode="form", requested_schema=form.schema
    )


def _cut(words: str) -> str:
    return (
        words
        if len(words) <= MAX_RULE
        else f"{words[:MAX_RULE]}… [cut: {len(words)} characters in all]"
    )
