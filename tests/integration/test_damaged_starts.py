"""Daemons that start on a database in which the log of a session that was at work has a damaged page."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.model.events import Text, ToolStarted
from pykoclaw_acp.model.turns import STARTED
from pykoclaw_acp.store import overview, preflight, turns
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.workers import SqlWorkerStore
from tests import damaged
from tests.integration.adopting import alive, daemon, found, killed
from tests.integration.rig import claim_all, rig
from tests.waiting import eventually

__all__ = ["alive"]


@pytest.mark.parametrize("words", [b'"busy19"', b'"busy8"'], ids=["end", "middle"])
async def test_damaged_log_of_busy_session_stops_no_start(
    words: bytes, tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "FULL_CHECK_LIMIT", 0)  # as for a large file
    async with killed(tmp_path, alive) as first:
        other = await first.session()
        await first.run(other, "say 1")
        busy = await first.session()
        turn = await first.prompt(busy, "hang")
        await eventually(lambda: turn.state in STARTED)
        waiting = await first.prompt(busy, "say 1")
        withdrawn = await first.prompt(busy, "say 2")
        busy.cancel(withdrawn)
        await withdrawn.ended
        said = [Text(f"busy{n}", "x" * 1000) for n in range(20)]
        call = ToolStarted("c", "Bash", "Run", "execute")
        await SessionJournal(first.database).append(busy.id, [call, *said])
    damaged.page_with(first.database.path, words)
    async with rig(tmp_path) as r:
        rows = await SqlWorkerStore(r.database).rows()
        assert {one.session_id for one in rows} == {other.id, busy.id}
        left = await turns.unfinished(r.database)
        assert {one.turn.turn_id for one in left} == {turn.turn_id, waiting.turn_id}
    async with daemon(tmp_path, first) as second:
        assert (await second.run(await found(second, other), "say 1")).state == "done"
        if words == b'"busy8"':  # it goes on as far as its log can be written
            again = await found(second, busy)
            claim_all(again)
            worker = first.launcher.launched[1]
            worker.say(worker.ended(turn.turn_id))
            await eventually(lambda: not again.busy)
        states = await second.states()
        assert states[turn.turn_id] == "failed"
        assert await overview.queue(second.database) == (0, 0)
