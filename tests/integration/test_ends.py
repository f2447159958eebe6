"""The end of a turn, or of a worker, that meets an error nobody foresaw is recorded all the same,
later.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import structlog
from structlog.testing import LogCapture

from pykoclaw_acp import retries
from pykoclaw_acp.model.events import ToolStarted
from pykoclaw_acp.server import health
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.workers import SqlWorkerStore
from tests.databases import on_writer
from tests.integration.rig import Rig, hanging, rig
from tests.waiting import eventually


class Failing:
    """A method that raises so many times; None: until it is healed."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, times: int | None
    ) -> None:
        self.calls = 0
        self.times = times
        real = getattr(owner, name)

        async def call(this: Any, *given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.times is None or self.calls <= self.times:
                raise RuntimeError("nobody has foreseen this")
            return await real(this, *given, **named)

        monkeypatch.setattr(owner, name, call)


async def recovers(r: Rig, session: Any) -> None:
    """The session's next prompt runs, and nothing of old workers is left."""
    assert (await r.run(session, "say 1")).state == "done"
    r.pool.retire(session.id)

    async def none() -> bool:
        return await r.database.read("SELECT epoch FROM acp_workers") == []

    left_none: bool = await eventually(none)
    assert left_none


async def test_dead_workers_turn_end_is_retried_until_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        failing = Failing(monkeypatch, SessionJournal, "finish", 4)
        channel.kill()
        assert (await asyncio.wait_for(turn.ended, 30))[0].state in ("failed", "unknown")
        assert failing.calls == 5
        assert (await r.states())[turn.turn_id] in ("failed", "unknown")
        await recovers(r, session)


async def test_cancel_ends_turn_whose_end_was_unrecorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        monkeypatch.setattr(retries, "FIRST_PAUSE", 600.0)
        failing = Failing(monkeypatch, SessionJournal, "finish", None)
        channel.kill()
        await eventually(lambda: failing.calls == 2)
        failing.times = 0
        assert session.cancel()
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "cancelled"
        assert (await r.states())[turn.turn_id] == "cancelled"
        await recovers(r, session)


@pytest.mark.parametrize(
    "owner_and_name", [(SqlWorkerStore, "worker_gone"), (SessionJournal, "append")]
)
async def test_worker_end_is_retried_until_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner_and_name: tuple[type, str]
) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        channel.say(channel.ended(turn.turn_id))
        await asyncio.wait_for(turn.ended, 30)
        session.log.open_tools.follow(ToolStarted("tool", "Bash", "rm", "execute"))
        failing = Failing(monkeypatch, *owner_and_name, 3)
        channel.kill()
        await eventually(lambda: failing.calls >= 4)
        await recovers(r, session)
        assert failing.calls == (5 if owner_and_name[1] == "worker_gone" else 4)


async def test_turn_lost_by_journal_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        _, turn, channel = await hanging(r)
        await on_writer(r.database, lambda c: c.execute("DELETE FROM acp_turns"))
        channel.kill()
        assert (await asyncio.wait_for(turn.ended, 30))[0].state in ("failed", "unknown")


async def test_a_long_fault_says_little(monkeypatch: pytest.MonkeyPatch) -> None:
    said = LogCapture()
    monkeypatch.setattr(retries, "log", structlog.wrap_logger(None, processors=[said]))
    monkeypatch.setattr(retries, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.0)
    tries = 0

    async def act() -> int:
        nonlocal tries
        tries += 1
        if tries <= 1000:
            raise RuntimeError("nobody has foreseen this")
        return tries

    assert await retries.until_done(act, "Something failed") == 1001
    tried = [entry for entry in said.entries if entry["action"] == "tried_again"]
    assert 0 < len(tried) <= 10


async def test_disk_error_does_not_end_watchdog() -> None:
    class Part:
        async def probe(self) -> None:
            raise OSError(5, "Input/output error")

    notifier = Mock(watchdog_interval=0.02)
    watching = asyncio.create_task(health.watch(notifier, Part(), Part()))
    await eventually(lambda: watching.done() or notifier.watchdog.call_count >= 2)
    assert not watching.done()
    watching.cancel()
