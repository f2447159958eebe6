"""Images and embedded resources of prompts: checked, and taken apart into block and blob."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model import blobs, images
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.protocol.content import ImageContent, Resource

MAX_IMAGE: Final = 10 * 1024 * 1024  # bytes; Claude makes larger ones than 2000 pixels smaller
MAX_SIDE: Final = 16_384  # pixels
MAX_PIXELS: Final = 64_000_000  # four bytes each while Claude looks at it
MAX_FILE: Final = 20 * 1024 * 1024  # bytes of an embedded resource; Claude takes PDFs up to there
MAX_ALL: Final = 30 * 1024 * 1024  # bytes of a prompt; a request to the Messages API has 32 MB
MAX_NAMES: Final = 64 * 1024  # characters of a block's other fields together
SMALL_TEXT: Final = 64 * 1024  # characters; a longer one of a resource is a blob
STEP: Final = 64 * 1024  # characters that are encoded at once
LONGEST_NAME: Final = 100  # characters of a file's name that are repeated
_FILE: Final = "file:"
_MEGA: Final = 1024 * 1024
_NOT_FETCHED: Final = (
    ": this agent fetches none from its `uri`. Or send the address as a `resource_link`, which Claude can"
    " follow with its tools"
)


@dataclass(slots=True)
class Attachments:
    """The blobs of one prompt by their hashes, and what they have together."""

    data: dict[str, bytes] = field(default_factory=dict)
    size: int = 0
    images: int = 0  # that were looked at

    def image(self, at: int, block: ImageContent) -> Generator[None, None, dict[str, Any]]:
        """The block of an image as the journal keeps it, in steps; raises InvalidParams."""
        name = f"prompt[{at}]"
        given = {"mimeType": block.mime_type, "uri": block.uri}
        _require_short(name, given)
        if not block.data:
            instead = "" if block.uri is None else _NOT_FETCHED
            raise InvalidParams(
                f"`{name}.data`: is empty. Send the image in it, as base64{instead}."
            )
        require_size(name, len(block.data) // 4 * 3 - block.data[-2:].count("="), MAX_IMAGE)
        data = yield from _decoded(f"{name}.data", block.data)
        self._require_image(f"{name}.data", block.uri, data)
        return _block("image", given) | (yield from self._keep(data, "data"))

    def resource(self, at: int, given: Resource) -> Generator[None, None, dict[str, Any]]:
        """The block of an embedded resource as the journal keeps it, in steps; raises
        InvalidParams.
        """
        name = f"prompt[{at}].resource"
        fields = {"uri": given.uri, "mimeType": given.mime_type}
        _require_short(name, fields)
        kept = _block("resource", fields)
        if (given.text is None) == (given.blob is None):
            raise InvalidParams(f"`{name}`: needs either `text` or `blob`.")
        if given.blob is not None:
            require_size(name, len(given.blob) // 4 * 3, MAX_FILE)
            data = yield from _decoded(f"{name}.blob", given.blob)
            if images.kind(data) is not None:
                require_size(name, len(data), MAX_IMAGE)
                self._require_image(f"{name}.blob", given.uri, data)
            return kept | (yield from self._keep(data, "blob"))
        text = given.text or ""
        if len(text) <= SMALL_TEXT:
            return kept | {"text": text}
        encoded = bytearray()
        for begin in range(0, len(text), STEP):
            encoded += text[begin : begin + STEP].encode(errors="replace")
            yield
        return kept | (yield from self._keep(encoded, "text"))

    def _require_image(self, name: str, uri: str | None, data: bytes | bytearray) -> None:
        self.images += 1
        file = ""
        if uri is not None and uri.startswith(_FILE):  # another one may hold a secret
            file = f" ({neutral(unquote(uri.rpartition('/')[2]))[:LONGEST_NAME]})"
        image = images.look(data)
        if image is None:
            raise InvalidParams(
                f"Image {self.images}{file} is damaged, or no PNG, JPEG, GIF or WebP image. Send it as one of"
                f" these. (`{name}`)"
            )
        if max(image.width, image.height) > MAX_SIDE or image.width * image.height > MAX_PIXELS:
            raise InvalidParams(
                f"Image {self.images}{file} has {image.width} × {image.height} pixels; this agent takes"
                f" {MAX_SIDE:,} at most in each direction, and {MAX_PIXELS // 1_000_000} million in all. Make it"
                f" smaller. (`{name}`)"
            )

    def _keep(self, data: bytearray, holds: str) -> Generator[None, None, dict[str, Any]]:
        self.size += len(data)
        if self.size > MAX_ALL:
            raise too_much()
        blob = yield from blobs.measured(data)
        self.data[blob.sha256] = bytes(data)
        return blobs.reference(blob, holds)


def require_size(name: str, size: int, most: int) -> None:
    """Raises InvalidParams, with the limit, if this many bytes are too many."""
    if size > most:
        raise InvalidParams(
            f"`{name}`: has {size / _MEGA:.1f} MiB; this agent takes {most // _MEGA} MiB at most."
            " Make it smaller, or put it in a file and link that."
        )


def too_much() -> InvalidParams:
    """The error of a prompt whose images and files are too large together."""
    return InvalidParams(
        f"`prompt`: its images and files have more than {MAX_ALL // _MEGA} MiB together. Send them in several"
        " prompts, or link files."
    )


def _require_short(name: str, fields: dict[str, str | None]) -> None:
    if sum(len(value) for value in fields.values() if value is not None) > MAX_NAMES:
        raise InvalidParams(
            f"`{name}`: its address and type are longer than {MAX_NAMES} characters."
        )


def _decoded(name: str, text: str) -> Generator[None, None, bytearray]:
    try:
        return (yield from blobs.decoded(text))
    except ValueError:
        raise InvalidParams(f"`{name}`: is not base64.") from None


def _block(kind: str, fields: dict[str, str | None]) -> dict[str, Any]:
    return {"type": kind, **{name: value for name, value in fields.items() if value is not None}}
