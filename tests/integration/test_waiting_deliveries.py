"""Deliveries that wait, for the store or for a deletion, are shown once nothing is in their way."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp.store.journal.deliveries import SqlDeliveryStore
from tests.integration.delivering import attached, delivering, name
from tests.integration.queueing import enqueue
from tests.integration.rig import rig
from tests.waiting import eventually, pass_loop_time, within

HOUR = 3600.0


def _takes_an_hour(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Let this step of each look take an hour, by the clock that measures looks."""
    passed = 0.0
    real = getattr(SqlDeliveryStore, step)

    async def slow(store: SqlDeliveryStore) -> Any:
        nonlocal passed
        passed += HOUR
        return await real(store)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed)
    monkeypatch.setattr("pykoclaw_acp.sessions.deliveries.time", clock)
    monkeypatch.setattr(SqlDeliveryStore, step, slow)


async def test_outage_keeps_no_later_delivery_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _takes_an_hour(monkeypatch, "writable")
    async with rig(tmp_path) as r, delivering(r):
        session, client = await attached(r)
        for words in ("during the outage", "after it"):
            enqueue(r.database.path, name(session), words)
            assert await within(lambda said=words: said in client.text, 15)  # type: ignore[misc]


async def test_slow_look_delays_the_next_by_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _takes_an_hour(monkeypatch, "waiting")
    async with rig(tmp_path) as r:
        session, client = await attached(r)
        enqueue(r.database.path, name(session), "first")
        async with delivering(r):
            await eventually(lambda: "first" in client.text)
            enqueue(r.database.path, name(session), "second")
            pass_loop_time(31)
            assert await within(lambda: "second" in client.text, 15)
