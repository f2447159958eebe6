"""An image of a megabyte, as a person drops it into a prompt."""

from __future__ import annotations

import base64
import random
import struct
import zlib
from typing import Any, Final

SIDE: Final = 590  # pixels; noise has three bytes each


def picture() -> dict[str, Any]:
    """The content block of a PNG of noise, which does not compress."""
    noise = random.Random(7)
    rows = b"".join(b"\0" + noise.randbytes(3 * SIDE) for _ in range(SIDE))
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows, 0)),
        (b"IEND", b""),
    )
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
    return {"type": "image", "mimeType": "image/png", "data": base64.b64encode(data).decode()}
