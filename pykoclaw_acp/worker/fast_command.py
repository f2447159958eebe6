"""`/fast`, which the CLI refuses to turn on under the SDK, though it takes fast mode as a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

ON: Final = "/fast on"

_TURNING_ON: Final = ("/fast", ON)  # without an argument it toggles


def turns_on(content: Sequence[dict[str, Any]]) -> bool:
    """Whether this prompt is the command that turns fast mode on where it is off."""
    return len(content) == 1 and str(content[0].get("text", "")).strip() in _TURNING_ON
