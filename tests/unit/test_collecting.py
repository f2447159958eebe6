"""When the daemon looks for reference cycles among all of its objects."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Iterator

import pytest

from pykoclaw_acp.server import collecting
from pykoclaw_acp.server.lag import LoopLag
from tests.waiting import eventually


class Cycle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self
        self.more: list[list[object]] = []


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    assert gc.get_threshold() == before


def old_garbage() -> weakref.ref[Cycle]:
    """A cycle of the oldest generation, and as many younger collections as make one worth it."""
    assert gc.isenabled()
    cycle = Cycle()
    gc.collect()
    while gc.get_count()[2] <= collecting.WORTH:
        cycle.more.append([[]])
    return weakref.ref(cycle)


class Loop(LoopLag):
    """A loop that is as busy as it says."""

    busy = True
    looks = 0

    @property
    def rounds(self) -> int:
        self.looks += 1
        return self.looks * 100 if self.busy else 0

    @rounds.setter
    def rounds(self, _: int) -> None:
        pass


async def test_full_collection_waits_until_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collecting, "LOOK", 0.0)
    monkeypatch.setattr(collecting, "STILL", 0.0)
    loop = Loop()
    collector = asyncio.ensure_future(collecting.run(loop))
    await asyncio.sleep(0)
    garbage = old_garbage()
    await eventually(lambda: loop.looks > 10)
    assert garbage() is not None
    loop.busy = False
    await eventually(lambda: garbage() is None)
    collector.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await collector


async def test_growing_server_is_looked_through_seldom() -> None:
    full = 0

    def count(phase: str, info: dict[str, int]) -> None:
        nonlocal full
        full += phase == "start" and info["generation"] == 2

    collector = asyncio.ensure_future(collecting.run(Loop()))
    await asyncio.sleep(0)
    gc.collect()
    gc.callbacks.append(count)
    try:
        kept: list[list[object]] = [[] for _ in range(300_000)]
    finally:
        gc.callbacks.remove(count)
    assert full == 0, "while these came"
    kept.clear()
    collector.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await collector
