"""A daemon adopts workers while the database can be neither read nor written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.store import permissions
from pykoclaw_acp.store.hinting_journal import HintingJournal
from tests.integration.adopting import alive, asks, daemon, ended, found, killed
from tests.integration.rig import hanging
from tests.waiting import MOMENT, eventually, pass_loop_time, within

__all__ = ["alive"]


async def test_answering_worker_is_spared_while_store_waits(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        await asks(session, channel, turn.turn_id, "q")  # which the worker drops meanwhile
    settle, waits, writable = HintingJournal.settle, asyncio.Event(), asyncio.Event()

    async def patient(journal: HintingJournal, *settled: Any) -> None:
        waits.set()
        await writable.wait()
        await settle(journal, *settled)

    monkeypatch.setattr(HintingJournal, "settle", patient)
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        await asyncio.wait_for(waits.wait(), 30)
        pass_loop_time(30)  # the time that it has
        ended_it = await within(lambda: channel.dead, MOMENT)
        writable.set()
        assert not ended_it
        await eventually(lambda: second.pool.steers(session.id))
        channel.say(channel.ended(turn.turn_id))
        assert (await ended(again)).state == "done"


async def test_unreadable_store_costs_no_adopted_worker(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        await asks(session, channel, turn.turn_id, "q")
        channel.asks = ["q"]
    settled, failed = permissions.settled, asyncio.Event()

    async def locked(*given: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise StoreUnavailable(DatabaseState.LOCKED, "Another program keeps it locked.")
        return await settled(*given)

    monkeypatch.setattr(permissions, "settled", locked)
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        await asyncio.wait_for(failed.wait(), 30)
        await second.sessions.requests.decide("q", "allow_once", "somebody")
        await eventually(lambda: channel.dead or [one.ask_id for one in channel.answers])
        assert [one.decision for one in channel.answers] == ["allow_once"]
        channel.say(channel.ended(turn.turn_id))
        assert (await ended(again)).state == "done"
