"""What a session promises about its turns, on the twins of the journal and of the workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pykoclaw_acp.channel.frames import Numbered
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import StaleEpoch, StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.turns import Outcome, Turn, TurnState, TurnTimes
from pykoclaw_acp.sessions.catalogue import ListSettings
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from tests.integration.journals import end, prompt, said
from tests.twins.journal import MemoryJournal
from tests.twins.workers import MemoryWorkers
from tests.waiting import eventually, not_within
from tests.workers import OPTIONS


class World:
    """The sessions of a daemon, with nothing real below them."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.database = self.journal.database
        self.workers = MemoryWorkers(self.database)
        self.sessions = Sessions(
            self.journal,
            OPTIONS,
            Settings().fill(TurnTimes, cancel_grace=0.01),
            Settings().fill(ListSettings),
        )
        self.sessions.workers = self.workers

    async def running(self) -> tuple[Session, Turn]:
        """A session, and its turn whose prompt has left."""
        session = await self.sessions.create("/", (), ())
        turn = prompt(session.id, "first")
        await session.submit(turn)
        await eventually(lambda: self.workers.prompted)
        return session, turn

    async def frames(self, session: Session, *frames: Numbered) -> None:
        """The session's worker says this."""
        await self.sessions.worker_events.frames(session.id, frames[0].epoch, frames)

    def state(self, turn: Turn) -> TurnState:
        return self.database.turns[turn.turn_id].state

    def text(self, session: Session) -> str:
        return "".join(getattr(one.event, "text", "") for one in self.database.logs[session.id])


async def outcome(turn: Turn) -> Outcome:
    return (await asyncio.wait_for(turn.ended, 60))[0]


async def test_prompt_is_sent_once_journaled_as_dispatched() -> None:
    w = World()
    session, turn = await w.running()
    assert w.workers.prompted == [(turn.turn_id, TurnState.DISPATCHED)]
    await w.frames(session, *said(1, 1, "first", "Hi."), end(1, 2, "first"))
    assert (await outcome(turn)).state == TurnState.DONE
    assert w.text(session) == "Hi."


async def test_turn_end_is_told_once_journaled() -> None:
    w = World()
    session, turn = await w.running()
    w.database.condition.failed(DatabaseState.LOCKED, "Another program keeps it locked.")
    saying = asyncio.ensure_future(w.frames(session, end(1, 1, "first")))
    await not_within(turn.ended.done)
    w.database.condition.recovered()
    assert (await outcome(turn)).state == TurnState.DONE == w.state(turn)
    await saying


async def test_turns_run_one_after_the_other() -> None:
    w = World()
    session, first = await w.running()
    second = prompt(session.id, "second")
    await session.submit(second)
    assert w.state(second) == TurnState.QUEUED
    await w.frames(session, end(1, 1, "first"))
    await eventually(lambda: len(w.workers.prompted) == 2)
    assert first.ended.done()
    await w.frames(session, end(1, 2, "second"))
    assert (await outcome(second)).state == TurnState.DONE


@pytest.mark.parametrize(
    ("texts", "state"), [((), TurnState.UNKNOWN), (("Partly",), TurnState.FAILED)]
)
async def test_turn_of_lost_worker_is_not_sent_again(
    texts: Sequence[str], state: TurnState
) -> None:
    w = World()
    session, turn = await w.running()
    if texts:
        await w.frames(session, *said(1, 1, "first", *texts))
    w.workers.retire(session.id)
    await w.sessions.worker_events.lost(
        session.id, 1, ErrorKind.WORKER_LOST, "Claude's worker process died."
    )
    assert (await outcome(turn)).state == state == w.state(turn)
    await session.idle()
    await session.submit(following := prompt(session.id, "next"))
    await eventually(lambda: len(w.workers.prompted) > 1)
    await w.frames(session, end(2, 1, "next"))
    assert (await outcome(following)).state == TurnState.DONE
    assert [turn_id for turn_id, _ in w.workers.prompted] == ["first", "next"]
    assert "worker process died" in w.text(session)


async def test_a_cancelled_turn_that_waits_never_leaves() -> None:
    w = World()
    session, _ = await w.running()
    second = prompt(session.id, "second")
    await session.submit(second)
    session.cancel(second)
    assert (await outcome(second)).state == TurnState.CANCELLED == w.state(second)
    await w.frames(session, end(1, 1, "first"))
    await session.idle()
    assert [turn_id for turn_id, _ in w.workers.prompted] == ["first"]


async def test_a_worker_that_does_not_stop_is_killed() -> None:
    w = World()
    session, turn = await w.running()
    session.cancel(turn)
    await eventually(lambda: w.workers.killed)
    assert w.workers.interrupted == ["first"]
    await w.sessions.worker_events.lost(
        session.id, 1, ErrorKind.WORKER_LOST, "Claude's worker process died."
    )
    assert (await outcome(turn)).state == TurnState.CANCELLED


async def test_frames_of_an_older_worker_change_nothing() -> None:
    w = World()
    session, turn = await w.running()
    w.database.next_epoch(session.id)
    with pytest.raises(StaleEpoch):
        await w.frames(session, *said(1, 1, "first", "late"), end(1, 2, "first"))
    assert not turn.ended.done()
    assert w.text(session) == ""


async def test_a_prompt_that_cannot_be_stored_is_refused() -> None:
    w = World()
    session = await w.sessions.create("/", (), ())
    w.database.condition.failed(DatabaseState.BLOCKED, "The disk is full.")
    with pytest.raises(StoreUnavailable):
        await session.submit(prompt(session.id))
    w.database.condition.recovered()
    await session.submit(again := prompt(session.id, "again"))
    await eventually(lambda: w.workers.prompted)
    assert [turn_id for turn_id, _ in w.workers.prompted] == [again.turn_id]
