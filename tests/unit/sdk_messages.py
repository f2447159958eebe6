"""Messages of the SDK."""

from __future__ import annotations

from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ResultMessage,
    StreamEvent,
)


def stream(kind: str, parent: str | None = None, **event: Any) -> StreamEvent:
    return StreamEvent(
        uuid="u", session_id="s", event={"type": kind, **event}, parent_tool_use_id=parent
    )


def start(message_id: str, tokens: int = 10) -> StreamEvent:
    return stream("message_start", message={"id": message_id, "usage": {"input_tokens": tokens}})


def block(index: int, kind: str) -> StreamEvent:
    return stream("content_block_start", index=index, content_block={"type": kind})


def delta(index: int, text: str, kind: str = "text") -> StreamEvent:
    return stream("content_block_delta", index=index, delta={"type": f"{kind}_delta", kind: text})


def whole(
    *content: Any, message_id: str = "m", parent: str | None = None, error: Any = None
) -> AssistantMessage:
    return AssistantMessage(
        content=list(content),
        model="x",
        message_id=message_id,
        parent_tool_use_id=parent,
        error=error,
        uuid="w",
    )


def result(**fields: Any) -> ResultMessage:
    usual: dict[str, Any] = {
        "subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False, "num_turns": 1,
        "session_id": "s", "uuid": "r",
    }  # fmt: skip
    return ResultMessage(**{**usual, **fields})
