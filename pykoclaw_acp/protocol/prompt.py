"""Prompt content: ACP blocks to journal content."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

import msgspec

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.protocol.content import ContentBlock, ResourceLink, TextContent
from pykoclaw_acp.protocol.long_lines import MOST_TEXT, LongText
from pykoclaw_acp.protocol.messages import PromptParams

MAX_TEXT: Final = MOST_TEXT  # characters; twice of what a model with a million tokens can read
MAX_BLOCKS: Final = 1000
MAX_LINK: Final = 64 * 1024  # characters of a link's fields together


def accepted(blocks: list[ContentBlock]) -> list[dict[str, Any]]:
    """Check blocks and return them as the journal keeps them; raises InvalidParams for kinds that
    were not advertised.
    """
    if not blocks:
        raise InvalidParams("`prompt`: needs at least one content block.")
    if len(blocks) > MAX_BLOCKS:
        raise InvalidParams(
            f"`prompt`: has more than {MAX_BLOCKS} content blocks; put long material in files."
        )
    kept: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        if isinstance(block, TextContent):
            kept.append({"type": "text", "text": block.text})
        elif isinstance(block, ResourceLink):
            link = _link(block)
            if sum(len(value) for value in link.values() if isinstance(value, str)) > MAX_LINK:
                raise _long_link(at)
            kept.append(link)
        else:
            kind = block.__struct_config__.tag
            raise InvalidParams(
                f"`prompt[{at}]`: this agent takes text and resource_link, not {kind}."
            )
    if sum(len(block.get("text", "")) for block in kept) > MAX_TEXT:
        raise _long_text()
    return kept


def restored(
    params: PromptParams, texts: Mapping[str, LongText]
) -> Generator[None, None, PromptParams]:
    """Parameters with long texts restored in the place of their marks, in steps.

    Raises InvalidParams for texts that are too long. Long parts of blocks that are refused anyway
    are left out.
    """
    if params.session_id in texts:
        raise InvalidParams("`sessionId`: is longer than any session's id.")
    if len(params.prompt) > MAX_BLOCKS:
        return params
    given = [block for block in params.prompt if isinstance(block, TextContent)]
    if (
        sum(texts[block.text].size if block.text in texts else len(block.text) for block in given)
        > MAX_TEXT
    ):
        raise _long_text()
    blocks: list[ContentBlock] = []
    for at, block in enumerate(params.prompt):
        if isinstance(block, TextContent) and block.text in texts:
            blocks.append(TextContent(text=(yield from texts[block.text].joined())))
        elif isinstance(block, ResourceLink):
            blocks.append((yield from _restored_link(at, block, texts)))
        else:
            blocks.append(block)
    # Of a key that is longer than it may be the beginning says enough.
    meta = {
        name: texts[value].pieces[:1] if _is_mark(value, texts) else value
        for name, value in (params.meta or {}).items()
    }
    return msgspec.structs.replace(params, prompt=blocks, meta=meta)


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


def _link(block: ResourceLink) -> dict[str, Any]:
    optional = {
        "title": block.title,
        "description": block.description,
        "mimeType": block.mime_type,
        "size": block.size,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    return {"type": "resource_link", "uri": block.uri, "name": block.name, **given}
