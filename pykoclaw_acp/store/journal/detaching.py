"""Images in events become blobs before their rows are made."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from pykoclaw_acp.channel.frames import EventFrame, Numbered
from pykoclaw_acp.model import blobs
from pykoclaw_acp.model.blobs import Blob
from pykoclaw_acp.model.events import (
    Event,
    ImagePart,
    ToolEnded,
    ToolPart,
    ToolProgressed,
    ToolStarted,
    UserMessage,
)

SMALL: Final = 16 * 1024  # characters of an image that stays in its row


@dataclass(slots=True)
class Detaching:
    """Takes the images of the events of one commit; `data` are the bytes of all, by their hashes."""

    data: dict[str, bytes] = field(default_factory=dict)

    def frames(self, frames: Iterable[Numbered]) -> Generator[None, None, list[Numbered]]:
        """The frames, with references in the place of images."""
        done: list[Numbered] = []
        for frame in frames:
            if isinstance(frame, EventFrame):
                event = yield from self.event(frame.event)
                done.append(frame if event is frame.event else replace(frame, event=event))
            else:
                done.append(frame)
        return done

    def event(self, event: Event) -> Generator[None, None, Event]:
        """The event itself if it has no large image."""
        if isinstance(event, UserMessage):
            content = yield from self._content(event.content)
            return event if content is event.content else replace(event, content=content)
        if not isinstance(event, ToolStarted | ToolProgressed | ToolEnded):
            return event
        if not any(
            isinstance(part, ImagePart) and len(part.data) > SMALL for part in event.content
        ):
            return event
        parts: list[ToolPart] = []
        for part in event.content:
            made = part if not isinstance(part, ImagePart) else (yield from self._image(part))
            parts.append(made)
        return replace(event, content=tuple(parts))

    def _image(self, part: ImagePart) -> Generator[None, None, ImagePart]:
        blob = yield from self._blob(part.data)
        return part if blob is None else ImagePart("", part.mime_type, blob.sha256, blob.size)

    def _content(self, block: dict[str, Any]) -> Generator[None, None, dict[str, Any]]:
        data = block.get("data")
        if block.get("type") != "image" or not isinstance(data, str):
            return block
        blob = yield from self._blob(data)
        if blob is None:
            return block
        rest = {name: value for name, value in block.items() if name != "data"}
        return rest | blobs.reference(blob, "data")

    def _blob(self, encoded: str) -> Generator[None, None, Blob | None]:
        """Move base64 data to a blob; yields None if it is small or no base64."""
        if len(encoded) <= SMALL:
            return None
        try:
            data = yield from blobs.decoded(encoded)
        except ValueError:
            return None
        blob = yield from blobs.measured(data)
        self.data[blob.sha256] = bytes(data)
        return blob
