"""What can be chosen with a model, and what becomes of choices that another one does not have."""

from __future__ import annotations

import msgspec
import pytest

from pykoclaw_acp.model import choices
from pykoclaw_acp.model.choices import Chosen, Config, Model, Offer, Selection

ABLE = Model("able", "Able", "", "claude-able-1", ("low", "high"), fast=True, auto=True)
PLAIN = Model("plain", "Plain", efforts=())
OFFER = Offer(models=(ABLE, PLAIN))


def chosen(mode: str = "default", model: str = "able", **config: object) -> Chosen:
    return Chosen(mode, model, Config(**config))  # type: ignore[arg-type]


def options(wanted: Chosen, offer: Offer | None = OFFER) -> dict[str, list[str]]:
    """The choices of each option besides mode and model."""
    selection = choices.selection(wanted, offer, bypass=False)
    return {one.id: [each.id for each in one.choices] for one in selection.options or ()}


def modes(wanted: Chosen, offer: Offer | None = OFFER) -> list[str]:
    return [one.id for one in choices.selection(wanted, offer, bypass=False).modes]


def test_options_are_those_of_the_model() -> None:
    assert options(chosen()) == {"effort": ["default", "low", "high"], "fast": ["off", "on"]}
    assert options(chosen(model="plain")) == {}
    assert options(chosen(model="claude-able-1")) == options(chosen())
    assert options(chosen(), None) == {"effort": ["default", "low", "medium", "high"]}


def test_auto_is_offered_where_the_model_has_it() -> None:
    assert "auto" in modes(chosen())
    assert "auto" not in modes(chosen(model="plain"))
    assert "auto" not in modes(chosen(), None)


def test_a_current_value_is_always_among_the_choices() -> None:
    assert options(chosen(model="plain", effort="max", fast=True)) == {
        "effort": ["default", "max"],
        "fast": ["off", "on"],
    }
    assert modes(chosen("auto", "plain"))[-1] == "auto"


@pytest.mark.parametrize("model", ["plain", "able"])
def test_what_a_model_lacks_is_reset(model: str) -> None:
    wanted = chosen("auto", model, effort="high", fast=True)
    kept = choices.fitting(wanted, OFFER)
    assert kept == (wanted if model == "able" else chosen(model="plain"))


def test_nothing_is_reset_before_claude_lists_options() -> None:
    wanted = chosen("auto", "opus", effort="high")
    assert choices.fitting(wanted, None) == wanted
    assert choices.fitting(wanted, Offer(models=(Model("opus", "Opus"),))) == wanted


@pytest.mark.parametrize("config", [Config(), Config("high"), Config(fast=True)])
def test_the_config_is_read_back(config: Config) -> None:
    selection = choices.selection(Chosen("default", "able", config), OFFER, bypass=False)
    assert msgspec.json.decode(msgspec.json.encode(selection), type=Selection).config == config


def test_an_earlier_version_says_nothing_of_the_config() -> None:
    row = b'{"mode":"plan","modes":[],"model":"opus","models":[{"id":"opus","name":"Opus"}]}'
    assert msgspec.json.decode(row, type=Selection).config is None
