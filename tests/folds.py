"""What a client has in the end, as a fold over the events that it was told: text and states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykoclaw_acp.sessions.events import Event, Text, Thinking, ToolEnded, ToolProgressed, ToolStarted, Usage


def seen(events: Iterable[Event | None]) -> list[Any]:
    """Messages with their whole text and everything else in its order; tools with their newest content; the usage."""
    shown: list[Any] = []
    tools: dict[str, dict[str, Any]] = {}
    usage: Usage | None = None
    for event in events:
        if isinstance(event, Text | Thinking):
            if shown and shown[-1][:2] == [type(event), event.message_id]:
                shown[-1] = [*shown[-1][:2], shown[-1][2] + event.text]
            else:
                shown.append([type(event), event.message_id, event.text])
        elif isinstance(event, Usage):
            usage = event
        elif isinstance(event, ToolStarted):
            tools[event.tool_call_id] = {"status": "in_progress", "content": event.content}
            shown.append([event])
        elif isinstance(event, ToolProgressed | ToolEnded):
            tool = tools.setdefault(event.tool_call_id, {})
            tool["status"] = event.status if isinstance(event, ToolEnded) else "in_progress"
            tool["content"] = event.content or tool.get("content")
        else:
            shown.append([event])
    return [shown, tools, usage]
