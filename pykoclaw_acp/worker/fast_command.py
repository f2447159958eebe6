"""`/fast`, which the CLI refuses to turn on under the SDK, though it takes fast mode as a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pykoclaw_acp.model import choices
from pykoclaw_acp.model.choices import Chosen, Offer

ON: Final = "/fast on"

_TURNING_ON: Final = ("/fast", ON)  # without an argument it toggles


def turns_on(content: Sequence[dict[str, Any]], offer: Offer) -> bool:
    """Whether this prompt is the command that turns fast mode on where it is off, and a model has it."""
    typed = str(content[0].get("text", "")).strip() if len(content) == 1 else ""
    return typed in _TURNING_ON and any(one.fast for one in offer.models)


def model_for(chosen: Chosen, offer: Offer) -> str | None:
    """The model to set for the fast mode that was turned on; None if it is off, or the model has it.

    The command says that it sets one, which has no effect under the SDK.
    """
    if not chosen.config.fast or choices.model(chosen.model, offer).fast:
        return None
    fast = [one.id for one in offer.models if one.fast]
    return next((one for one in fast if one != choices.DEFAULT_MODEL), next(iter(fast), None))
