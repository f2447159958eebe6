"""Neutral events as ACP v1 `session/update`s: a pure function, in this one place."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.sessions.events import (
    DiffPart,
    Event,
    Failure,
    ImagePart,
    Location,
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


def update(seq: int, event: Event | None) -> dict[str, Any]:
    """The `update` object of the event at `seq`; an unreadable row says so in its place."""
    body = _body(event) if event is not None else _chunk("agent_message_chunk", f"unreadable-{seq}", UNREADABLE)
    meta = {SEQ: seq}
    if isinstance(event, ToolStarted) and event.parent_id is not None:
        meta[PARENT] = event.parent_id  # type: ignore[assignment]
    return {**body, "_meta": meta}


def permission(session_id: str, question: Ask) -> dict[str, Any]:
    """The parameters of `session/request_permission`; "once" comes first: some clients take the first yes."""
    options = [{"optionId": "allow_once", "name": "Allow once", "kind": "allow_once"}]
    if question.always is not None:
        name = f"Always allow {question.always} in this session"
        options.append({"optionId": "allow_always", "name": name, "kind": "allow_always"})
    options.append({"optionId": "reject_once", "name": "Reject", "kind": "reject_once"})
    call: dict[str, Any] = {
        "toolCallId": question.tool_call_id,
        "title": question.title,
        "kind": question.tool_kind,
        "status": "pending",
    }
    if question.content:
        call["content"] = _parts(question.content)
    if question.input is not None:
        call["rawInput"] = question.input
    return {"sessionId": session_id, "toolCall": call, "options": options}


def _body(event: Event) -> dict[str, Any]:
    match event:
        case UserMessage(message_id=message_id, content=content):
            return {"sessionUpdate": "user_message_chunk", "messageId": message_id, "content": content}
        case Thinking(message_id=message_id, text=text):
            return _chunk("agent_thought_chunk", message_id, text)
        case ToolStarted():
            return _tool_call(event)
        case ToolProgressed():
            return _tool_update(event.tool_call_id, "in_progress", event.content)
        case ToolEnded():
            return _tool_update(event.tool_call_id, event.status, event.content)
        case Usage():
            return _usage(event)
        case Failure(message_id=message_id, text=text):
            return _chunk("agent_message_chunk", message_id, f"\n\n**This turn ended without an answer.** {text}\n\n")
        case _:
            return _chunk("agent_message_chunk", event.message_id, event.text)


def _chunk(kind: str, message_id: str, text: str) -> dict[str, Any]:
    return {"sessionUpdate": kind, "messageId": message_id, "content": {"type": "text", "text": text}}


def _tool_call(event: ToolStarted) -> dict[str, Any]:
    body: dict[str, Any] = {
        "sessionUpdate": "tool_call",
        "toolCallId": event.tool_call_id,
        "title": event.title,
        "kind": event.tool_kind,
        "status": "in_progress",
    }
    if event.content:
        body["content"] = _parts(event.content)
    if event.locations:
        body["locations"] = [_location(location) for location in event.locations]
    if event.input is not None:
        body["rawInput"] = event.input
    return body


def _tool_update(tool_call_id: str, status: str, content: tuple[ToolPart, ...]) -> dict[str, Any]:
    body: dict[str, Any] = {"sessionUpdate": "tool_call_update", "toolCallId": tool_call_id, "status": status}
    if content:
        body["content"] = _parts(content)
    return body


def _usage(event: Usage) -> dict[str, Any]:
    body: dict[str, Any] = {"sessionUpdate": "usage_update", "used": event.used, "size": event.size}
    if event.cost is not None:
        body["cost"] = {"amount": event.cost, "currency": "USD"}
    return body


def _location(location: Location) -> dict[str, Any]:
    return {"path": location.path} if location.line is None else {"path": location.path, "line": location.line}


def _parts(parts: tuple[ToolPart, ...]) -> list[dict[str, Any]]:
    return [_part(part) for part in parts]


def _part(part: ToolPart) -> dict[str, Any]:
    match part:
        case TextPart(text=text):
            return {"type": "content", "content": {"type": "text", "text": text}}
        case ImagePart(data=data, mime_type=mime_type):
            return {"type": "content", "content": {"type": "image", "data": data, "mimeType": mime_type}}
        case DiffPart(path=path, old_text=old_text, new_text=new_text):
            return {"type": "diff", "path": path, "oldText": old_text, "newText": new_text}
