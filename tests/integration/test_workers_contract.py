"""Contract of `pool.ports.WorkerStore`: each launch has an epoch of its own, and none is given while an
older worker has a row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pykoclaw_acp.channel.processes import WorkerHandle, WorkerProcess, WorkerRecord
from pykoclaw_acp.errors import RowRefused, SpoolPending
from pykoclaw_acp.model.events import Text
from tests import workers
from tests.integration.journals import BOTH, Subject, said, subject

INSTANCE = Path("instance")
HANDLE = WorkerHandle(WorkerProcess(4711, 2**40, "boot"), "/run/instance/session/socket")


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def launched(s: Subject, session: str, epoch: int) -> WorkerRecord:
    """A worker that has a row, whose frames are yet to come."""
    spec = workers.spec(INSTANCE, session=session, epoch=epoch)
    await s.workers.worker_started(spec, HANDLE)
    return WorkerRecord(spec.identity, HANDLE, 0, spec.options.workspace)


async def test_each_session_counts_its_own_epochs(s: Subject) -> None:
    one, two = await s.session(), await s.session("two")
    assert [await s.workers.next_epoch(name) for name in (one, one, two)] == [1, 2, 1]
    with pytest.raises(SpoolPending):
        await s.workers.next_epoch("nothing")


async def test_no_epoch_while_older_worker_has_row(s: Subject) -> None:
    session, other = await s.session(), await s.session("two")
    epoch = await s.workers.next_epoch(session)
    row = await launched(s, session, epoch)
    for _ in range(2):
        with pytest.raises(SpoolPending):
            await s.workers.next_epoch(session)
    assert await s.workers.next_epoch(other) == 1
    assert await s.workers.left(session) == [row]
    await s.workers.worker_gone(session, epoch)
    await s.workers.worker_gone(session, epoch)
    assert await s.workers.left(session) == []
    assert await s.workers.next_epoch(session) == epoch + 1


async def test_workers_of_session_are_left_oldest_first(s: Subject) -> None:
    session = await s.session()
    rows = [await launched(s, session, epoch) for epoch in (2, 1)]
    assert await s.workers.left(session) == rows[::-1]
    assert await s.workers.left("nothing") == []
    with pytest.raises(RowRefused):
        await launched(s, session, 2)
    await s.workers.worker_gone(session, 1)
    assert await s.workers.left(session) == rows[:1]


async def test_row_says_what_is_committed_and_outdated(s: Subject) -> None:
    session = await s.session()
    row = await launched(s, session, await s.workers.next_epoch(session))
    await s.journal.record(session, row.epoch, said(row.epoch, 1, "turn", "a", "b"), {})
    assert await s.workers.left(session) == [replace(row, acked_frame=2)]
    await s.journal.append(session, [Text("m", "of no worker")])
    for spare, spared in ((True, True), (False, False), (True, False)):
        await s.journal.outdate_worker(session, spare=spare)
        expected = replace(row, acked_frame=2, outdated=True, spared=spared)
        assert await s.workers.left(session) == [expected]
