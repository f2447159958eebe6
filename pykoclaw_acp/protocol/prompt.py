"""Prompt content: ACP blocks to journal content."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.protocol import lenient
from pykoclaw_acp.protocol.attachments import (
    MAX_ALL,
    MAX_FILE,
    MAX_IMAGE,
    Attachments,
    require_size,
    too_much,
)
from pykoclaw_acp.protocol.content import (
    Annotations,
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Resource,
    ResourceLink,
    TextContent,
)
from pykoclaw_acp.protocol.long_lines import MOST_TEXT, LongText
from pykoclaw_acp.protocol.messages import PromptParams

MAX_TEXT: Final = MOST_TEXT  # characters; three times what a model with a million tokens can read
MAX_BLOCKS: Final = 1000
MAX_LINK: Final = 64 * 1024  # characters of a link's fields together
_BLANK: Final = re.compile(r"[\s\ufeff]*")  # U+FEFF is white space to the CLI, not to Python


@dataclass(frozen=True, slots=True)
class Accepted:
    """A prompt's blocks as the journal keeps them, and the bytes of their blobs by hash."""

    blocks: list[dict[str, Any]]
    data: dict[str, bytes]


def require_words(blocks: list[ContentBlock]) -> None:
    """Raise InvalidParams for white space alone, which Claude could only ask about."""
    if all(isinstance(one, TextContent) and _BLANK.fullmatch(one.text) for one in blocks):
        raise InvalidParams("`prompt`: is blank. Write what Claude is to do, or attach something.")


def accepted(blocks: list[ContentBlock]) -> Generator[None, None, Accepted]:
    """Check blocks and take them apart, in steps; raises InvalidParams for kinds that were not
    advertised, and for what is too large.
    """
    if not blocks:
        raise InvalidParams("`prompt`: needs at least one content block.")
    if len(blocks) > MAX_BLOCKS:
        raise InvalidParams(
            f"`prompt`: has more than {MAX_BLOCKS} content blocks; put long material in files."
        )
    for at, block in enumerate(blocks):
        if isinstance(block, AudioContent):
            raise InvalidParams(
                f"`prompt[{at}]`: this agent takes text, links, images and embedded files, not audio."
            )
    if sum(len(_text(block) or "") for block in blocks) > MAX_TEXT:
        raise _long_text()
    kept: list[dict[str, Any]] = []
    attachments = Attachments()
    for at, block in enumerate(blocks):
        if isinstance(block, TextContent):
            kept.append({"type": "text", "text": block.text})
        elif isinstance(block, ResourceLink):
            link = _link(block)
            if sum(len(value) for value in link.values() if isinstance(value, str)) > MAX_LINK:
                raise _long_link(at)
            kept.append(link)
        elif isinstance(block, ImageContent):
            kept.append((yield from attachments.image(at, block)))
        elif isinstance(block, EmbeddedResource):
            kept.append((yield from attachments.resource(at, block.resource)))
        if block.annotations and (said := _annotations(block.annotations)):
            kept[-1]["annotations"] = said
    return Accepted(kept, attachments.data)


def restored(
    params: PromptParams, texts: Mapping[str, LongText]
) -> Generator[None, None, PromptParams]:
    """Parameters with long texts restored in the place of their marks, in steps.

    Raises InvalidParams for what is too long. Long parts of blocks that are refused anyway are left
    out.
    """
    if params.session_id in texts:
        raise InvalidParams("`sessionId`: is longer than any session's id.")
    if len(params.prompt) > MAX_BLOCKS:
        return params
    given = [text for block in params.prompt if (text := _text(block)) is not None]
    if sum(texts[text].size if text in texts else len(text) for text in given) > MAX_TEXT:
        raise _long_text()
    blocks: list[ContentBlock] = []
    room = _encoded(MAX_ALL)
    for at, block in enumerate(params.prompt):
        if isinstance(block, TextContent) and block.text in texts:
            text = yield from texts[block.text].joined()
            blocks.append(msgspec.structs.replace(block, text=text))
        elif isinstance(block, ResourceLink):
            blocks.append((yield from _restored_link(at, block, texts)))
        elif isinstance(block, ImageContent):
            most = min(room, _encoded(MAX_IMAGE))
            image = yield from _restored(f"prompt[{at}]", block, "data", texts, most)
            room -= len(image.data)
            blocks.append(image)
        elif isinstance(block, EmbeddedResource):
            name, whole = f"prompt[{at}].resource", block.resource
            if whole.text in texts:
                whole = yield from _restored(name, whole, "text", texts, MAX_TEXT)
            else:
                most = min(room, _encoded(MAX_FILE))
                whole = yield from _restored(name, whole, "blob", texts, most)
                room -= len(whole.blob or "")
            blocks.append(msgspec.structs.replace(block, resource=whole))
        else:
            blocks.append(block)
    # Of a key that is longer than it may be the beginning says enough.
    meta = {
        name: texts[value].pieces[:1] if _is_mark(value, texts) else value
        for name, value in (params.meta or {}).items()
    }
    return msgspec.structs.replace(params, prompt=blocks, meta=meta)


_Holder = TypeVar("_Holder", ImageContent, Resource)


def _restored(
    name: str, holder: _Holder, field: str, texts: Mapping[str, LongText], most: int
) -> Generator[None, None, _Holder]:
    """An image or a resource with its long field of at most `most` characters restored.

    Raises InvalidParams if that is longer, or if another field is long.
    """
    for other in holder.__struct_fields__:
        if other != field and _is_mark(getattr(holder, other), texts):
            raise InvalidParams(f"`{name}.{other}`: is too long.")
    value = getattr(holder, field)
    if not _is_mark(value, texts):
        return holder
    text = texts[value]
    if text.size > most:
        require_size(name, text.size // 4 * 3, MAX_IMAGE if field == "data" else MAX_FILE)
        raise too_much()
    if not text.pieces:
        raise InvalidParams(f"`{name}.{field}`: is not base64.")
    return msgspec.structs.replace(holder, **{field: (yield from text.joined())})


def _encoded(size: int) -> int:
    """Characters of base64 that this many bytes are."""
    return (size + 2) // 3 * 4


def _text(block: ContentBlock) -> str | None:
    """What counts as text of a prompt."""
    if isinstance(block, TextContent):
        return block.text
    return block.resource.text if isinstance(block, EmbeddedResource) else None


def _restored_link(
    at: int, link: ResourceLink, texts: Mapping[str, LongText]
) -> Generator[None, None, ResourceLink]:
    long = {
        name: texts[value]
        for name in link.__struct_fields__
        if _is_mark(value := getattr(link, name), texts)
    }
    if sum(text.size for text in long.values()) > MAX_LINK:
        raise _long_link(at)
    whole: dict[str, Any] = {}
    for name, text in long.items():
        whole[name] = yield from text.joined()
    return msgspec.structs.replace(link, **whole)


def _is_mark(value: object, texts: Mapping[str, LongText]) -> bool:
    return isinstance(value, str) and value in texts


def _long_text() -> InvalidParams:
    return InvalidParams(
        f"`prompt`: its text is longer than {MAX_TEXT} characters; put long material in files."
    )


def _long_link(at: int) -> InvalidParams:
    return InvalidParams(f"`prompt[{at}]`: the link is longer than {MAX_LINK} characters.")


def _annotations(given: dict[str, Any]) -> dict[str, Any]:
    known = lenient.decode(msgspec.json.encode(given), Annotations)
    return dict(msgspec.to_builtins(known))


def _link(block: ResourceLink) -> dict[str, Any]:
    optional = {
        "title": block.title,
        "description": block.description,
        "mimeType": block.mime_type,
        "size": block.size,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    return {"type": "resource_link", "uri": block.uri, "name": block.name, **given}
