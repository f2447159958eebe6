"""Lines of an exported session, as events of a log: whatever a file says, checked as what a client
sends.

A line names nothing of this machine: references to blobs are dropped, and what would change the
session's mode, model or title is left out.
"""

from __future__ import annotations

import binascii
from collections.abc import Generator, Mapping
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
from pykoclaw_acp.model.plain import plain, plain_prompt
from pykoclaw_acp.protocol import long_lines, prompt
from pykoclaw_acp.protocol.attachments import MAX_IMAGE
from pykoclaw_acp.protocol.content import ContentBlock
from pykoclaw_acp.protocol.control.exports import FORMAT, VERSION
from pykoclaw_acp.protocol.limits import MAX_NAME
from pykoclaw_acp.protocol.long_lines import LongText

MAX_EVENT: Final = 1024 * 1024  # characters, without images
MOST_LINES: Final = 2_000_000
MESSAGES: Final = 4  # whose size a line may have: it says an event twice, with escapes
HEAD_MESSAGES: Final = 6  # the same of the first line, which a daemon has sent in a line of 8 MiB
MOST_DATA: Final = (MAX_IMAGE + 2) // 3 * 4  # characters of base64
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


def head(line: bytes) -> Generator[None, None, Head]:
    """The first line, in steps; raises InvalidParams if it is none that can be read here."""
    try:
        short = yield from long_lines.measured(line, HEAD_MESSAGES)
        found: Head = msgspec.json.decode(short.line, type=Head)
        found = yield from _whole(found, short.texts)
    except (
        msgspec.MsgspecError, UnicodeError, RecursionError, long_lines.NoJson, long_lines.TooComplex,
    ):  # fmt: skip
        raise InvalidParams("This is not a session that was exported as JSON.") from None
    if found.format != FORMAT:
        raise InvalidParams("This is not a session that was exported as JSON.")
    if found.version != VERSION:
        raise InvalidParams(
            f"The export has version {found.version}, and this program reads version {VERSION}."
            " Import it with the version of pykoclaw-acp that has made it, or a newer one."
        )
    return found


def taken(line: bytes) -> Generator[None, None, Taken]:
    """The events of a line, in steps; those that cannot be read are left out."""
    try:
        short = yield from long_lines.measured(line, MESSAGES)
        found = msgspec.json.decode(short.line, type=ExportedLine)
        return (yield from _taken(found, short.texts))
    except (long_lines.NoJson, long_lines.TooComplex):
        return LEFT_OUT
    except (msgspec.MsgspecError, UnicodeError, RecursionError, InvalidParams, KeyError):
        return LEFT_OUT
    except (TypeError, AttributeError, ValueError):  # values of other types than an update has
        return LEFT_OUT


def _whole(value: Any, texts: Mapping[str, LongText]) -> Generator[None, None, Any]:
    """What was decoded of a shortened line, with long texts in the place of their marks, in steps.
    Raises InvalidParams if one was too long to be kept.
    """
    if not texts:
        return value
    if isinstance(value, str):
        if (text := texts.get(value)) is None:
            return value
        if not text.pieces:
            raise InvalidParams("a text is too long")
        return (yield from text.joined())
    yield
    if isinstance(value, dict):
        members = {}
        for key, one in value.items():
            members[(yield from _whole(key, texts))] = yield from _whole(one, texts)
        return members
    if isinstance(value, list | tuple):
        found = []
        for one in value:
            found.append((yield from _whole(one, texts)))  # noqa: PERF401  no comprehension yields
        return found if isinstance(value, list) else tuple(found)
    if isinstance(value, msgspec.Struct):
        fields = {}
        for name in value.__struct_fields__:
            fields[name] = yield from _whole(getattr(value, name), texts)
        return replace(value, **fields)
    return value


def _taken(line: ExportedLine, texts: Mapping[str, LongText]) -> Generator[None, None, Taken]:
    update = yield from _whole(line.update, texts)
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
    if long_lines.characters(encode(_light(event)).encode(), texts) > MAX_EVENT:
        return LEFT_OUT
    event = yield from _whole(event, texts)
    if isinstance(event, ToolStarted | ToolProgressed | ToolEnded):
        _name(event.tool_call_id)
        shown = [_data(part) for part in update.get("content") or []]
        parts = []
        for at, part in enumerate(event.content):
            parts.append(_part(part, shown, at))
            yield
        event = replace(event, content=tuple(parts))
        fits = len(encode(_light(event))) <= MAX_EVENT
        return Taken([event], {}, whole=TextPart(LOST) not in parts) if fits else LEFT_OUT
    return Taken([event], {}) if len(encode(event)) <= MAX_EVENT else LEFT_OUT


def _light(event: Event) -> Event:
    """The event without images."""
    if not isinstance(event, ToolStarted | ToolProgressed | ToolEnded):
        return event
    light = [part for part in event.content if not isinstance(part, ImagePart)]
    return replace(event, content=tuple(light))


def _user(message: str, content: dict[str, Any], origin: object) -> Generator[None, None, Taken]:
    came = origin[:64] if isinstance(origin, str) else None
    try:
        block = msgspec.convert(content, ContentBlock)
        kept = yield from prompt.accepted([block])
    except (msgspec.MsgspecError, InvalidParams):
        return Taken([UserMessage(message, {"type": "text", "text": LOST}, came)], {}, whole=False)
    if (text := kept.blocks[0].get("text")) is not None and kept.blocks[0]["type"] == "text":
        blocks = [{**kept.blocks[0], "text": part} for part in split_text(plain_prompt(text))]
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
        size = 0 if len(data) > MOST_DATA else len(binascii.a2b_base64(data, strict_mode=True))
    except ValueError:
        size = 0
    if part.mime_type not in images.KINDS or not 0 < size <= MAX_IMAGE:
        return TextPart(LOST)
    return ImagePart(data, part.mime_type)
