"""A daemon dies or is replaced, and the next one goes on with its workers, on workers in memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from pykoclaw_acp.channel.choosing import SetConfig, SetMode, SetModel
from pykoclaw_acp.channel.frames import (
    PROTOCOL,
    EventFrame,
    FromWorker,
    Interrupt,
    Lost,
    Prompt,
    Skipped,
    encode,
)
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.channel.requests import MakeTitle, StopSubagents, StopTask, WorkerReply
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import InvalidRequest
from pykoclaw_acp.model.choices import Config
from pykoclaw_acp.model.events import Failure, ModeChanged, ToolEnded, ToolStarted, UserMessage
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.limit_waits import LimitWait
from pykoclaw_acp.model.permissions import PermissionRequest, RequestOutcome, Settlement
from pykoclaw_acp.model.turns import STARTED, PromptKeys, Turn
from pykoclaw_acp.pool import leftovers
from pykoclaw_acp.sessions import contents, prompting
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import events, limit_waits, permissions
from pykoclaw_acp.store.database import Statement, Unit
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.system import clock, processes
from tests.integration.adopting import (
    _write_spool,
    alive,
    asks,
    daemon,
    die,
    ended,
    found,
    killed,
    recovered,
    texts,
)
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.queueing import execute
from tests.integration.rig import Client, Rig, claim_all, hanging, rig, unreadable
from tests.waiting import eventually, not_within

__all__ = ["alive"]


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[WorkerProcess]:
    """A process with the cookie of another worker, in whose tool its fork server was started."""
    process = subprocess.Popen(
        ["sleep", "1000"], env={**os.environ, "PYKOCLAW_WORKER": f"{tmp_path.name}:other:1"}
    )
    started = processes.start_time(process.pid)
    assert started is not None
    yield WorkerProcess(process.pid, started, processes.boot_id())
    process.kill()
    process.wait()


async def test_turn_continues_under_next_daemon_exactly_once(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        channel.say(channel.event(turn.turn_id, "one "))
        await eventually(lambda: channel.acked == channel.last)
    channel.say(channel.event(turn.turn_id, "two "))
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        client = Client()
        again.subscribe(client, 0)
        channel.say(channel.event(turn.turn_id, "three"), channel.ended(turn.turn_id))
        assert (await ended(again)).state == "done"
        await again.subscriptions[0].reached(again.last_seq)
        assert client.text == "one two three"
        assert client.places == list(range(1, again.last_seq + 1))
        assert channel.prompts == ["hang"]
        assert (await second.run(again, "say 1")).state == "done"
        assert len(second.launcher.launched) == 1


@pytest.mark.parametrize("background", [False, True])
async def test_turn_ended_by_worker_without_trace_is_over(
    tmp_path: Path, alive: WorkerProcess, background: bool
) -> None:
    """The frame that ended it was in a damaged spool."""
    async with killed(tmp_path, alive) as first:
        if background:
            turn_id = "own"
            session, channel = await own_turn(first)
        else:
            session, turn, channel = await hanging(first)
            turn_id = turn.turn_id
    channel.running = []
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)

        async def state() -> str:
            return (await second.states())[turn_id]

        await eventually(lambda: not again.background and not again.turns)
        assert await state() == "unknown"
        said = await SessionJournal(second.database).read(session.id, 0, 100)
        assert isinstance(said[-1].event, Failure)
        assert "how it ended is not known" in said[-1].event.text
        assert (await second.run(again, "say 1")).state == "done"
        assert len(second.launcher.launched) == 1


@pytest.mark.parametrize("before", [False, True])
async def test_own_turn_begun_behind_greeting_goes_on(
    tmp_path: Path, alive: WorkerProcess, before: bool
) -> None:
    """The worker says what runs, then what came since; `before`: the daemon lacks earlier reports."""
    async with killed(tmp_path, alive) as first:
        session = await first.session()
        await first.run(session, "say 1")
        channel = first.launcher.launched[0]
        await eventually(lambda: channel.acked == channel.last)
    channel.running = []
    if before:
        channel.begin_own("early")
        channel.say(channel.ended("early"))
        channel.upto = channel.last
    channel.begin_own("own")
    channel.background(1)
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        await eventually(lambda: second.pool.steers(session.id) and channel.acked == channel.last)
        assert again.background
        channel.say(channel.ended("own"))
        await eventually(lambda: not again.background)
        assert (await second.states())["own"] == "done"


async def own_turn(r: Rig) -> tuple[Session, MemoryChannel]:
    """A session in which only a turn runs that Claude began by itself, as `own`, and its worker."""
    session = await r.session()
    await r.run(session, "say 1")
    channel = r.launcher.launched[0]
    channel.say(channel.started("own", background=True))
    await eventually(lambda: session.background)
    return session, channel


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("attached", [False, True])
async def test_cancel_after_a_kill_stops_claudes_own_turn(
    tmp_path: Path, alive: WorkerProcess, again: bool, attached: bool
) -> None:
    """`again`: the front sends it once more, from the time without a daemon."""
    async with killed(tmp_path, alive) as first:
        session, channel = await own_turn(first)
    async with daemon(tmp_path, first) as second:
        if attached:
            await eventually(lambda: second.pool.steers(session.id))
        uptime = clock.uptime() if again else None
        kept = await prompting.cancel(second.sessions, session.id, uptime=uptime)
        await asyncio.wait(kept)
        assert any(isinstance(one, Interrupt) for one in channel.got), "and so it is confirmed"
        again_there = await found(second, session)
        await eventually(lambda: not again_there.background)
        assert (await second.states())["own"] == "cancelled"


async def test_cancel_that_comes_again_stops_nothing_later(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    """A front of an earlier version sends it to each daemon while any older prompt is unanswered."""
    async with killed(tmp_path, alive) as first:
        session, _ = await own_turn(first)
        (began,) = await first.database.read("SELECT MAX(sent_clock) FROM acp_turns")
    async with daemon(tmp_path, first) as second:
        sent_at = began[0] - second.sessions.clock.at(0) - 1
        await asyncio.wait(await prompting.cancel(second.sessions, session.id, uptime=sent_at))
        assert (await found(second, session)).background
        assert (await second.states())["own"] == "running"


@pytest.mark.parametrize("front", ["cancelling", "other"])
async def test_cancel_that_comes_again_ends_no_later_wait(tmp_path: Path, front: str) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        sent = r.sessions.clock.now()
        turn = Turn("limited", session.id, [{"type": "text", "text": "say 1"}])
        turn.keys, turn.sent = PromptKeys(request=f"{front}:7"), sent
        await session.submit(turn)
        await turn.ended
        wait = LimitWait(session.id, "limited", 1)
        await r.database.commit(Unit(statements=(limit_waits.add(wait),)))

        async def cancel(number: int, moment: int) -> list[LimitWait]:
            uptime = clock.uptime() + moment
            kept = await prompting.cancel(
                r.sessions, session.id, uptime=uptime, request_key=f"cancelling:{number}"
            )
            if kept:
                await asyncio.wait(kept)
            return await limit_waits.every(r.database)

        assert await cancel(6, -60_000) == [wait]
        assert await cancel(8, 0) == []


async def test_parked_request_of_claudes_own_turn_ends_it(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    """The daemon was killed before it could stop the turn."""
    async with killed(tmp_path, alive) as first:
        session, channel = await own_turn(first)
        await asks(session, channel, "own", "q1")
        channel.asks = ["q1"]
        await first.database.commit(Unit(statements=(permissions.park("q1"),)))
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        await eventually(lambda: not again.background)
        assert [one.turn_id for one in channel.got if isinstance(one, Interrupt)] == ["own"]
        (row,) = await second.sessions.requests.list_pending()
        assert row.policy == "parked"


@pytest.mark.parametrize("asked", [True, False])
async def test_parked_request_of_a_subagent_stops_it(
    tmp_path: Path, alive: WorkerProcess, asked: bool
) -> None:
    """Its turn has ended. `asked`: the daemon was killed before it could stop the subagent."""
    async with killed(tmp_path, alive) as first:
        session = await first.session()
        turn = await first.prompt(session, "say 1")
        await turn.ended
        channel = first.launcher.launched[0]
        channel.background(1)
        await asks(session, channel, turn.turn_id, "q1")
        channel.asks = ["q1"] if asked else []
        await first.database.commit(Unit(statements=(permissions.park("q1"),)))
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        await eventually(lambda: not asked or _stops(channel))
        await second.run(again, "say 1")
        assert bool(_stops(channel)) is asked
        (row,) = await second.sessions.requests.list_pending()
        assert row.policy == "parked"


def _stops(channel: MemoryChannel) -> list[str]:
    return [one.why for one in channel.got if isinstance(one, StopSubagents)]


@pytest.mark.parametrize("prompted", [False, True])
async def test_cancel_after_a_kill_stops_earlier_subagents(
    tmp_path: Path, alive: WorkerProcess, prompted: bool
) -> None:
    """`prompted`: those that there are may have begun after it."""
    async with killed(tmp_path, alive) as first:
        session = await first.session()
        await first.run(session, "say 1")
        channel = first.launcher.launched[0]
    async with daemon(tmp_path, first) as second:
        sent_at = clock.uptime()
        if prompted:
            await second.run(await found(second, session), "say 1")
        kept = await prompting.cancel(second.sessions, session.id, uptime=sent_at)
        await asyncio.wait(kept)
        stopped = any(isinstance(one, StopSubagents) for one in channel.got)
        assert stopped is not prompted


async def sent(channel: MemoryChannel, kind: type[MakeTitle | StopTask]) -> MakeTitle | StopTask:
    """The first frame of this kind that the worker gets."""
    frames = await eventually(lambda: [one for one in channel.got if isinstance(one, kind)])
    return frames[0]


async def test_reply_to_earlier_daemons_request_is_dropped(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        naming = asyncio.create_task(session.requests.make_title("words"))
        asked = await sent(channel, MakeTitle)
        naming.cancel()
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        await eventually(lambda: second.pool.steers(session.id))
        stopping = asyncio.create_task(again.requests.stop_task("call"))
        stop = await sent(channel, StopTask)
        channel.say(
            WorkerReply(epoch=asked.epoch, request=asked.request, result={"title": "Words"}),
            channel.ended(turn.turn_id),
        )
        await ended(again)
        assert not stopping.done()
        channel.say(WorkerReply(epoch=stop.epoch, request=stop.request, error="It has ended."))
        with pytest.raises(InvalidRequest, match="It has ended"):
            await stopping


@pytest.mark.parametrize("lives", [True, False])
async def test_request_waits_for_adopted_workers_answer(
    tmp_path: Path, alive: WorkerProcess, lives: bool
) -> None:
    """Until then nobody knows what it can do."""
    async with killed(tmp_path, alive) as first:
        session, _, channel = await hanging(first)
    channel.deaf = True
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        assert not second.pool.steers(session.id)
        stopping = asyncio.create_task(again.requests.stop_task("call"))
        await not_within(stopping.done)
        if not lives:
            channel.kill()
            with pytest.raises(InvalidRequest, match="Nothing runs"):
                await stopping
            second.launcher.slow = True  # the next one is not ready
            await second.prompt(again, "hang")
            await eventually(lambda: len(second.launcher.live) == 1)
            stopping = asyncio.create_task(again.requests.stop_task("call"))
            await not_within(stopping.done)
            second.launcher.live[0].ready()
            with pytest.raises(InvalidRequest, match="Nothing runs"):
                await stopping
            return
        channel.deaf = False
        channel.ready()
        stop = await sent(channel, StopTask)
        channel.say(WorkerReply(epoch=channel.spec.epoch, request=stop.request))
        await stopping


async def test_committed_unacknowledged_frames_are_not_taken_twice(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        channel.deaf = True  # acknowledgements are lost on the way
        channel.say(channel.event(turn.turn_id, "once"))
        await eventually(lambda: session.last_seq > 2)
    channel.deaf = False
    async with daemon(tmp_path, first) as second:
        channel.say(channel.ended(turn.turn_id))
        assert (await ended(await found(second, session))).state == "done"
        assert await texts(second, session) == ["once"]


async def test_only_prompt_that_never_left_is_sent_again(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session = await first.session()
        await first.run(session, "say 1")
        channel = first.launcher.launched[0]
        channel.deaf = True  # the daemon dies between the commit and the sending
        turn = await first.prompt(session, "say 2")
        await eventually(lambda: turn.state == "dispatched")
    channel.deaf = False
    async with daemon(tmp_path, first) as second:
        assert (await ended(await found(second, session))).state == "done"
        assert channel.prompts == ["say 1", "say 2"]
        assert await texts(second, session) == ["0 ", "0 1 "]
        users = await SessionJournal(second.database).read(session.id, 0, 100)
        assert len([one for one in users if isinstance(one.event, UserMessage)]) == 2


async def test_worker_goes_on_without_unreadable_prompt(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with killed(tmp_path, alive) as first:
        session = await first.session()
        await first.run(session, "say 1")
        channel = first.launcher.launched[0]
        channel.deaf = True  # the daemon dies between the commit and the sending
        turn = await first.prompt(session, "say 2")
        await eventually(lambda: turn.state == "dispatched")
    channel.deaf = False
    with monkeypatch.context() as patch:
        patch.setattr(contents, "whole", unreadable)
        async with daemon(tmp_path, first) as second:
            again = await found(second, session)
            assert (await ended(again)).state == "failed"
            patch.undo()
            assert (await second.run(again, "say 3")).state == "done"
            assert channel.prompts == ["say 1", "say 3"]


async def test_prompts_that_waited_are_run_in_their_order(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, running, channel = await hanging(first)
        for at in (2, 3):
            turn = await first.prompt(session, f"say {at}")
            await eventually(lambda turn=turn: turn in session.turns)  # type: ignore[misc]
        other = await first.session()
        first.launcher.slow = True
        await first.prompt(other, "say 4")
        await eventually(lambda: len(first.launcher.launched) == 2)
        first.launcher.launched[1].kill()
    first.launcher.slow = False
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        assert [turn.content[0]["text"] for turn in again.turns] == ["hang", "say 2", "say 3"]
        for one in second.sessions.live.values():
            claim_all(one)
        await eventually(lambda: channel.adopted)
        channel.say(channel.ended(running.turn_id))
        await eventually(lambda: not again.busy)
        assert channel.prompts == ["hang", "say 2", "say 3"]
        await eventually(lambda: second.launcher.launched[-1].prompts == ["say 4"])
        assert set((await second.states()).values()) == {"done"}


async def test_without_residence_nothing_goes_on(tmp_path: Path, alive: WorkerProcess) -> None:
    async with killed(tmp_path, alive) as first:
        session, running, _ = await hanging(first)
        waiting = await first.prompt(session, "say 2")
    async with daemon(tmp_path, first, resident=False) as second:
        assert processes.state(alive.pid) in ("Z", None)
        assert await second.states() == {running.turn_id: "unknown", waiting.turn_id: "cancelled"}
        assert not second.pool.is_live(session.id)


async def test_detached_daemon_commits_received_frames_and_keeps_workers(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    context = rig(tmp_path)
    first = await context.__aenter__()
    first.launcher.process = alive
    session, turn, channel = await hanging(first)
    waiting = await first.prompt(session, "say 1")
    channel.say(channel.event(turn.turn_id, "received"))
    await first.sessions.live.suspend()
    await first.pool.detach()
    assert await texts(first, session) == ["received"]
    assert await first.states() == {turn.turn_id: "running", waiting.turn_id: "queued"}
    assert channel in first.launcher.live
    assert not turn.ended.done()
    await context.__aexit__(None, None, None)
    async with daemon(tmp_path, first) as second:
        channel.say(channel.ended(turn.turn_id))
        again = await found(second, session)
        claim_all(again)
        await eventually(lambda: not again.busy)
        assert await texts(second, session) == ["received", "0 "]


GARBAGE = "CAST(x'ff' AS TEXT)"
DAMAGES = {
    "acp_sessions": (
        "acp_session_id", "additional_directories", "last_seq", "away_policy", "log_key", "mode",
        "model", "title", "conversation_name", "epoch",
    ),
    "acp_turns": ("turn_id", "acp_session_id", "position", "prompt", "client", "epoch"),
    "acp_workers": ("socket", "outdated", "epoch", "pid", "start_time", "boot_id", "acked_frame"),
    "acp_log": ("seq", "payload", "kind", "turn", "epoch", "frame"),
}  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("'garbage'", id="garbage", marks=pytest.mark.long),
        pytest.param(GARBAGE, id="bytes"),
    ],
)
@pytest.mark.parametrize(
    "table",
    [pytest.param(one, marks=pytest.mark.long if one == "acp_sessions" else ()) for one in DAMAGES],
)
async def test_damaged_row_of_a_session_stops_nobody(
    tmp_path: Path, alive: WorkerProcess, table: str, value: str
) -> None:
    first_data = tmp_path / "first"
    first_data.mkdir(mode=0o700)
    async with killed(first_data, alive) as first:
        other = await first.session()
        await first.run(other, "say 1")
        session, turn, _ = await hanging(first)
        await eventually(lambda: turn.state in STARTED)
        await first.prompt(session, "say 2")
    for column in DAMAGES[table]:
        data = tmp_path / column
        shutil.copytree(first_data, data)
        key = "log_key, seq" if table == "acp_log" else "rowid, 0"
        last = f"SELECT {key} FROM {table} ORDER BY 1 DESC, 2 DESC LIMIT 1"
        damage = f"UPDATE {table} SET {column} = {value} WHERE ({key}) = ({last})"
        with contextlib.suppress(sqlite3.IntegrityError):
            execute(data / "pykoclaw.db", damage)
        async with daemon(data) as second:
            assert (await second.run(await found(second, other), "say 3")).state == "done"
            assert "0 1 2 " in "".join(await texts(second, other))


@pytest.mark.parametrize("asked", [False, True])
async def test_turn_of_missing_session_stops_no_start(
    tmp_path: Path, alive: WorkerProcess, asked: bool
) -> None:
    async with killed(tmp_path, alive) as first:
        other = await first.session()
        await first.run(other, "say 1")
        session, turn, _ = await hanging(first)
        if asked:
            await first.journal.ask_cancel(turn.turn_id)
        delete = Statement("DELETE FROM acp_sessions WHERE acp_session_id = ?", (session.id,))
        await first.database.commit(Unit((delete,)))
    async with daemon(tmp_path) as second:
        state = (await second.states())[turn.turn_id]
        assert state in ("failed", "unknown", "cancelled")
        assert (state == "cancelled") == asked
        assert (await second.run(await found(second, other), "say 1")).state == "done"


async def test_worker_not_answering_new_daemon_is_lost(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, _, channel = await hanging(first)
    channel.deaf = True
    async with daemon(tmp_path, first, worker_start_timeout=0.1) as second:
        again = await found(second, session)
        assert (await ended(again)).state == "unknown"
        assert (await second.run(again, "say 1")).state == "done"


@pytest.mark.parametrize("end", ["it dies", "it stays silent", "it is of another version"])
async def test_prompt_passes_dead_idle_worker_to_new_one(
    tmp_path: Path, alive: WorkerProcess, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with killed(tmp_path, alive) as first:
        session = await first.session()
        await first.run(session, "say 1")
        (channel,) = first.launcher.launched
    channel.deaf = True
    silence = 0.1 if end == "it stays silent" else 60.0
    async with daemon(tmp_path, first, worker_start_timeout=silence) as second:
        again = await found(second, session)
        waiting = asyncio.Event()
        acquire = second.pool.acquire

        async def acquired(session_id: str, options: WorkerOptions) -> int:
            waiting.set()
            return await acquire(session_id, options)

        monkeypatch.setattr(second.pool, "acquire", acquired)
        turn = await second.prompt(again, "say 2")
        await waiting.wait()
        if end == "it dies":
            channel.kill()
        elif end == "it is of another version":
            channel.deaf, channel.protocol = False, PROTOCOL + 1
            channel.ready()
        assert (await asyncio.wait_for(turn.ended, 60))[0].state == "done"
        assert [one.prompts for one in second.launcher.launched] == [["say 1"], ["say 2"]]


async def test_prompt_whose_new_worker_dies_fails_with_reason(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    """Only a worker that was there before gets another attempt."""
    async with killed(tmp_path, alive) as first:
        session = await first.session()
        await first.run(session, "say 1")
        (channel,) = first.launcher.launched
    channel.deaf = True
    async with daemon(tmp_path, first) as second:
        second.launcher.refuse = True
        again = await found(second, session)
        turn = await second.prompt(again, "say 2")
        channel.kill()
        outcome = (await asyncio.wait_for(turn.ended, 60))[0]
        assert outcome.failure is not None
        assert "no memory" in outcome.failure.message
        for _ in range(2):
            await second.run(again, "say 3")
        limited = (await second.run(again, "say 3")).failure
        assert limited is not None
        assert limited.kind == "start_limit", "three starts were attempted"


async def test_other_version_worker_ends_turn_without_new_prompt(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    channel.protocol = PROTOCOL + 1
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        channel.say(channel.event(turn.turn_id, "known"))
        channel.last += 1
        channel.say(Skipped(epoch=channel.spec.epoch, n=channel.last))
        next_one = await second.prompt(again, "say 1")
        await eventually(lambda: channel.acked == channel.last)
        assert channel in second.launcher.live
        channel.say(channel.ended(turn.turn_id))
        assert (await asyncio.wait_for(next_one.ended, 30))[0].state == "done"
        assert channel.prompts == ["hang"]
        assert channel not in second.launcher.live
        assert await texts(second, session) == ["known", "0 "]


async def test_worker_saying_unknown_things_ends_its_turn(tmp_path: Path) -> None:
    """The program was upgraded beside this daemon, and the worker is of the new version."""
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        channel.last += 1
        channel.say(Skipped(epoch=channel.spec.epoch, n=channel.last))
        channel.say(channel.ended(turn.turn_id))
        outcome, _ = await asyncio.wait_for(turn.ended, 30)
        assert outcome.state == "done"
        assert (await r.run(session, "say 1")).state == "done"
        assert r.launcher.launched[-1] is not channel, "the next prompt has another worker"


async def test_question_reopens_and_answer_in_flight_arrives(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        await asks(session, channel, turn.turn_id, "answered", "open")
        channel.asks = ["answered", "open"]
        sql = (
            "UPDATE acp_permissions SET outcome = 'selected', option_id = 'allow_once'"
            " WHERE permission_id = 'answered'"
        )
        await first.database.commit(Unit(statements=(Statement(sql, rows=1),)))
    async with daemon(tmp_path, first) as second:
        (row,) = await second.sessions.requests.list_pending()
        assert row.request.ask_id == "open"
        await eventually(
            lambda: (
                [(one.ask_id, one.decision) for one in channel.answers]
                == [("answered", "allow_once")]
            )
        )
        await second.sessions.requests.decide("open", "allow_once", "somebody")
        await eventually(lambda: [one.ask_id for one in channel.answers] == ["answered", "open"])


async def test_answer_while_another_request_is_withdrawn_ends_nothing(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has neither of them open any more."""
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        await asks(session, channel, turn.turn_id, "q1", "q2")
    async with daemon(tmp_path, first) as second:
        settle, pending = second.journal.settle, ["q1", "q2"]

        async def answered_meanwhile(settled: Settlement, *answers: str | None) -> None:
            if settled.outcome == RequestOutcome.INTERRUPTED and len(pending) == 2:
                pending.remove(settled.permission_id)
                await second.sessions.requests.decide(pending[0], "allow_once", "somebody")
            await settle(settled, *answers)

        monkeypatch.setattr(second.journal, "settle", answered_meanwhile)
        await eventually(lambda: second.pool.steers(session.id) or channel.dead)
        channel.say(channel.ended(turn.turn_id))
        assert (await ended(await found(second, session))).state == "done"
        assert len(pending) == 1
        assert await second.sessions.requests.list_pending() == []


async def test_dead_workers_spool_determines_turn_end(tmp_path: Path, alive: WorkerProcess) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    lines = [channel.told[-1], channel.event(turn.turn_id, "spooled"), channel.ended(turn.turn_id)]
    spool = _write_spool(channel, b"".join(map(encode, lines)))
    await die(alive)
    for _ in range(2):  # the second start finds nothing more to do
        async with daemon(tmp_path) as after:
            assert await after.states() == {turn.turn_id: "done"}
            assert await texts(after, session) == ["spooled"]
            assert spool not in map(str, tmp_path.rglob("*"))  # noqa: ASYNC240
            assert await after.database.read("SELECT * FROM acp_workers") == []


@pytest.mark.parametrize("usage_limit", ["wait", "stop"])
async def test_limit_in_dead_workers_spool_is_waited_for(
    tmp_path: Path, alive: WorkerProcess, usage_limit: str
) -> None:
    """As the user has set it, though no daemon was there when the turn met the limit."""
    async with killed(tmp_path, alive) as first:
        _, turn, channel = await hanging(first)
    resets_at = int(time.time()) + 3600
    failure = TurnFailure(ErrorKind.USAGE_LIMIT, "The limit is reached.", resets_at=resets_at)
    end = replaced(channel.ended(turn.turn_id), stop_reason=None, error=failure)
    _write_spool(channel, encode(channel.told[-1]) + encode(end))
    await die(alive)
    async with rig(tmp_path) as after:
        await recovered(after, tmp_path, usage_limit=usage_limit)
        assert await after.states() == {turn.turn_id: "failed"}
        waits = await after.database.read("SELECT turn_id, due FROM acp_limit_waits")
        assert waits == ([(turn.turn_id, resets_at)] if usage_limit == "wait" else [])


@pytest.mark.parametrize("end", ["answer", "limit"])
async def test_cancelled_turn_stays_so_whatever_its_spool(
    tmp_path: Path, alive: WorkerProcess, end: str
) -> None:
    """The daemon died right after it had told the worker to stop, and Claude had ended the turn."""
    async with killed(tmp_path, alive) as first:
        _, turn, channel = await hanging(first)
        await SessionJournal(first.database).ask_cancel(turn.turn_id)
    ended = channel.ended(turn.turn_id)
    if end == "limit":
        resets_at = int(time.time()) + 3600
        failure = TurnFailure(ErrorKind.USAGE_LIMIT, "The limit is reached.", resets_at=resets_at)
        ended = replaced(ended, stop_reason=None, error=failure)
    _write_spool(channel, encode(channel.told[-1]) + encode(ended))
    await die(alive)
    async with rig(tmp_path) as after:
        await recovered(after, tmp_path, usage_limit="wait")
        assert await after.states() == {turn.turn_id: "cancelled"}
        assert await after.database.read("SELECT 1 FROM acp_limit_waits") == []


async def test_steered_prompt_dropped_in_spool_is_logged(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, host, channel = await hanging(first)
        content = [{"type": "text", "text": "Look out."}]
        turn = Turn("steered", session.id, content, steers=True)
        await session.submit(turn)
    ends = [channel.ended(one, "cancelled") for one in (turn.turn_id, host.turn_id)]
    _write_spool(channel, b"".join(map(encode, [channel.told[-1], *ends])))
    await die(alive)
    async with daemon(tmp_path) as after:
        again = await found(after, session)

        async def is_said() -> Any:
            return any("“Look out.”" in one for one in await texts(after, again))

        await eventually(is_said)


async def test_steered_prompt_said_in_spool_is_said_once(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is in another batch than its beginning."""
    monkeypatch.setattr(leftovers, "BATCH", 1)
    async with killed(tmp_path, alive) as first:
        session, host, channel = await hanging(first)
        content = [{"type": "text", "text": "Look out."}]
        turn = Turn("steered", session.id, content, steers=True)
        await session.submit(turn)
    begun = replaced(channel.started(turn.turn_id), into=host.turn_id)
    ends = [channel.ended(one, "cancelled") for one in (turn.turn_id, host.turn_id)]
    _write_spool(channel, b"".join(map(encode, [channel.told[-1], begun, *ends])))
    await die(alive)
    async with daemon(tmp_path) as after:
        again = await found(after, session)
        assert (await after.states())[turn.turn_id] == "cancelled"
        assert not any("“Look out.”" in one for one in await texts(after, again))


async def test_lost_turn_of_claudes_own_needs_no_repetition(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, _ = await own_turn(first)
    await die(alive)
    async with daemon(tmp_path) as after:
        assert (await after.states())["own"] == "failed"
        *_, last = await SessionJournal(after.database).read(session.id, 0, 100)
        assert isinstance(last.event, Failure)
        assert last.event.text.endswith("Claude was telling of background work that ended.")


@pytest.mark.parametrize("batch", [leftovers.BATCH, 1])
@pytest.mark.parametrize("begun", ["before", "in the spool"])
async def test_own_turns_limit_in_spool_is_waited_for(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch, begun: str, batch: int
) -> None:
    """Claude began the turn by itself: there is no prompt of it, but Claude can go on."""
    monkeypatch.setattr(leftovers, "BATCH", batch)
    async with killed(tmp_path, alive) as first:
        if begun == "before":
            session, channel = await own_turn(first)
        else:
            session = await first.session()
            await first.run(session, "say 1")
            channel = first.launcher.launched[0]
    told = channel.told[-1]
    unsent = [] if begun == "before" else [channel.started("own", background=True)]
    resets_at = int(time.time()) + 3600
    failure = TurnFailure(ErrorKind.USAGE_LIMIT, "The limit is reached.", resets_at=resets_at)
    end = replaced(channel.ended("own"), stop_reason=None, error=failure)
    _write_spool(channel, b"".join(map(encode, [told, *unsent, end])))
    await die(alive)
    async with rig(tmp_path) as after:
        await recovered(after, tmp_path, usage_limit="wait")
        assert (await after.states())["own"] == "failed"
        waits = await after.database.read("SELECT * FROM acp_limit_waits")
        assert waits == [(session.id, "own", resets_at, 0)]
        [(error,)] = await after.database.read("SELECT error FROM acp_turns WHERE turn_id = 'own'")
        assert "The session resumes by itself then" in error


async def test_dead_workers_last_words_are_shown_to_user(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    tool = ToolStarted("c", "Bash", "Bash: ls", "execute")
    started = EventFrame(
        epoch=channel.spec.epoch, n=channel.last + 1, turn_id=turn.turn_id, event=tool
    )
    _write_spool(
        channel,
        encode(started)
        + encode(Lost(epoch=1, kind=ErrorKind.ORPHANED, message="No daemon came back.")),
    )
    await die(alive)
    async with daemon(tmp_path) as after:
        assert await after.states() == {turn.turn_id: "failed"}
        events = [
            one.event for one in await SessionJournal(after.database).read(session.id, 0, 100)
        ]
        assert isinstance(events[-1], Failure)
        assert events[-1].error_kind == "orphaned"
        assert "No daemon came back." in events[-1].text
        why = "Cut off before its end. No daemon came back."
        assert ToolEnded("c", "failed", reason=why) in events


async def test_worker_dying_after_adoption_leaves_spool_to_daemon(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        told = channel.told[-1]
        frames: list[FromWorker] = [
            channel.event(turn.turn_id, "not sent any more"),
            channel.ended(turn.turn_id),
        ]
        r.launcher.spools[channel.spec.cookie] = [[told, *frames]]
        channel.kill()
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "done"
        assert await texts(r, session) == ["not sent any more"]


async def test_adopted_worker_is_spared_whatever_its_environment(
    tmp_path: Path, marked: WorkerProcess
) -> None:
    async with killed(tmp_path, marked) as first:
        session, turn, channel = await hanging(first)
    async with daemon(tmp_path, first) as second:
        assert processes.state(marked.pid) == "S"
        channel.say(channel.ended(turn.turn_id))
        assert (await ended(await found(second, session))).state == "done"


async def test_unreachable_worker_is_ended_before_reading_spool(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    first.launcher.spools[channel.spec.cookie] = [[channel.ended(turn.turn_id)]]
    first.launcher.unreachable = True
    async with daemon(tmp_path, first) as second:
        assert (await ended(await found(second, session))).state == "done"
        assert [one.process for one in second.launcher.ended] == [alive]


async def _choose(r: Rig, mode: str, model: str) -> None:
    await r.database.commit(
        Unit(statements=(Statement("UPDATE acp_sessions SET mode = ?, model = ?", (mode, model)),))
    )


async def test_undelivered_choice_reaches_worker_before_next_prompt(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session = await first.session()
        await first.run(session, "say 1")
        channel = first.launcher.launched[0]
        channel.deaf = True
        turn = await first.prompt(session, "say 2")
        await eventually(lambda: turn.state == "dispatched")
        await _choose(first, "plan", "haiku")
    channel.deaf, channel.mode, channel.model = False, "bypassPermissions", "opus"
    channel.got.clear()
    async with daemon(tmp_path, first) as second:
        assert (await ended(await found(second, session))).state == "done"
        sent = [frame for frame in channel.got if isinstance(frame, SetMode | SetModel | Prompt)]
        mode = SetMode(epoch=1, mode="plan", before_plan="")  # this daemon does not know it
        assert sent[:2] == [mode, SetModel(epoch=1, model="haiku")]
        assert isinstance(sent[2], Prompt)


@pytest.mark.parametrize("takes_it", [True, False])
async def test_effort_reaches_adopted_worker_or_next_one(
    tmp_path: Path, alive: WorkerProcess, *, takes_it: bool
) -> None:
    """A worker of a version that does not know SetConfig is replaced when its turn has ended."""
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    channel.config = Config() if takes_it else None
    channel.got.clear()
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        await eventually(lambda: takes_it or second.pool.steers(session.id))
        await again.choosing.choose("value", option=("effort", "high"))
        sent = [frame for frame in channel.got if isinstance(frame, SetConfig)]
        assert sent == ([SetConfig(epoch=1, config=Config("high"))] if takes_it else [])
        channel.say(channel.ended(turn.turn_id))
        assert (await ended(again)).state == "done"
        assert (await second.run(again, "say 1")).state == "done"
        launched = [one.spec.options.config for one in second.launcher.launched[1:]]
        assert launched == ([] if takes_it else [Config("high")])


async def test_changes_made_by_claude_are_not_reverted(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        await _choose(first, "plan", "haiku")
    channel.last += 1
    left_plan = EventFrame(epoch=1, n=channel.last, turn_id=None, event=ModeChanged("default"))
    channel.say(left_plan)
    channel.mode, channel.model, channel.upto = "default", "haiku", channel.last
    channel.got.clear()
    async with daemon(tmp_path, first) as second:
        channel.say(channel.ended(turn.turn_id))
        again = await found(second, session)
        assert (await ended(again)).state == "done"
        assert (await second.run(again, "say 1")).state == "done"
        assert not [frame for frame in channel.got if isinstance(frame, SetMode | SetModel)]
        assert again.options.permission_mode == "default"


async def test_question_without_living_worker_is_settled(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        channel.last += 1
        channel.say(
            PermissionRequest(
                epoch=1, n=channel.last, ask_id="of the dead", turn_id=turn.turn_id, tool_call_id="c", title="Run",
                tool_kind="execute",
            )
        )  # fmt: skip
        answered = "SELECT 1 FROM acp_permissions WHERE outcome IS NOT NULL"

        async def is_answered() -> bool:
            return bool(await first.database.read(answered))

        done: bool = await eventually(is_answered)  # by the rig's client
        assert done
        sql = "UPDATE acp_permissions SET outcome = NULL, policy = 'wait'"
        await first.database.commit(Unit(statements=(Statement(sql, rows=1),)))
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        await eventually(lambda: not again.permissions.pending_ids)
        assert await second.database.read("SELECT outcome FROM acp_permissions") == [
            ("interrupted",)
        ]


async def test_the_worker_of_a_deleted_session_is_ended(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        await hanging(first)
        await first.database.commit(
            Unit(statements=(Statement("UPDATE acp_sessions SET deleted_at = 1", ()),))
        )
    async with daemon(tmp_path, first) as second:
        assert processes.state(alive.pid) in ("Z", None)
        assert await second.database.read("SELECT * FROM acp_workers") == []


async def test_workers_are_found_with_different_state_directory(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    """As when one client has XDG_STATE_HOME and the other has not: the instance's directory has the
    same name.
    """
    elsewhere = tmp_path / "elsewhere" / tmp_path.name
    async with killed(tmp_path, alive) as first:
        _, turn, channel = await hanging(first)
    async with rig(tmp_path) as r:
        (left,) = (await recovered(r, elsewhere)).workers
        assert left.handle == channel.handle
    spool = _write_spool(
        channel,
        encode(channel.event(turn.turn_id, "spooled")) + encode(channel.ended(turn.turn_id)),
    )
    await die(alive)
    async with rig(tmp_path) as r:
        await recovered(r, elsewhere)
        assert await r.states() == {turn.turn_id: "done"}
        assert not Path(spool).exists()  # noqa: ASYNC240


async def test_only_the_workers_own_tool_calls_are_open(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        await r.pool.stop(session.id)
        await session.log.tell([ToolStarted("c", "Bash", "Bash: ls", "execute")])
        assert list(await events.open_tools(r.database, session.id, 1)) == ["c"]
        await r.run(session, "say 1")
        assert list(await events.open_tools(r.database, session.id, 2)) == []
