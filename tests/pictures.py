"""Images and documents for tests, made here."""

from __future__ import annotations

import base64
import random
import struct
import zlib
from typing import Any

PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)


def png(width: int, height: int, *, noise: bool = False, rows: int | None = None) -> bytes:
    """A PNG; one of noise does not compress, and has about three bytes a pixel. `rows`: so many are
    in it, whatever its header says.
    """
    source = random.Random(7)
    row = b"\0" + b"\x40\x80\xc0" * width
    every = range(height if rows is None else rows)
    pixels = b"".join(b"\0" + source.randbytes(3 * width) if noise else row for _ in every)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(pixels, 0 if noise else 6))
        + chunk(b"IEND", b"")
    )


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(data: bytes, mime_type: str = "image/png") -> dict[str, Any]:
    """The content block of an image."""
    return {"type": "image", "mimeType": mime_type, "data": encoded(data)}


def file(uri: str, content: bytes | str, mime_type: str | None = None) -> dict[str, Any]:
    """The content block of an embedded file."""
    kept = {"text": content} if isinstance(content, str) else {"blob": encoded(content)}
    resource = {"uri": uri, **({"mimeType": mime_type} if mime_type else {}), **kept}
    return {"type": "resource", "resource": resource}
