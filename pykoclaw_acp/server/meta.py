"""Values that clients give in `_meta`."""

from __future__ import annotations

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.protocol.wire import Params


def flag(params: Params, key: str) -> bool | None:
    """What is under a key of `_meta`; None if it is not there. Raises InvalidParams."""
    value = (params.meta or {}).get(key)
    if value is not None and not isinstance(value, bool):
        raise InvalidParams(f"`_meta.{key}`: must be true or false.")
    return value


def text(params: Params, key: str, most: int) -> str | None:
    """The text under a key of `_meta`, of 1 to `most` characters; None if it is not there. Raises
    InvalidParams.
    """
    value = (params.meta or {}).get(key)
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= most):
        raise InvalidParams(f"`_meta.{key}`: must be a string of 1 to {most} characters.")
    return value
