"""Kind and size of images, from their first bytes: PNG, JPEG, GIF and WebP, which Claude takes."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

KINDS: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
MOST_SEGMENTS: Final = 2000  # of a JPEG that are passed over until its size comes
# Of a JPEG, those that begin a frame and hold its size; C4, C8 and CC are tables.
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE: Final = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a length


class Image(NamedTuple):
    """What an image is; width and height in pixels."""

    mime_type: str
    width: int
    height: int


def kind(data: bytes | bytearray) -> str | None:
    """The MIME type that the first 12 bytes show; None if they begin no such image."""
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return "image/png"
    if data[:3] == b"\xff\xd8\xff":
        return "image/jpeg"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def look(data: bytes | bytearray) -> Image | None:
    """The image that the bytes are; None if they are none, or its size cannot be read."""
    found = kind(data)
    try:
        match found:
            case "image/png":
                size = struct.unpack_from(">II", data, 16) if data[12:16] == b"IHDR" else None
            case "image/gif":
                size = struct.unpack_from("<HH", data, 6)
            case "image/webp":
                size = _webp(data)
            case "image/jpeg":
                size = _jpeg(data)
            case _:
                return None
    except (struct.error, IndexError):
        return None
    return Image(found, *size) if size is not None and all(size) else None


def _webp(data: bytes | bytearray) -> tuple[int, int] | None:
    form = bytes(data[12:16])
    if form == b"VP8X" and len(data) >= 30:
        return (
            int.from_bytes(data[24:27], "little") + 1,
            int.from_bytes(data[27:30], "little") + 1,
        )
    if form == b"VP8L" and data[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(data: bytes | bytearray) -> tuple[int, int] | None:
    at = 2
    for _ in range(MOST_SEGMENTS):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # a byte that fills up
            at += 1
        elif marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        elif marker in _ALONE:
            at += 2
        else:
            at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None
