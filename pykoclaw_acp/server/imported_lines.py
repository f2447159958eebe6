"""Lines of an exported session, as events of a log: whatever a file says, checked as what a client
sends.

A line names nothing of this machine: references to blobs are dropped, and what would change the
session's mode, model or title is left out.
"""

from __future__ import annotations

import binascii
from collections.abc import Generator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.link.meta_keys import NOTE, ORIGIN
from pykoclaw_acp.model import images
from pykoclaw_acp.model.events import (
    ConfigChanged,
    Event,
    ImagePart,
    ModeChanged,
    Text,
    TextPart,
    Thinking,
    TitleChanged,
    ToolEnded,
    ToolPart,
    ToolProgressed,
    ToolStarted,
    Usage,
    UserMessage,
    decode,
    encode,
    split_text,
)
from pykoclaw_acp.model.plain import plain
from pykoclaw_acp.protocol import long_lines, prompt
from pykoclaw_acp.protocol.attachments import MAX_IMAGE
from pykoclaw_acp.protocol.content import ContentBlock
from pykoclaw_acp.protocol.control.exports import FORMAT, VERSION
from pykoclaw_acp.protocol.limits import MAX_NAME

MAX_EVENT: Final = 1024 * 1024  # characters, without images
MOST_LINES: Final = 2_000_000
MESSAGES: Final = 4  # whose size a line may have: it says an event twice, with escapes
LOST: Final = "(An image or a file was here that could not be taken over.)"
_NOT_OURS: Final = (ModeChanged, ConfigChanged, TitleChanged, Usage)


class ExportedSummary(msgspec.Struct, rename="camel"):
    """What is read of the exported session itself."""

    id: str = ""
    title: str | None = None
    cwd: str | None = None


class ExportedSession(msgspec.Struct, rename="camel"):
    """What `sessions show` printed about the session."""

    summary: ExportedSummary


class Head(msgspec.Struct, rename="camel"):
    """The first line."""

    format: str
    version: int
    session: ExportedSession
    program: str = ""
    exported_at: int = 0


class ExportedLine(msgspec.Struct, rename="camel"):
    """A line of an event."""

    update: dict[str, Any]
    event: msgspec.Raw = msgspec.Raw(b"null")


class Taken(NamedTuple):
    """The events of a line, and the bytes of their blobs; `whole`: nothing was left out."""

    events: list[Event]
    blobs: dict[str, bytes]
    whole: bool = True


LEFT_OUT: Final = Taken([], {}, whole=False)


def head(line: bytes) -> Head:
    """The first line; raises InvalidParams if it is none that can be read here."""
    try:
        found = msgspec.json.decode(line, type=Head)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InvalidParams("This is no session that was exported as JSON.") from None
    if found.format != FORMAT:
        raise InvalidParams("This is no session that was exported as JSON.")
    if found.version != VERSION:
        raise InvalidParams(
            f"The export has version {found.version}, and this program reads version {VERSION}."
            " Import it with the version of pykoclaw-acp that has made it, or a newer one."
        )
    return found


def taken(line: bytes) -> Generator[None, None, Taken]:
    """The events of a line, in steps; those that cannot be read are left out."""
    try:
        if not long_lines.is_simple(line):
            yield from long_lines.shorten(line, MESSAGES)  # what it costs to decode it
        found = msgspec.json.decode(line, type=ExportedLine)
        return (yield from _taken(found))
    except (long_lines.NoJson, long_lines.TooComplex):
        return LEFT_OUT
    except (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidParams, KeyError):
        return LEFT_OUT
    except (TypeError, AttributeError, ValueError):  # values of other types than an update has
        return LEFT_OUT


def _taken(line: ExportedLine) -> Generator[None, None, Taken]:
    update = line.update
    kind, meta = update["sessionUpdate"], update.get("_meta") or {}
    if kind == "user_message_chunk":
        return (yield from _user(_name(update["messageId"]), update["content"], meta.get(ORIGIN)))
    event = decode(bytes(line.event).decode())
    if event is None and kind in ("agent_message_chunk", "agent_thought_chunk"):
        message, text = _name(update["messageId"]), plain(str(update["content"]["text"]))
        if kind == "agent_thought_chunk":
            return Taken([Thinking(message, part) for part in split_text(text)], {})
        note = meta.get(NOTE) is not None
        return Taken([Text(message, part, note=note) for part in split_text(text)], {})
    if isinstance(event, _NOT_OURS):
        return Taken([], {})
    if event is None or isinstance(event, UserMessage | Text | Thinking):
        return LEFT_OUT  # of a newer version, or not as it was exported
    if isinstance(event, ToolStarted | ToolProgressed | ToolEnded):
        _name(event.tool_call_id)
        shown = [_data(part) for part in update.get("content") or []]
        parts = [_part(part, shown, at) for at, part in enumerate(event.content)]
        event = replace(event, content=tuple(parts))
        yield
        light = [part for part in parts if not isinstance(part, ImagePart)]
        fits = len(encode(replace(event, content=tuple(light)))) <= MAX_EVENT
        return Taken([event], {}, whole=TextPart(LOST) not in parts) if fits else LEFT_OUT
    return Taken([event], {}) if len(encode(event)) <= MAX_EVENT else LEFT_OUT


def _user(message: str, content: dict[str, Any], origin: object) -> Generator[None, None, Taken]:
    came = origin[:64] if isinstance(origin, str) else None
    try:
        block = msgspec.convert(content, ContentBlock)
        kept = yield from prompt.accepted([block])
    except (msgspec.MsgspecError, InvalidParams):
        return Taken([UserMessage(message, {"type": "text", "text": LOST}, came)], {}, whole=False)
    if (text := kept.blocks[0].get("text")) is not None and kept.blocks[0]["type"] == "text":
        blocks = [{"type": "text", "text": part} for part in split_text(plain(text))]
        return Taken([UserMessage(message, one, came) for one in blocks], {})
    return Taken([UserMessage(message, kept.blocks[0], came)], kept.data)


def _name(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME:
        raise InvalidParams("an id is missing or too long")
    return value


def _data(part: dict[str, Any]) -> str:
    """The image of a shown part; empty if it has none."""
    content = part.get("content")
    data = content.get("data") if isinstance(content, dict) else None
    return data if isinstance(data, str) else ""


def _part(part: ToolPart, shown: list[str], at: int) -> ToolPart:
    """A part of a tool's output, with its image from the update, and without a reference."""
    if isinstance(part, TextPart):
        return replace(part, text=plain(part.text))
    if not isinstance(part, ImagePart):
        return part
    data = part.data or (shown[at] if at < len(shown) else "")
    try:
        size = len(binascii.a2b_base64(data, strict_mode=True))
    except ValueError:
        size = 0
    if part.mime_type not in images.KINDS or not 0 < size <= MAX_IMAGE:
        return TextPart(LOST)
    return ImagePart(data, part.mime_type)
