"""Long payloads of tool calls, as a replay has them."""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.model.cutting import MOST, cut
from pykoclaw_acp.model.events import ImagePart, TextPart, ToolEnded, ToolPart, ToolStarted, size
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.protocol.tool_results import raw_output

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
    first, second, mark = shown.content
    assert first == picture
    assert second == TextPart(LONG[:MOST])
    assert isinstance(mark, TextPart)
    assert mark.text.startswith("… [cut: ")


@pytest.mark.parametrize("fence", ["```sh", "`````"])
def test_code_block_that_is_cut_is_closed(fence: str) -> None:
    closing = fence.rstrip("sh")
    event = ToolEnded("t", "completed", (TextPart(f"{fence}\n{LONG}y\n{closing}"),), exit_code=0)
    shown = cut("session", Logged(3, "turn", event, size(event))).event
    assert isinstance(shown, ToolEnded)
    block, mark = shown.content
    assert block == TextPart(f"{fence}\n{LONG[:MOST]}\n{closing}")
    assert isinstance(mark, TextPart)
    assert "[cut: 65,538 characters" in mark.text
    output = str((raw_output(shown) or {})["output"])
    assert output.startswith("xxx")
    assert "`\n" not in output
    assert output.endswith(mark.text), "the raw output does not say that it was cut"


def test_mark_of_a_command_stands_above_output() -> None:
    """What is no output of the call has no mark in that."""
    parts = (TextPart(LONG, command=True), TextPart("```\nout\n```"), TextPart(LONG, beside=True))
    event = ToolEnded("t", "completed", parts, exit_code=0)
    shown = cut("session", Logged(3, "turn", event, size(event))).event
    assert isinstance(shown, ToolEnded)
    flags = [(one.command, one.beside) for one in shown.content if isinstance(one, TextPart)]
    assert flags == [(True, False), (True, False), (False, False), (False, True), (False, True)]
    assert raw_output(shown) == {"output": "out", "exitCode": 0}


def test_code_block_is_measured_without_its_fence() -> None:
    parts = (TextPart(f"```\n{LONG[:MOST]}\n```"),)
    event = ToolEnded("t", "completed", parts)
    shown = cut("session", Logged(3, "turn", event, size(event))).event
    assert isinstance(shown, ToolEnded)
    assert shown.content == parts
