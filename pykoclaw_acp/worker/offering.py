"""What the CLI says that it offers, in its answer to `initialize` and in the first message of a
turn, and when its commands change: pure functions.
"""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.model import choices
from pykoclaw_acp.model.choices import Command, Model, Offer
from pykoclaw_acp.translation.mcp_names import in_tools

# Reasons against fast mode that do not say whether it can be had: it was not asked for yet.
_UNDECIDED: Final = ("sdk_opt_in_required", "pending")
_PROMPT: Final = " (MCP)"  # ends the name of a prompt of an MCP server, which is `server:prompt`
_NOT_KNOWN: Final = "Custom model"  # how the CLI describes a name that it does not know
_WHY_NOT_FAST: Final = {
    "free": "the account has no paid plan",
    "preference": "it is turned off in the settings of the account or the organization",
    "extra_usage_disabled": "extra usage is disabled for this account",
    "network_error": "whether the account has it could not be checked",
    "not_first_party": "the provider does not have it",
    "disabled_by_env": "it is disabled in the environment",
    "model_not_allowed": "its model is not allowed by the organization",
}


def named(offer: Offer, model: str) -> str:
    """Id of the offered model that has this name in Claude's words; the name if there is none."""
    ids = (
        one.id for one in offer.models if one.resolved == model and one.id != choices.DEFAULT_MODEL
    )
    return next(ids, model)


def of(info: dict[str, Any]) -> Offer:
    """Commands and models from the answer to `initialize`."""
    fast = why_not_fast(info) is None
    models = [one for one in _dicts(info.get("models")) if isinstance(one.get("value"), str)]
    return Offer(commands(info), tuple(_model(one, fast=fast) for one in models))


def commands(info: dict[str, Any]) -> tuple[Command, ...]:
    """Commands from the answer to `initialize`, or from the notice that they have changed."""
    found = (_command(one) for one in _dicts(info.get("commands")) if one.get("name"))
    return choices.fit(tuple(found))


def without_unknown(offer: Offer, model: str) -> Offer | None:
    """The offer without this model if the CLI has it there only because it was told to use it, and
    knows nothing of it; None if it knows it.
    """
    known = tuple(one for one in offer.models if one.id != model or one.description != _NOT_KNOWN)
    if not known or known == offer.models:  # it does not list all that it knows, as `best`
        return None
    return Offer(offer.commands, known)


def plain(model: str) -> str:
    """Claude's name of a model without what stands behind it in brackets, such as `[1m]`."""
    return model.partition("[")[0]


def why_not_fast(info: dict[str, Any]) -> str | None:
    """Why fast mode cannot be had, in words; None if nothing is known against it."""
    reason = info.get("fast_mode_disabled_reason")
    if not isinstance(reason, str) or reason in _UNDECIDED:
        return None
    return _WHY_NOT_FAST.get(reason, f"the reason is `{reason[:60]}`")


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _command(given: dict[str, Any]) -> Command:
    name = str(given["name"])
    if name.endswith(_PROMPT):  # as it is shown; this is how it can be typed
        server, _, prompt = name.removesuffix(_PROMPT).partition(":")
        name = f"{choices.OF_SERVER}{in_tools(server)}__{prompt}"
    return Command(
        name,
        str(given.get("description") or ""),
        str(given.get("argumentHint") or ""),
    )


def _model(given: dict[str, Any], *, fast: bool) -> Model:
    return Model(
        given["value"],
        str(given.get("displayName") or given["value"]),
        str(given.get("description") or ""),
        resolved=str(given.get("resolvedModel") or ""),
        efforts=_efforts(given),
        fast=fast and given.get("supportsFastMode") is True,
        auto=given.get("supportsAutoMode") is True,
    )


def _efforts(given: dict[str, Any]) -> tuple[str, ...] | None:
    """Levels of effort; None if this CLI does not say."""
    if "supportsEffort" not in given:
        return None
    levels = given.get("supportedEffortLevels")
    if not given["supportsEffort"] or not isinstance(levels, list):
        return ()
    return tuple(one for one in levels if isinstance(one, str))
