"""The cursor of `session/list`: a place in the list, opaque to clients."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from pykoclaw_acp.link.lines import MAX_NUMBER
from pykoclaw_acp.model.listing import ListPosition
from pykoclaw_acp.protocol.limits import MAX_NAME

_KIND: Final = "1"
_TIME: Final = re.compile(r"-?[0-9]+")  # transcripts may be dated before 1970


def encode(place: ListPosition) -> str:
    """The cursor of what comes after this place."""
    text = f"{_KIND}:{place.updated_at}:{place.session_id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(cursor: str) -> ListPosition | None:
    """The place; None if this is no cursor of ours."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        kind, at, session_id = (
            base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(":", 2)
        )
    except (UnicodeError, binascii.Error, ValueError):
        return None
    if kind != _KIND or not _TIME.fullmatch(at) or len(at) > len(str(MAX_NUMBER)):
        return None
    place = ListPosition(int(at), session_id)
    known = place.updated_at <= MAX_NUMBER and 0 < len(session_id) <= MAX_NAME
    return place if known and encode(place) == cursor else None
