"""Prompt content: from ACP's typed blocks to what the journal keeps."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.protocol.messages import ContentBlock, ResourceLink, TextContent

MAX_TEXT: Final = 8 * 1024 * 1024  # characters; twice of what a model with a million tokens can read
MAX_BLOCKS: Final = 1000
MAX_LINK: Final = 64 * 1024  # characters of a link's fields together


def accepted(blocks: list[ContentBlock]) -> list[dict[str, Any]]:
    """The blocks as the journal keeps them, in ACP's shape; raises InvalidParams for what was not advertised."""
    if not blocks:
        raise InvalidParams("`prompt`: needs at least one content block.")
    if len(blocks) > MAX_BLOCKS:
        raise InvalidParams(f"`prompt`: has more than {MAX_BLOCKS} content blocks; put long material in files.")
    kept: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        if isinstance(block, TextContent):
            kept.append({"type": "text", "text": block.text})
        elif isinstance(block, ResourceLink):
            link = _link(block)
            if sum(len(value) for value in link.values() if isinstance(value, str)) > MAX_LINK:
                raise InvalidParams(f"`prompt[{at}]`: the link is longer than {MAX_LINK} characters.")
            kept.append(link)
        else:
            kind = block.__struct_config__.tag
            raise InvalidParams(f"`prompt[{at}]`: this agent takes text and resource_link, not {kind}.")
    if sum(len(block.get("text", "")) for block in kept) > MAX_TEXT:
        raise InvalidParams(f"`prompt`: its text is longer than {MAX_TEXT} characters; put long material in files.")
    return kept


def _link(block: ResourceLink) -> dict[str, Any]:
    optional = {
        "title": block.title,
        "description": block.description,
        "mimeType": block.mime_type,
        "size": block.size,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    return {"type": "resource_link", "uri": block.uri, "name": block.name, **given}
