"""The CLI's own frames beside the SDK's messages, which lack fields and whole kinds of them.

The SDK parses each frame in a function of its own that is private. Without it, as in an SDK that is
another inside, every message comes with an empty frame, and the frames that the SDK drops are
missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import structlog
from claude_agent_sdk import ClaudeSDKClient, Message

Frame = Mapping[str, Any]
NO_FRAME: Final[Frame] = {}

log: Final = structlog.get_logger()


async def received(
    client: ClaudeSDKClient, prepare: Callable[[dict[str, Any]], None] = lambda _: None
) -> AsyncIterator[tuple[Message | None, Frame]]:
    """All messages of a connected client, each with the frame that it was made from, once that is
    prepared; None as the message of a frame that the SDK drops, such as `tool_progress` and
    `command_lifecycle`.

    Ends, and raises, as the client's own `receive_messages`.
    """
    frames = getattr(getattr(client, "_query", None), "receive_messages", None)
    parse = _parser()
    if parse is None or not callable(frames):
        log.warning(
            "This Claude Agent SDK does not show the frames of Claude", action="frames_unavailable"
        )
        async for message in client.receive_messages():
            yield message, NO_FRAME
        return
    async for frame in frames():
        prepare(frame)
        yield parse(frame), frame


def _parser() -> Callable[[dict[str, Any]], Message | None] | None:
    """The SDK's parser of frames; None if it has no such one."""
    try:
        from claude_agent_sdk._internal.message_parser import parse_message
    except ImportError:
        return None
    return parse_message
