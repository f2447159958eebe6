"""Calls that have done nothing, and whose result the CLI calls a success."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pykoclaw_acp.translation.plan import UPDATED
from pykoclaw_acp.translation.texts import first_text

_UPDATE: Final = "TaskUpdate"
# Where a tool says why; a skill, if it ran as a subagent
_REASONS: Final = {"SendMessage": "message", _UPDATE: "error", "Skill": "result"}


def why(name: str, blocks: object, details: object) -> str | None:
    """Why the call has failed after all; None if it has not. Of a call of a subagent there are no
    `details`, but the model gets the same, or a text.
    """
    if name not in _REASONS:
        return None
    text = first_text(blocks)
    if not isinstance(details, dict):
        if name == _UPDATE:
            return None if not text or text.startswith(UPDATED) else text
        details = _decoded(text)
    if not isinstance(details, dict) or details.get("success") is not False:
        return None
    return str(details.get(_REASONS[name]) or text or "It was not done.")


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
