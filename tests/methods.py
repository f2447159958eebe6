"""The methods that a daemon takes, as its dispatch tables have them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec

from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.command_prompts import CommandPrompts
from pykoclaw_acp.server.control import Control
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.methods import METHODS
from pykoclaw_acp.server.scheduled import ScheduledTasks

_NOTHING: Any = Mock()

ACP: dict[str, Method[Call, Any]] = dict(METHODS)
CONTROL: dict[str, Method[Call, Any]] = Control(
    _NOTHING, _NOTHING, _NOTHING, _NOTHING, launcher=_NOTHING
).methods
OWN: dict[str, Method[Call, Any]] = {
    **CONTROL,
    **CommandPrompts(_NOTHING, _NOTHING, Path("/"), _NOTHING).methods,
    **ScheduledTasks(_NOTHING).methods,
}


@functools.cache  # the fuzz asks with each frame
def required(method: str) -> tuple[str, ...]:
    """Parameters without which the method is refused."""
    known = ACP.get(method) or OWN.get(method)
    fields = () if known is None else msgspec.structs.fields(known.params)
    return tuple(field.encode_name for field in fields if field.required)
