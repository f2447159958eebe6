"""What fails again and again is bounded: workers that do not start, and prompts over which daemons
die.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.channel.spec import WorkerIdentity
from pykoclaw_acp.model.events import Failure, UserMessage
from pykoclaw_acp.model.turns import Outcome
from pykoclaw_acp.server.session_recovery import hand_over
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store.session_journal import SessionJournal
from tests.integration.adopting import alive, daemon, found, killed, recovered
from tests.integration.rig import Rig, claim_all, rig
from tests.waiting import eventually

__all__ = ["alive"]


async def attempts(r: Rig) -> list[int]:
    rows = await r.database.read("SELECT attempts FROM acp_turns ORDER BY position")
    return [count for (count,) in rows]


async def preparing(r: Rig, text: str = "say 1") -> Session:
    """A session whose turn waits for a worker that is not ready by itself."""
    r.launcher.slow = True
    session = await r.session()
    before = len(r.launcher.launched)
    await r.prompt(session, text)
    await eventually(lambda: len(r.launcher.launched) > before)
    return session


def fault(outcome: Outcome) -> tuple[str, int | None]:
    assert outcome.failure is not None
    return outcome.failure.kind, outcome.failure.retry_after


# --- workers that do not start


async def test_three_failed_starts_block_prompts_until_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("pykoclaw_acp.pool.start_limit.time.monotonic", lambda: now)
    async with rig(tmp_path) as r:
        session, other = await r.session(), await r.session()
        r.launcher.refuse = True
        for at in range(3):
            now = 1000.0 + at * 10
            assert fault(await r.run(session, "say 1")) == ("start_failed", None)
        r.launcher.refuse = False
        outcome = await r.run(session, "say 1")
        assert fault(outcome) == ("start_limit", 40)
        assert outcome.failure is not None
        assert "40 s" in outcome.failure.message
        assert "no memory" in outcome.failure.message, "what is wrong"
        assert r.launcher.launched == []
        assert (await r.run(other, "say 1")).state == "done", (
            "another conversation has nothing to do with it"
        )
        now = 1060.0
        assert (await r.run(session, "say 1")).state == "done"


async def test_worker_death_counts_only_before_ready(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        for _ in range(4):
            assert (await r.run(session, "die half")).state == "failed"
        r.launcher.slow = True
        for at in range(4, 7):
            turn = await r.prompt(session, "say 1")
            await eventually(lambda at=at: len(r.launcher.launched) > at)  # type: ignore[misc]
            r.launcher.launched[-1].kill()
            assert fault((await turn.ended)[0]) == ("worker_lost", None)
        assert fault(await r.run(session, "say 1"))[0] == "start_limit"
        assert len(r.launcher.launched) == 7


async def test_worker_not_ready_in_time_counts(tmp_path: Path) -> None:
    async with rig(tmp_path, worker_start_timeout=0.05) as r:
        session = await r.session()
        r.launcher.slow = True
        kinds = [fault(await r.run(session, "say 1"))[0] for _ in range(4)]
        assert kinds == ["start_timeout"] * 3 + ["start_limit"]


async def test_failed_start_counts_while_next_prompt_awaits_cleanup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path, worker_start_timeout=0.05) as r:
        session = await r.session()
        r.launcher.slow = True
        acquire, clean = r.pool.acquire, r.launcher.clean
        acquired: list[str] = []

        async def acquiring(session_id: str, options: WorkerOptions) -> int:
            acquired.append(session_id)
            return await acquire(session_id, options)

        async def cleaning(
            worker: WorkerIdentity, grace: float, *, keep_spool: bool = False
        ) -> None:
            await eventually(lambda: len(acquired) > len(r.launcher.cleaned) + 1)
            await clean(worker, grace, keep_spool=keep_spool)

        monkeypatch.setattr(r.pool, "acquire", acquiring)
        monkeypatch.setattr(r.launcher, "clean", cleaning)
        kinds = [fault(await r.run(session, "say 1"))[0] for _ in range(4)]
        assert kinds == ["start_timeout"] * 3 + ["start_limit"]


async def test_a_start_that_works_ends_the_count(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        for refuse in (True, True, False, True, True):
            r.launcher.refuse = refuse
            assert (await r.run(session, "say 1")).state == ("failed" if refuse else "done")
            await r.pool.stop(session.id)
        r.launcher.refuse = False
        assert (await r.run(session, "say 1")).state == "done"


# --- prompts over which daemons die


async def test_third_daemon_ends_deadly_prompt_and_runs_next(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session = await preparing(first, said := "say 1\x1b[0m\x07")
        await first.prompt(session, "say 2")
        assert await attempts(first) == [1, 0]
    async with killed(tmp_path, alive) as second:
        second.launcher.slow = True
        again = await _taken_over(second, tmp_path, session)
        claim_all(again)
        await eventually(lambda: second.launcher.launched)
        assert await attempts(second) == [2, 0]
        assert [turn.content[0]["text"] for turn in again.turns] == [said, "say 2"]
    async with daemon(tmp_path) as third:
        again = await found(third, session)
        claim_all(again)
        await eventually(lambda: not again.busy)
        rows = await third.database.read("SELECT state, attempts FROM acp_turns ORDER BY position")
        assert rows == [("failed", 2), ("done", 1)]
        logged = [
            one.event for one in await SessionJournal(third.database).read(session.id, 0, 100)
        ]
        assert isinstance(logged[0], UserMessage)
        assert logged[0].content == {"type": "text", "text": "say 1"}
        assert isinstance(logged[1], Failure)
        assert logged[1].error_kind == "server_died"
        assert "does not try again" in logged[1].text


async def _taken_over(r: Rig, path: Path, session: Session) -> Session:
    await hand_over(await recovered(r, path), r.sessions, r.pool, r.database)
    return await found(r, session)


async def test_an_orderly_end_is_no_death(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await preparing(r)
        assert await attempts(r) == [1]
        await r.sessions.live.suspend()
        assert await attempts(r) == [0]


async def test_turn_waiting_for_worker_capacity_is_not_preparing(tmp_path: Path) -> None:
    async with rig(tmp_path, max_workers=1) as r:
        busy = await r.session()
        running = await r.prompt(busy, "hang")
        await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].acked)
        waiting = await r.prompt(await r.session(), "say 1")

        async def is_paused() -> bool:
            return await attempts(r) == [1, 0]

        paused: bool = await eventually(is_paused)
        assert paused
        channel = r.launcher.launched[0]
        channel.say(channel.ended(running.turn_id))
        assert (await asyncio.wait_for(waiting.ended, 30))[0].state == "done"
        assert await attempts(r) == [1, 1]


async def test_immediately_run_prompt_needs_no_extra_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    begin = SessionJournal.begin_attempt

    async def counting(journal: SessionJournal, turn_id: str) -> None:
        counted.append(turn_id)
        await begin(journal, turn_id)

    monkeypatch.setattr(SessionJournal, "begin_attempt", counting)
    async with rig(tmp_path) as r:
        session = await r.session()
        for _ in range(3):
            await r.run(session, "say 1")
            await session.idle()
        assert counted == []
        assert await attempts(r) == [1, 1, 1]
