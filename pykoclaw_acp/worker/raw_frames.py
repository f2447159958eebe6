"""The CLI's own frames beside the SDK's messages, which lack fields and whole kinds of them.

The SDK parses each frame in a function of its own that is private. Without it, as in an SDK that is
another inside, every message comes with an empty frame, and the frames that the SDK drops are
missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import structlog
from claude_agent_sdk import ClaudeSDKClient, Message, ResultMessage

RawFrame = Mapping[str, Any]
NO_FRAME: Final[RawFrame] = {}
UNREAD: Final = "unread"  # `subtype` of a result that the SDK cannot parse

log: Final = structlog.get_logger()


async def received(
    client: ClaudeSDKClient, prepare: Callable[[dict[str, Any]], None] = lambda _: None
) -> AsyncIterator[tuple[Message | None, RawFrame]]:
    """All messages of a connected client, each with the frame that it was made from, once that is
    prepared; None as the message of a frame that the SDK drops, such as `tool_progress` and
    `command_lifecycle`.

    A frame that the SDK cannot parse ends nothing: it is logged, and comes as one that is dropped,
    a result as one of the subtype UNREAD. Ends, and raises, as the client's own `receive_messages`.
    """
    frames = getattr(getattr(client, "_query", None), "receive_messages", None)
    parse = _parser()
    if parse is None or not callable(frames):
        log.warning(
            "This Claude Agent SDK does not show the frames of Claude", action="frames_unavailable"
        )
        async for said in client.receive_messages():
            yield said, NO_FRAME
        return
    session_id = ""
    async for frame in frames():
        session_id = str(frame.get("session_id") or session_id)
        message: Message | None = None
        try:
            prepare(frame)
            message = parse(frame)
        except Exception as error:  # noqa: BLE001  a frame of a shape that it does not know
            not_understood(frame.get("type"), error)
            if frame.get("type") == "result":
                message = _unread(frame, session_id)
        yield message, frame


def not_understood(kind: object, error: Exception) -> None:
    """Log that something that the CLI said is left out."""
    log.warning(
        "A message of the CLI was not understood",
        action="message_not_understood",
        kind=str(kind),
        error=repr(error),
    )


def _unread(frame: RawFrame, session_id: str) -> ResultMessage:
    """A result of which is known only what turn it ends."""
    return ResultMessage(
        subtype=UNREAD,
        duration_ms=0,
        duration_api_ms=0,
        is_error=True,
        num_turns=1,
        session_id=session_id,
        origin=frame.get("origin"),
        user_message_uuid=frame.get("user_message_uuid"),
        user_message_uuids=frame.get("user_message_uuids"),
    )


def _parser() -> Callable[[dict[str, Any]], Message | None] | None:
    """The SDK's parser of frames; None if it has no such one."""
    try:
        from claude_agent_sdk._internal.message_parser import parse_message
    except ImportError:
        return None
    return parse_message
