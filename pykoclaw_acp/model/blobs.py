"""Blobs: bytes of a prompt or a tool's output, kept once, by their hash, outside of rows.

The journal and the log keep a content block of ACP as it came, except that the fields of an embedded
resource stand in the block itself, and that a blob is replaced: `sha256` and `size` (bytes) are its,
and `holds` names the field that it stood in: `data` or `blob` as base64, `text` as UTF-8.
"""

from __future__ import annotations

import binascii
import codecs
import hashlib
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple

PIECE: Final = 64 * 1024  # characters or bytes that are looked at at once; a multiple of 4
STEP: Final = 48 * 1024  # bytes that are encoded at once; a multiple of 3
MISSING: Final = (
    "({what} was here. Its file {name} in the folder `blobs` of the data directory is missing or"
    " damaged, so it cannot be shown any more.)"
)


class Blob(NamedTuple):
    """The blob that a block refers to."""

    sha256: str
    size: int


def reference(blob: Blob, holds: str) -> dict[str, Any]:
    """The fields that a block has in place of the field `holds`."""
    return {"holds": holds, "sha256": blob.sha256, "size": blob.size}


def decoded(text: str) -> Generator[None, None, bytearray]:
    """The bytes of base64, in steps; raises ValueError."""
    data = bytearray()
    for begin in range(0, len(text), PIECE):
        piece = text[begin : begin + PIECE]
        data += binascii.a2b_base64(piece, strict_mode=True)
        if piece[-1] == "=" and begin + PIECE < len(text):
            raise ValueError("padding in the middle")
        yield
    return data


def measured(data: bytes | bytearray) -> Generator[None, None, Blob]:
    """Hash and size of the bytes, in steps."""
    digest = hashlib.sha256()
    with memoryview(data) as view:
        for begin in range(0, len(data), PIECE):
            digest.update(view[begin : begin + PIECE])
            yield
    return Blob(digest.hexdigest(), len(data))


def of(block: dict[str, Any]) -> Blob | None:
    """The blob that a block refers to; None if it has everything itself."""
    name, size = block.get("sha256"), block.get("size")
    if block.get("holds") is None or not isinstance(name, str) or not isinstance(size, int):
        return None
    return Blob(name, size)


def names(blocks: Iterable[dict[str, Any]]) -> list[str]:
    """Hashes of the blobs that the blocks refer to, each once."""
    return list(dict.fromkeys(blob.sha256 for block in blocks if (blob := of(block))))


def restored(block: dict[str, Any], data: bytes | None) -> Generator[None, None, dict[str, Any]]:
    """The block with its blob in place, in steps; a text that says so if there is no `data`."""
    if data is None:
        return {"type": "text", "text": MISSING.format(what=described(block), name=block["sha256"])}
    rest = without_reference(block)
    if block["holds"] == "text":
        decoder, pieces = codecs.getincrementaldecoder("utf-8")(errors="replace"), [""]
        for at in range(0, len(data), STEP):
            pieces.append(decoder.decode(data[at : at + STEP]))
            yield
        return {**rest, "text": "".join([*pieces, decoder.decode(b"", final=True)])}
    encoded = bytearray()
    for at in range(0, len(data), STEP):
        encoded += binascii.b2a_base64(data[at : at + STEP], newline=False)
        yield
    return {**rest, block["holds"]: encoded.decode("ascii")}


def without_reference(block: dict[str, Any]) -> dict[str, Any]:
    """The block's other fields."""
    return {name: value for name, value in block.items() if name not in ("holds", "sha256", "size")}


def described(block: dict[str, Any]) -> str:
    """What a block with a blob is, in words for people."""
    kind = "An image" if block.get("type") == "image" else "A file"
    known: Sequence[object] = (block.get("uri"), block.get("mimeType"), amount(block["size"]))
    return f"{kind} ({', '.join(str(one) for one in known if one)})"


def amount(size: int) -> str:
    """A number of bytes for people."""
    if size < 10_000:
        return f"{size:,} bytes"
    return f"{size / 1024:,.0f} KiB" if size < 1024 * 1024 else f"{size / 1024**2:.1f} MiB"
