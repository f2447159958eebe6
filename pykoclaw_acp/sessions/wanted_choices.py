"""What is wanted of a session's mode, model and further options, against what is offered."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model import choices as offers
from pykoclaw_acp.model.choices import Choice, Chosen, Config, Offer, Selection

NOT_SAID: Final = (
    "Claude has not said yet what else it offers: it does once it has started, with the first prompt or soon after the"
    " session is opened. Nothing was changed; choose again then."
)


class WantedChoice(NamedTuple):
    """A mode, a model or another option (its id and value) that is wanted in `parameter` of a
    request. `unchecked`: Claude itself is to say whether there is the model.
    """

    parameter: str
    mode: str | None = None
    model: str | None = None
    option: tuple[str, str] | None = None
    unchecked: bool = False


def require(parameter: str, wanted: str, choices: tuple[Choice, ...], offer: Offer | None) -> None:
    """Raises InvalidParams, which names `parameter`, for a value that is not among the choices."""
    allowed = [one.id for one in choices]
    if wanted not in allowed:
        nothing = otherwise(offer, "Claude offers nothing else here.")
        words = f"`{parameter}`: must be one of {', '.join(allowed)}. {nothing}"
        raise InvalidParams(words, {"allowed": allowed})


def otherwise(offer: Offer | None, nothing: str) -> str:
    """What there is besides: `nothing`, if Claude has said what it offers."""
    return NOT_SAID if offer is None else nothing


def with_wanted(
    chosen: Chosen, wanted: WantedChoice, now: Selection, offer: Offer | None
) -> Chosen:
    """What is chosen then; `now`: with which choices. Raises InvalidParams, which names the
    parameter, for a value that is not among these.
    """
    if wanted.mode is not None:
        require(wanted.parameter, wanted.mode, now.modes, offer)
        chosen = replace(chosen, mode=wanted.mode)
    if wanted.model is not None:
        model = offers.model(wanted.model, offer).id  # which may be named as Claude names it
        if not wanted.unchecked:
            require(wanted.parameter, model, now.models, offer)
        chosen = replace(chosen, model=model)
    if wanted.option is not None:
        config = _with_option(now, chosen.config, wanted.option, wanted.parameter, offer)
        chosen = replace(chosen, config=config)
    return chosen


def _with_option(
    now: Selection, config: Config, option: tuple[str, str], parameter: str, offer: Offer | None
) -> Config:
    """The config with this option; raises InvalidParams."""
    wanted, value = option
    known = {one.id: one for one in now.options or ()}
    if wanted not in known:
        allowed = ["mode", "model", *known]
        raise InvalidParams(
            f"`configId`: must be one of {', '.join(allowed)}."
            f" {otherwise(offer, 'The model has no other options.')}",
            {"allowed": allowed},
        )
    require(parameter, value, known[wanted].choices, offer)
    if wanted == offers.FAST:
        return replace(config, fast=value == offers.ON)
    return replace(config, effort=None if value == offers.DEFAULT_EFFORT else value)
