"""Deliveries that wait, for the store or for a deletion, are shown once nothing is in their way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store.journal.deliveries import SqlDeliveryStore
from pykoclaw_acp.store.journal.restoring import SqlRestoreStore
from tests.integration.delivering import attached, delivering, name
from tests.integration.queueing import enqueue, status
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


async def test_delivery_during_a_deletion_that_fails_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = asyncio.Event()

    async def fail(*_: object) -> None:
        await ends.wait()
        raise StoreUnavailable("blocked", "The disk is full.")

    async with rig(tmp_path) as r, delivering(r):
        session = await r.session()
        monkeypatch.setattr(r.journal, "delete", fail)
        deleting = asyncio.ensure_future(r.sessions.delete(session))
        delivery = enqueue(r.database.path, name(session), "news")
        assert not await within(lambda: status(r.database.path, delivery) != "pending", 1)
        ends.set()
        with pytest.raises(StoreUnavailable):
            await deleting
        await eventually(lambda: status(r.database.path, delivery) == "delivered")


async def test_delivery_during_a_deletion_fails_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = asyncio.Event()

    async with rig(tmp_path) as r, delivering(r):
        session, delete = await r.session(), r.journal.delete

        async def later(session_id: str, hidden: Callable[[], object], *_: object) -> None:
            await ends.wait()
            await delete(session_id, hidden)

        monkeypatch.setattr(r.journal, "delete", later)
        deleting = asyncio.ensure_future(r.sessions.delete(session))
        delivery = enqueue(r.database.path, name(session), "news")
        assert not await within(lambda: status(r.database.path, delivery) != "pending", 1)
        ends.set()
        await deleting
        await eventually(lambda: status(r.database.path, delivery) == "failed")


async def test_delivery_for_a_session_in_the_making_waits(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, delivering(r):
        store, made = SqlRestoreStore(r.database), SessionRecord("made", "acp-made", "/")
        await store.begin_restoring(made)
        delivery = enqueue(r.database.path, "acp-made", "news")
        assert not await within(lambda: status(r.database.path, delivery) != "pending", 1)
        await store.end_restoring(made, [], None)
        await eventually(lambda: status(r.database.path, delivery) == "delivered")
