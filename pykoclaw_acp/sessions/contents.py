"""Content with its blobs in place, for whoever is shown it or works on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from msgspec.structs import replace as replaced

from pykoclaw_acp.model import blobs
from pykoclaw_acp.model.events import Event, UserMessage
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
    if not isinstance(event, UserMessage) or blobs.of(event.content) is None:
        return one
    return replace(one, event=replaced(event, content=await _restored(store, event.content)))


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
