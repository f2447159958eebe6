"""`_meta["pykoclaw.dev/replay"]`: how much of its history `session/load` sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykoclaw_acp.errors import InvalidParams

REPLAY: Final = "pykoclaw.dev/replay"
MOST: Final = 1_000_000


def last(meta: Mapping[str, Any] | None) -> int | None:
    """The number of turns that are wanted; None: all. Raises InvalidParams."""
    given = (meta or {}).get(REPLAY)
    if given is None:
        return None
    number = given.get("last") if isinstance(given, dict) and given.keys() == {"last"} else None
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= MOST:
        return number
    raise InvalidParams(
        f'`_meta.{REPLAY}`: must be {{"last": N}}, with the number of turns that are wanted, from 1'
        f" to {MOST:,}."
    )
