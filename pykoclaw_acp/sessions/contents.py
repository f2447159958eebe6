"""Content with its blobs in place, for whoever is shown it or works on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from msgspec.structs import replace as replaced

from pykoclaw_acp.model import blobs
from pykoclaw_acp.model.blobs import Blob
from pykoclaw_acp.model.events import (
    Event,
    ImagePart,
    TextPart,
    ToolEnded,
    ToolPart,
    ToolProgressed,
    ToolStarted,
    UserMessage,
)
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.sessions.ports.blobs import BlobStore
from pykoclaw_acp.tasks import in_pieces

TOO_LONG: Final = (
    "({what} is here, which is too large to be sent to this client again."
    " `pykoclaw-acp sessions export` has it.)"
)


async def whole(store: BlobStore, content: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks with their blobs; one whose blob is lost becomes a text that says so."""
    return [await _restored(store, block) for block in content]


def needs_blocks(content: Iterable[dict[str, Any]]) -> bool:
    """Whether there is more than text and links, which workers of all versions take."""
    return any(block.get("type") not in ("text", "resource_link") for block in content)


async def logged(store: BlobStore, one: Logged) -> Logged:
    """A logged event, as `whole`."""
    event = one.event
    if isinstance(event, UserMessage) and blobs.of(event.content) is not None:
        return replace(one, event=replaced(event, content=await _restored(store, event.content)))
    if isinstance(event, ToolStarted | ToolProgressed | ToolEnded) and any(
        isinstance(part, ImagePart) and part.sha256 for part in event.content
    ):
        parts = [await _part(store, part) for part in event.content]
        return replace(one, event=replaced(event, content=tuple(parts)))
    return one


async def _part(store: BlobStore, part: ToolPart) -> ToolPart:
    if not isinstance(part, ImagePart) or part.sha256 is None:
        return part
    reference = blobs.reference(Blob(part.sha256, part.size), "data")
    block = await _restored(store, {"type": "image", "mimeType": part.mime_type, **reference})
    return (
        ImagePart(block["data"], part.mime_type)
        if "data" in block
        else TextPart(block["text"], beside=True)
    )


def cut(event: Event | None) -> Event | None:
    """What stands for an event that is too long for a line to its client."""
    if not isinstance(event, UserMessage) or event.content.get("type") == "text":
        return None
    content = event.content
    size = sum(len(content.get(name, "")) for name in ("data", "blob")) // 4 * 3
    what = blobs.described({**content, "size": size or len(content.get("text", ""))})
    return replaced(event, content={"type": "text", "text": TOO_LONG.format(what=what)})


async def _restored(store: BlobStore, block: dict[str, Any]) -> dict[str, Any]:
    blob = blobs.of(block)
    if blob is None:
        return block
    return await in_pieces(blobs.restored(block, await store.read_blob(*blob)))
