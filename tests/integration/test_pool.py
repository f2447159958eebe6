"""Sessions, pool and database together, on workers in memory."""

from __future__ import annotations

import asyncio
import gc
import random
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

from pykoclaw_acp import retries
from pykoclaw_acp.channel.frames import FromWorker, Heartbeat, Ping, Pong, Prompt, Stop
from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.model.events import Failure, Text, UserMessage
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.model.work import SETTLED
from pykoclaw_acp.pool import pool
from pykoclaw_acp.pool.capacity import RETRY_INTERVAL
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.workers import SqlWorkerStore
from pykoclaw_acp.system import memory
from tests.databases import on_writer
from tests.integration.memory_launcher import MemoryLauncher
from tests.integration.rig import Client, Rig, hanging, rig
from tests.waiting import eventually, not_within, pass_loop_time


async def test_fifty_concurrent_sessions_keep_order_without_gaps(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        sessions = [await r.session() for _ in range(50)]
        clients = [Client() for _ in sessions]
        for session, client in zip(sessions, clients, strict=True):
            session.subscribe(client, 0)
        outcomes = await asyncio.gather(*(r.run(session, "say 40") for session in sessions))
        assert {outcome.state for outcome in outcomes} == {"done"}
        for session, client in zip(sessions, clients, strict=True):
            await session.subscriptions[0].reached(session.last_seq)
            assert client.text == "".join(f"{at} " for at in range(40))
            assert await r.seqs(session) == list(range(1, session.last_seq + 1))


async def test_leaving_client_causes_no_event_loop_error(tmp_path: Path) -> None:
    class Gone(Client):
        async def deliver(self, session_id: str, logged: Logged) -> None:
            raise ConnectionError("the client is gone")

    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: complaints.append(context["message"])
    )
    async with rig(tmp_path) as r:
        session = await r.session()
        session.subscribe(Gone(), 0)
        await r.run(session, "say 1")
        await eventually(lambda: not session.subscriptions)
    gc.collect()
    assert complaints == []


async def test_worker_limit_holds_and_every_turn_runs(tmp_path: Path) -> None:
    async with rig(tmp_path, max_workers=3) as r:
        sessions = [await r.session() for _ in range(20)]
        outcomes = await asyncio.gather(*(r.run(session, "say 3") for session in sessions))
        assert [outcome.state for outcome in outcomes] == ["done"] * 20
        assert r.launcher.most <= 3


async def test_simultaneous_prompts_of_session_get_one_worker(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        epochs = await asyncio.gather(
            *(r.pool.acquire(session.id, session.options) for _ in range(3))
        )
        assert epochs == [1, 1, 1]
        assert len(r.launcher.launched) == 1


async def test_the_worker_that_is_idle_longest_makes_room(tmp_path: Path) -> None:
    async with rig(tmp_path, max_workers=2) as r:
        old, recent, new = [await r.session() for _ in range(3)]
        for session in (old, recent, new):
            await r.run(session, "say 1")
        assert not r.pool.is_live(old.id)
        assert r.pool.is_live(recent.id)


async def test_place_for_one_session_costs_one_worker(tmp_path: Path) -> None:
    async with rig(tmp_path, max_workers=3, stop_grace=30.0) as r:
        *idle, busy, new = [await r.session() for _ in range(4)]
        for session in (*idle, busy):
            await r.run(session, "say 1")
        before = list(r.launcher.launched)
        for channel in before[:2]:  # they take their time to end
            channel.deaf = True
        waiting = asyncio.ensure_future(r.run(new, "say 1"))
        await eventually(lambda: any(isinstance(one, Stop) for one in before[0].got))
        for _ in range(3):  # each time the pool looks for room again
            await r.run(busy, "say 1")
        before[0].kill()
        assert (await waiting).state == "done"
        assert [channel.dead for channel in before] == [True, False, False]
        assert not any(isinstance(one, Stop) for one in before[1].got)
        before[1].deaf = False


async def test_idle_worker_is_evicted_and_next_one_resumes(tmp_path: Path) -> None:
    async with rig(tmp_path, idle_timeout=0.05) as r:
        session = await r.session()
        await r.run(session, "say 1")
        await eventually(lambda: not r.launcher.live)
        await r.run(session, "say 1")
        first, second = r.launcher.launched
        assert first.spec.resume_session_id is None
        assert second.spec.resume_session_id == session.id
        assert second.spec.epoch == first.spec.epoch + 1


async def test_worker_soon_follows_last_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "UNATTENDED", 0.2)
    async with rig(tmp_path, idle_timeout=1e6, stall_timeout=1e6) as r:
        session = await r.session()
        await r.run(session, "say 1")
        (first,) = session.subscriptions
        session.subscribe(Client(), 0)
        first.close()
        await not_within(lambda: not r.pool.is_live(session.id))
        session.subscriptions[0].close()
        session.subscribe(Client(), 0)  # a client that was started again
        await not_within(lambda: not r.pool.is_live(session.id))
        session.subscriptions[0].close()
        await eventually(lambda: not r.launcher.live)


async def test_unattended_worker_keeps_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "UNATTENDED", 0.05)
    async with rig(tmp_path, idle_timeout=1e6, stall_timeout=1e6) as r:
        session, turn, worker = await hanging(r)
        session.subscriptions[0].close()
        await not_within(lambda: not r.pool.is_live(session.id))
        worker.background(1)
        worker.say(worker.ended(turn.turn_id))
        await turn.over()
        await not_within(lambda: not r.pool.is_live(session.id))
        worker.background(0)
        await eventually(lambda: worker.acked == worker.last)
        pass_loop_time(SETTLED)
        await eventually(lambda: not r.launcher.live)


async def test_prompt_during_eviction_is_answered(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        for _ in range(5):
            await r.run(session, "say 1")
            r.pool.retire(session.id)
            assert (await r.run(session, "say 1")).state == "done"


async def test_a_busy_worker_is_not_evicted(tmp_path: Path) -> None:
    async with rig(tmp_path, idle_timeout=0.05, max_workers=1) as r:
        busy, other = await r.session(), await r.session()
        running = await r.prompt(busy, "hang")
        await eventually(lambda: running.state == "dispatched")
        waiting = await r.prompt(other, "say 1")
        await not_within(waiting.ended.done)
        assert r.pool.is_live(busy.id)
        assert waiting.state == "queued"
        busy.cancel()
        outcome, _ = await asyncio.wait_for(waiting.ended, 30)
        assert outcome.state == "done"


@pytest.mark.parametrize(("heartbeats", "kind"), [(0, "out_of_memory"), (2, "worker_lost")])
async def test_only_recent_lack_of_memory_explains_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heartbeats: int, kind: str
) -> None:
    counted = 5
    monkeypatch.setattr(memory, "kills", lambda: counted)
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        counted = 6
        for _ in range(heartbeats):
            r.launcher.launched[0].say(Heartbeat(epoch=1))
        failure = (await r.run(session, "die half an answer")).failure
        assert failure is not None
        assert failure.kind == kind


@pytest.mark.parametrize(
    ("prompt", "state"), [("die", "unknown"), ("die half an answer", "failed")]
)
async def test_turn_of_dead_worker_is_reported_not_rerun(
    tmp_path: Path, prompt: str, state: str
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        outcome = await r.run(session, prompt)
        assert outcome.state == state
        assert outcome.failure is not None
        last = (await SessionJournal(r.database).read(session.id, 0, 100))[-1].event
        assert isinstance(last, Failure)
        assert last.text == outcome.failure.message
        assert (await r.run(session, "say 1")).state == "done"
        assert [text for channel in r.launcher.launched for text in channel.prompts] == [
            prompt,
            "say 1",
        ]


@pytest.mark.parametrize("end", ["it dies", "it never answers"])
async def test_prompt_for_dying_idle_worker_runs_on_new(tmp_path: Path, end: str) -> None:
    """A process that was killed is connected for a while yet; what leaves for it would never be
    sent again.
    """
    async with rig(tmp_path, stall_timeout=10.0 if end == "it dies" else 0.5) as r:
        session = await r.session()
        await r.run(session, "say 1")
        dying = r.launcher.launched[0]
        dying.hangs = True
        turn = await r.prompt(session, "say 2")
        if end == "it dies":
            await eventually(lambda: isinstance(dying.got[-1], Ping | Prompt))
            dying.kill()
        beating = asyncio.ensure_future(heartbeats(r))  # it lives, and so does the next one
        outcome, _ = await asyncio.wait_for(turn.ended, 30)
        beating.cancel()
        assert outcome.state == "done"
        assert [channel.prompts for channel in r.launcher.launched] == [["say 1"], ["say 2"]]


async def heartbeats(r: Rig) -> None:
    while True:
        for channel in r.launcher.live:
            channel.say(Heartbeat(epoch=channel.spec.epoch))
        await asyncio.sleep(0.02)


async def test_worker_stopped_while_being_prompted_gets_no_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        worker = r.launcher.launched[0]
        worker.hangs = True
        turn = await r.prompt(session, "say 2")
        await eventually(lambda: isinstance(worker.got[-1], Ping))
        stopping = asyncio.ensure_future(r.pool.stop(session.id))
        await eventually(lambda: isinstance(worker.got[-1], Stop))
        worker.say(Pong(epoch=1))
        outcome, _ = await asyncio.wait_for(turn.ended, 30)
        assert outcome.state == "done"
        assert [channel.prompts for channel in r.launcher.launched] == [["say 1"], ["say 2"]]
        await stopping


async def test_failed_launch_is_error_and_next_prompt_works(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        r.launcher.refuse = True
        outcome = await r.run(session, "say 1")
        assert outcome.state == "failed"
        assert outcome.failure is not None
        assert "no memory" in outcome.failure.message
        r.launcher.refuse = False
        assert (await r.run(session, "say 1")).state == "done"


async def test_worker_never_ready_fails_turn_in_time(tmp_path: Path) -> None:
    async with rig(tmp_path, worker_start_timeout=0.1) as r:
        session = await r.sessions.create("/", (), (McpServer(name="spam"),))
        r.launcher.slow = True
        outcome = await r.run(session, "say 1")
        assert outcome.failure is not None
        assert outcome.failure.kind == "start_timeout"
        assert "`spam`" in outcome.failure.message
        await eventually(lambda: not r.launcher.live)


async def test_cancel_while_the_worker_starts_answers_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        r.launcher.slow = True
        turn = await r.prompt(session, "say 1")
        await eventually(lambda: r.launcher.launched)
        session.cancel(turn)
        outcome, _ = await asyncio.wait_for(turn.ended, 30)
        assert outcome.stop_reason == "cancelled"
        assert r.launcher.launched[0].prompts == []


async def test_unresponsive_worker_is_killed(tmp_path: Path) -> None:
    async with rig(tmp_path, stop_grace=0.05) as r:
        session = await r.session()
        await r.run(session, "say 1")
        r.launcher.launched[0].deaf = True
        await asyncio.wait_for(r.pool.stop(session.id), 30)
        assert [cookie.endswith(f":{session.id}:1") for cookie in r.launcher.cleaned] == [True]


async def test_unstoppable_turn_costs_worker_and_ends_cancelled(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        channel.deaf = True
        session.cancel()
        outcome, _ = await asyncio.wait_for(turn.ended, 30)
        assert outcome.stop_reason == "cancelled"


async def test_failed_cleanup_is_tried_until_it_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the session has its next worker."""
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.01)
    async with rig(tmp_path) as r:
        session = await r.session()
        r.launcher.break_clean_up = True
        await r.run(session, "die")
        assert (await asyncio.wait_for(r.run(session, "say 1"), 30)).state == "done"
        assert r.launcher.cleaned == []
        r.launcher.break_clean_up = False
        await eventually(lambda: r.launcher.cleaned == [r.launcher.launched[0].spec.cookie])


async def test_prompt_does_not_wait_for_failed_cleanup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker dies while it is asked whether it can take the prompt."""
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.01)
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        worker = r.launcher.launched[0]
        worker.hangs = True
        turn = await r.prompt(session, "say 1")
        await eventually(lambda: any(isinstance(one, Ping) for one in worker.got))
        r.launcher.break_clean_up = True
        worker.kill()
        outcome, _ = await asyncio.wait_for(turn.ended, 30)
        assert outcome.state == "done"
        assert r.launcher.cleaned == []
        r.launcher.break_clean_up = False
        await eventually(lambda: r.launcher.cleaned == [worker.spec.cookie])


@pytest.mark.parametrize("end", ["close", "detach"])
async def test_ending_daemon_tries_failed_cleanup_once_more(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 600.0)
    async with rig(tmp_path) as r:
        session = await r.session()
        r.launcher.break_clean_up = True
        await r.run(session, "die")
        await eventually(lambda: not r.pool.is_live(session.id))
        assert (await asyncio.wait_for(r.run(session, "say 1"), 30)).state == "done"
        r.launcher.break_clean_up = False
        await (r.pool.close(5.0) if end == "close" else r.pool.detach())
        assert r.launcher.launched[0].spec.cookie in r.launcher.cleaned


async def test_unforeseen_error_of_launch_is_no_lost_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        MemoryLauncher, "launch", AsyncMock(side_effect=ValueError("what nobody knew"))
    )
    async with rig(tmp_path) as r:
        failure = (await r.run(await r.session(), "say 1")).failure
    assert failure is not None
    assert failure.kind == "start_failed"
    assert failure.message.startswith("Claude's worker could not be launched: the log")


async def test_closing_waits_for_no_locked_database(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        _, turn, channel = await hanging(r)
        other = sqlite3.connect(r.database.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        channel.say(channel.event(turn.turn_id, "Hi."))
        await eventually(lambda: not r.database.condition.is_writable)
        await asyncio.wait_for(r.pool.close(0.1), 30)
        assert channel not in r.launcher.live
        other.close()


async def test_closing_waits_for_no_workers_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = sqlite3.connect(tmp_path / "pykoclaw.db", isolation_level=None)

    async def locked(*_: object) -> None:
        other.execute("BEGIN IMMEDIATE")
        await asyncio.Event().wait()

    monkeypatch.setattr(SqlWorkerStore, "worker_started", locked)
    async with rig(tmp_path) as r:
        await r.prompt(await r.session(), "hang")
        await eventually(lambda: other.in_transaction)
        await asyncio.wait_for(r.pool.close(0.1), 30)
        assert not r.launcher.live
        other.close()


async def test_worker_with_background_work_is_not_evicted(tmp_path: Path) -> None:
    async with rig(tmp_path, max_workers=1) as r:
        first, second = await r.session(), await r.session()
        await r.run(first, "say 1")
        channel = r.launcher.launched[0]
        channel.background(1)
        await eventually(lambda: channel.acked == channel.last)
        waiting = await r.prompt(second, "say 1")
        await not_within(waiting.ended.done)
        assert channel in r.launcher.live
        channel.background(0)
        await eventually(lambda: channel.acked == channel.last)
        pass_loop_time(SETTLED)
        outcome, _ = await asyncio.wait_for(waiting.ended, 30)
        assert outcome.state == "done"


@pytest.mark.parametrize("prompted", [False, True])
async def test_worker_stays_for_turn_about_ended_work(tmp_path: Path, prompted: bool) -> None:
    """`prompted`: the work ends during a turn, in which Claude need not hear of it."""
    async with rig(tmp_path, max_workers=1) as r:
        first, second = await r.session(), await r.session()
        await r.run(first, "say 1")
        channel = r.launcher.launched[0]
        channel.background(1)
        turn = await r.prompt(first, "hang") if prompted else None
        await eventually(lambda: channel.acked == channel.last and len(channel.prompts) > prompted)
        waiting = await r.prompt(second, "say 1")
        channel.background(0)
        if turn is not None:
            await eventually(lambda: channel.acked == channel.last)
            pass_loop_time(SETTLED)
            channel.say(channel.ended(turn.turn_id))
        await not_within(lambda: channel.dead)
        channel.begin_own("own")
        channel.background(1)
        await eventually(lambda: channel.acked == channel.last)
        pass_loop_time(2 * RETRY_INTERVAL)
        await not_within(lambda: channel.dead)
        channel.say(channel.ended("own"))
        channel.background(0)
        await eventually(lambda: channel.acked == channel.last)
        pass_loop_time(SETTLED)
        assert (await asyncio.wait_for(waiting.ended, 30))[0].state == "done"
        assert (await r.states())["own"] == "done"


async def test_background_turn_of_dead_worker_ends_in_words(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        channel = r.launcher.launched[0]
        channel.say(channel.started("own-turn", background=True))
        await eventually(lambda: channel.acked == channel.last)
        channel.kill()
        await eventually(lambda: not r.pool.is_live(session.id))
        await eventually(lambda: session.last_seq == 4)
        assert (await r.states())["own-turn"] == "failed"


async def test_queued_prompt_cancelled_during_turn_is_answered_immediately(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        running = await r.prompt(session, "hang")
        queued = await r.prompt(session, "say 1")
        session.cancel(queued)
        outcome, _ = await asyncio.wait_for(queued.ended, 30)
        assert outcome.stop_reason == "cancelled"
        assert not running.ended.done()
        session.cancel()


@pytest.mark.parametrize("pauses", range(12))
async def test_a_cancel_at_any_moment_ends_the_turn(tmp_path: Path, pauses: int) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        turn = await r.prompt(session, "hang")
        for _ in range(pauses * 3):
            await asyncio.sleep(0)
        session.cancel(turn)
        outcome, _ = await asyncio.wait_for(turn.ended, 30)
        assert outcome.stop_reason == "cancelled"


async def test_a_frame_of_another_epoch_is_dropped(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        stale = channel.event(turn.turn_id, "stale")
        channel.last -= 1
        channel.say(
            type(stale)(
                epoch=channel.spec.epoch - 1, n=stale.n, turn_id=turn.turn_id, event=stale.event
            )
        )
        channel.say(channel.event(turn.turn_id, "fresh"))
        channel.say(channel.ended(turn.turn_id))
        await asyncio.wait_for(turn.ended, 30)
        logged = await SessionJournal(r.database).read(session.id, 0, 100)
        assert [one.event.text for one in logged if isinstance(one.event, Text)] == ["fresh"]


async def test_frame_gap_ends_worker_and_turn_reports_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        channel.event(turn.turn_id, "lost on the way")
        channel.say(channel.event(turn.turn_id, "after the gap"))
        outcome, _ = await asyncio.wait_for(turn.ended, 30)
        assert outcome.state == "unknown"
        assert await r.seqs(session) == [1, 2, 3]


async def test_frames_that_cannot_be_committed_are_not_acknowledged(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        _, turn, channel = await hanging(r)
        acked = channel.acked
        await _refuse_text(r.database)
        channel.say(channel.event(turn.turn_id, "cannot be kept"))
        outcome, _ = await asyncio.wait_for(turn.ended, 30)
        assert outcome.failure is not None
        assert channel.acked == acked


async def _refuse_text(database: Database) -> None:
    def run(connection: Any) -> None:
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON acp_log WHEN NEW.kind = 'text' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )

    await on_writer(database, run)


async def test_clients_attaching_anywhere_see_same_log_once(tmp_path: Path) -> None:
    """A client that loads in the middle of a turn gets the log so far and then the live tail."""
    async with rig(tmp_path) as r:
        session = await r.session()
        chance = random.Random(7)
        clients: list[Client] = []
        running = [await r.prompt(session, "say 200") for _ in range(5)]
        while not all(turn.ended.done() for turn in running):
            if len(clients) < 25:
                clients.append(Client())
                session.subscribe(clients[-1], 0)
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
        for subscription in session.subscriptions:
            await subscription.reached(session.last_seq)
        everything = list(range(1, 1 + 1 + 5 * 201))
        assert await r.seqs(session) == everything
        for client in clients:
            assert client.places == everything
            assert client.text == "".join(f"{at} " for at in range(200)) * 5


async def test_author_is_not_shown_own_message_others_are(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        author, other = Client(), Client()
        own = session.subscribe(author, 0)
        session.subscribe(other, 0)
        turn = Turn(str(uuid4()), session.id, [{"type": "text", "text": "say 1"}])
        await asyncio.wait_for((await session.accept(turn, own)).ended, 30)
        for subscription in session.subscriptions:
            await subscription.reached(session.last_seq)
        assert not [one for one in author.shown if isinstance(one.event, UserMessage)]
        assert [one.seq for one in other.shown if isinstance(one.event, UserMessage)] == [1]


async def test_conversation_advanced_by_other_program_is_resumed_there(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        moved = str(uuid4())

        def run(connection: Any) -> None:
            connection.execute(
                "UPDATE conversations SET session_id = ? WHERE name = ?",
                (moved, session.record.conversation_name),
            )

        await on_writer(r.database, run)
        assert await r.sessions.find(session.id) is session
        await r.run(session, "say 1")
        assert r.launcher.launched[0].spec.resume_session_id == moved


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What the next commits of frames fail with."""
    errors: list[Exception] = []
    record = SessionJournal.record

    async def fail(self: SessionJournal, *given: Any, **named: Any) -> list[Logged]:
        if errors:
            raise errors.pop(0)
        return await record(self, *given, **named)

    monkeypatch.setattr(SessionJournal, "record", fail)
    return errors


async def test_spool_failing_to_record_is_retried_before_prompt(
    tmp_path: Path, failing: list[Exception]
) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        spool: list[list[FromWorker]] = [
            [channel.event(turn.turn_id, "kept"), channel.ended(turn.turn_id)]
        ]
        r.launcher.spools[channel.spec.cookie] = list(spool)
        failing.append(sqlite3.OperationalError("database or disk is full"))
        channel.kill()
        await eventually(lambda: r.launcher.kept == [channel.spec.cookie])
        assert await r.database.read("SELECT epoch, acked_frame FROM acp_workers") == [
            (1, channel.acked)
        ]
        r.launcher.spools[channel.spec.cookie] = list(spool)
        assert (await r.run(session, "say 1")).state == "done"
        logged = await SessionJournal(r.database).read(session.id, 0, 100)
        assert [one.event.text for one in logged if isinstance(one.event, Text)] == ["kept", "0 "]


async def test_slow_commit_does_not_kill_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committing = asyncio.Event()
    record = SessionJournal.record

    async def slow(self: SessionJournal, *given: Any, **named: Any) -> list[Logged]:
        await committing.wait()
        return await record(self, *given, **named)

    monkeypatch.setattr(SessionJournal, "record", slow)
    async with rig(tmp_path, stall_timeout=0.4) as r:
        turn = asyncio.ensure_future(r.run(await r.session(), "say 3"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(turn), 1.0)
        assert r.launcher.live
        committing.set()
        assert (await turn).state == "done"
