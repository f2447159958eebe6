"""Contract of `sessions.ports.Store`: when the database can be written, when not, and once it is
closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykoclaw_acp.errors import StoreClosed, StoreUnavailable
from pykoclaw_acp.model.branches import Memory, RewindPoint, Rewound
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.turns import SessionRecord
from tests.integration.journals import BOTH, CANCELLED, Subject, prompt, subject
from tests.integration.programs import TASK
from tests.waiting import not_within

BEFORE_PROBE = 0.01  # s; the real store finds out by itself soon that it can be written


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def test_requests_are_refused_while_it_cannot_be_written(s: Subject) -> None:
    session = await s.session()
    s.condition.failed(DatabaseState.BLOCKED, "The disk is full.")
    for refused in (
        s.journal.create(SessionRecord("two", "acp-two", "/")),
        s.journal.accept(prompt(session)),
        s.journal.mark_closed(session),
        s.journal.delete(session),
        s.journal.append(session, [Text("m", "lost")]),
        s.journal.set_away_policy(session, None),
        s.journal.note_time(),
        s.deliveries.give_up("d1", "Busy."),
        s.tasks.refuse(TASK, "No such time."),
        s.restoring.begin_restoring(SessionRecord("two", "acp-two", "/")),
        s.found.forget_folder("/claude"),
    ):
        with pytest.raises(StoreUnavailable, match="The disk is full"):
            await refused
    with pytest.raises(StoreUnavailable):
        s.journal.require_writable()
    assert await s.journal.find(session) is not None, "reading goes on"
    s.condition.recovered()
    s.journal.require_writable()
    assert await s.journal.find("two") is None
    assert await s.texts(session) == ""


async def test_events_wait_until_store_is_writable(s: Subject) -> None:
    session = await s.session()
    record = await s.journal.find(session)
    assert record is not None
    turn = prompt(session)
    await s.journal.accept(turn)
    point, done = RewindPoint(turn.turn_id, 1, 0, Memory(None)), Rewound(turn.turn_id, 1, [], 0, 0)
    troubles = s.journal.troubles
    s.condition.failed(DatabaseState.LOCKED, "Another program keeps it locked.")
    waiting = [
        asyncio.ensure_future(s.journal.append(session, [Text("m", "happened")], patient=True)),
        asyncio.ensure_future(s.journal.finish(session, turn.turn_id, CANCELLED, [])),
        asyncio.ensure_future(
            s.branches.rewind(session, point, [], done, note=None, request_key=None)
        ),
        asyncio.ensure_future(s.journal.reopen(record)),
        asyncio.ensure_future(s.journal.writable()),
        asyncio.ensure_future(s.workers.worker_gone(session, 1)),
        asyncio.ensure_future(s.notices.settle_until(0)),
        asyncio.ensure_future(s.restoring.give_up("two")),
    ]
    await not_within(lambda: any(one.done() for one in waiting), BEFORE_PROBE)
    assert s.journal.troubles == troubles + 1
    s.condition.recovered()
    await asyncio.gather(*waiting)
    assert await s.texts(session) == "happened"


async def test_closed_store_neither_reads_nor_writes(s: Subject) -> None:
    session = await s.session()
    s.condition.failed(DatabaseState.LOCKED, "Another program keeps it locked.")
    waiting = asyncio.ensure_future(s.journal.append(session, [Text("m", "late")], patient=True))
    await not_within(waiting.done, BEFORE_PROBE)
    await s.close()
    with pytest.raises(StoreClosed):
        await waiting
    with pytest.raises(StoreClosed):
        await s.journal.find(session)
    with pytest.raises(StoreClosed):
        await s.journal.accept(prompt(session))
    for refused in (
        s.branches.rewound("f:1"),
        s.deliveries.waiting(),
        s.tasks.due(1),
        s.notices.begin(),
        s.found.transcript_folders(),
        s.workers.left(session),
        s.restoring.give_up("two"),
    ):
        with pytest.raises(StoreClosed):
            await refused


async def test_its_clock_never_goes_back(s: Subject) -> None:
    first = s.journal.clock.now()
    await s.journal.note_time()
    assert s.journal.clock.now() >= first
