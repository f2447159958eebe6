"""Neutral events as ACP v1 `session/update`s: a pure function, in this one place."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.protocol.messages import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AskedToolCall,
    Cost,
    Diff,
    ImageContent,
    PermissionOption,
    RequestPermission,
    ShownContent,
    TextContent,
    ToolCall,
    ToolCallUpdate,
    ToolLocation,
    Update,
    UsageUpdate,
    UserMessageChunk,
)
from pykoclaw_acp.sessions.events import (
    Event,
    Failure,
    ImagePart,
    TextPart,
    Thinking,
    ToolEnded,
    ToolPart,
    ToolProgressed,
    ToolStarted,
    Usage,
    UserMessage,
)
from pykoclaw_acp.worker.frames import Ask

SEQ: Final = "pykoclaw.dev/seq"
PARENT: Final = "pykoclaw.dev/parentToolCallId"
UNREADABLE: Final = "(A part of the history cannot be read any more.)"
FAILED: Final = "\n\n**This turn ended without an answer.** {}\n\n"


def update(seq: int, event: Event | None) -> Update:
    """The update that tells of the event at `seq`; an unreadable row says so in its place."""
    meta: dict[str, Any] = {SEQ: seq}
    match event:
        case None:
            return AgentMessageChunk(message_id=f"unreadable-{seq}", content=TextContent(text=UNREADABLE), meta=meta)
        case UserMessage():
            return UserMessageChunk(message_id=event.message_id, content=event.content, meta=meta)
        case Thinking():
            return AgentThoughtChunk(message_id=event.message_id, content=TextContent(text=event.text), meta=meta)
        case Failure():
            said = TextContent(text=FAILED.format(event.text))
            return AgentMessageChunk(message_id=event.message_id, content=said, meta=meta)
        case ToolStarted():
            return _tool_call(event, meta)
        case ToolProgressed():
            shown = _parts(event.content)
            return ToolCallUpdate(tool_call_id=event.tool_call_id, status="in_progress", content=shown, meta=meta)
        case ToolEnded():
            shown = _parts(event.content)
            return ToolCallUpdate(tool_call_id=event.tool_call_id, status=event.status, content=shown, meta=meta)
        case Usage():
            cost = None if event.cost is None else Cost(amount=event.cost, currency="USD")
            return UsageUpdate(used=event.used, size=event.size, cost=cost, meta=meta)
        case _:
            return AgentMessageChunk(message_id=event.message_id, content=TextContent(text=event.text), meta=meta)


def permission(session_id: str, question: Ask) -> RequestPermission:
    """The parameters of `session/request_permission`; "once" comes first: some clients take the first yes."""
    options = [PermissionOption(option_id="allow_once", name="Allow once", kind="allow_once")]
    if question.always is not None:
        name = f"Always allow {question.always} in this session"
        options.append(PermissionOption(option_id="allow_always", name=name, kind="allow_always"))
    options.append(PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"))
    call = AskedToolCall(
        tool_call_id=question.tool_call_id,
        title=question.title,
        kind=question.tool_kind,
        status="pending",
        content=_parts(question.content),
        raw_input=question.input,
    )
    return RequestPermission(session_id=session_id, tool_call=call, options=options)


def _tool_call(event: ToolStarted, meta: dict[str, Any]) -> ToolCall:
    if event.parent_id is not None:
        meta[PARENT] = event.parent_id
    locations = [ToolLocation(path=location.path, line=location.line) for location in event.locations]
    return ToolCall(
        tool_call_id=event.tool_call_id,
        title=event.title,
        kind=event.tool_kind,
        status="in_progress",
        content=_parts(event.content),
        locations=locations or None,
        raw_input=event.input,
        meta=meta,
    )


def _parts(parts: tuple[ToolPart, ...]) -> list[ShownContent | Diff] | None:
    return [_part(part) for part in parts] or None


def _part(part: ToolPart) -> ShownContent | Diff:
    match part:
        case TextPart():
            return ShownContent(content=TextContent(text=part.text))
        case ImagePart():
            return ShownContent(content=ImageContent(data=part.data, mime_type=part.mime_type))
        case _:
            return Diff(path=part.path, old_text=part.old_text, new_text=part.new_text)
