"""Long payloads of tool calls, as a replay has them."""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.model.cutting import MOST, cut
from pykoclaw_acp.model.events import ImagePart, TextPart, ToolEnded, ToolPart, ToolStarted, size
from pykoclaw_acp.model.log import Logged

LONG = "x" * (MOST + 1)


def started(given: dict[str, Any], *content: ToolPart) -> ToolStarted:
    event = ToolStarted("t", "Tool", "Tool", "other", given, content)
    shown = cut("session", Logged(3, "turn", event, size(event))).event
    assert isinstance(shown, ToolStarted)
    return shown


@pytest.mark.parametrize("name", ["coloured", "data", "text", "type"])
def test_fields_of_an_input_mean_nothing_to_us(name: str) -> None:
    shown = started({name: LONG, "other": LONG, "nested": [{name: True}]}).input
    assert shown is not None
    assert all("[cut: 65,537 characters" in str(shown[one]) for one in (name, "other"))
    assert shown["nested"] == [{name: True}]


def test_deep_input_is_shown_as_json() -> None:
    nested: list[Any] = [LONG]
    for _ in range(400):
        nested = [nested]
    shown = str(started({"nested": nested}).input)
    assert "[[[[" in shown
    assert "[cut: " in shown


def test_picture_stays_whole_and_long_colours_go() -> None:
    picture = ImagePart(LONG, "image/png")
    event = ToolEnded("t", "completed", (picture, TextPart(LONG, coloured=LONG)))
    shown = cut("session", Logged(3, "turn", event, size(event))).event
    assert isinstance(shown, ToolEnded)
    first, second = shown.content
    assert first == picture
    assert isinstance(second, TextPart)
    assert second.coloured == ""
    assert "[cut: " in second.text
