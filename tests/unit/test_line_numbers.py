"""Line numbers of a log, which a model, a transcript or an imported file may have put there."""

from __future__ import annotations

import json

import msgspec
import pytest

from pykoclaw_acp.model.events import DiffPart, Location, ToolStarted
from pykoclaw_acp.protocol import projection
from tests.schema import validation


@pytest.mark.parametrize("line", [-5, 2**32, 2**80])
def test_impossible_line_is_not_shown(line: int) -> None:
    event = ToolStarted(
        "t",
        "Edit",
        "Edit",
        "edit",
        content=(DiffPart("/w/a", "x", "y", line, line),),
        locations=(Location("/w/a", line), Location("/w/b", 7)),
    )
    shown = json.loads(msgspec.json.encode(projection.update(1, event)))
    params = {"sessionId": "s", "update": shown}
    assert validation.call_problem("session/update", params) is None
    assert [one.get("line") for one in shown["locations"]] == [None, 7]
    assert not shown["content"][0].get("_meta")
