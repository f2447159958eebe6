"""Answers that fit into a line, however long their texts are."""

from __future__ import annotations

import msgspec

from pykoclaw_acp.protocol.control.tasks import TaskRunInfo
from pykoclaw_acp.server import fitting


def run(text: str) -> TaskRunInfo:
    return TaskRunInfo(run_at=text, duration_ms=1, status="error", result=None, error="short")


def size(shown: list[TaskRunInfo]) -> int:
    return len(msgspec.json.encode(shown))


async def test_short_texts_are_left_as_they_are() -> None:
    runs = [run("a"), run("b")]
    assert await fitting.fitted(runs, 1000) == runs


async def test_cut_text_is_named_with_its_size() -> None:
    (shown,) = await fitting.fitted([run("ä" * 300)], 100)
    assert shown.run_at == "ä" * 100
    assert msgspec.to_builtins(shown)["cut"] == {"runAt": 600}


async def test_many_texts_are_cut_more_to_fit() -> None:
    shown = await fitting.fitted([run("\x01" * 1000)] * 100, 1000, 100_000)
    assert len(shown) == 100
    assert size(shown) <= 100_000


async def test_items_without_room_are_left_out() -> None:
    shown = await fitting.fitted([run("a" * 1000)] * 100, 1000, 5000)
    assert 0 < len(shown) < 100
    assert size(shown) <= 5000
