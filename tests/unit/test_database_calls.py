"""Calls of a worker to the database: what it says when there is no daemon, an old one, or none any
more.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from pykoclaw_acp.channel.database import (
    DatabaseAnswer,
    DatabaseCall,
    SqlError,
    SqlResult,
    SqlStatement,
    from_parameters,
    from_rows,
    to_parameters,
    to_rows,
)
from pykoclaw_acp.channel.decoding import decode_from_worker
from pykoclaw_acp.channel.frames import (
    PROTOCOL,
    Hello,
    Skipped,
    ToWorker,
    decode_to_worker,
    encode,
)
from pykoclaw_acp.pool import callers
from pykoclaw_acp.pool.callers import Caller
from pykoclaw_acp.pool.inbox import Inbox
from pykoclaw_acp.pool.occupation import Occupation
from pykoclaw_acp.worker import database_calls
from pykoclaw_acp.worker.database_calls import DatabaseCalls, DatabaseFailed
from tests.waiting import eventually

SELECT = SqlStatement("SELECT 1")


def hello(*, database: bool = True) -> Hello:
    return Hello(epoch=1, after=0, protocol=PROTOCOL, database=database)


class Line:
    """The calls of a worker, and what it has sent."""

    def __init__(self) -> None:
        self.sent: list[DatabaseCall] = []
        self.calls = DatabaseCalls(1, self._send)

    async def _send(self, call: DatabaseCall) -> None:
        self.sent.append(call)

    async def begun(self) -> asyncio.Task[list[SqlResult]]:
        """A call that is on its way."""
        before = len(self.sent)
        task = asyncio.ensure_future(self.calls.run(SELECT))
        await eventually(lambda: len(self.sent) > before)
        return task


async def test_each_call_gets_its_own_answer() -> None:
    line = Line()
    line.calls.attach(hello())
    one, two = await line.begun(), await line.begun()
    numbers = [call.call for call in line.sent]
    line.calls.answer(DatabaseAnswer(epoch=1, call=numbers[1], results=[SqlResult(rowcount=2)]))
    line.calls.answer(
        DatabaseAnswer(epoch=1, call=numbers[0], error=SqlError("IntegrityError", "twice"))
    )
    line.calls.answer(DatabaseAnswer(epoch=1, call=99))
    assert (await two)[0].rowcount == 2
    with pytest.raises(DatabaseFailed, match="twice") as failed:
        await one
    assert failed.value.kind == "IntegrityError"


async def test_call_waits_for_daemon_but_not_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line()
    waiting = asyncio.ensure_future(line.calls.run(SELECT))
    line.calls.attach(hello())
    await eventually(lambda: bool(line.sent))
    waiting.cancel()
    line.calls.detach()
    monkeypatch.setattr(database_calls, "DAEMON_WAIT", 0.01)
    with pytest.raises(DatabaseFailed, match="There is no daemon"):
        await line.calls.run(SELECT)
    assert len(line.sent) == 1


async def test_earlier_daemon_gets_nothing_fatal_to_worker() -> None:
    line = Line()
    line.calls.attach(hello(database=False))
    with pytest.raises(DatabaseFailed, match="earlier version"):
        await line.calls.run(SELECT)
    assert line.sent == []


async def test_lost_answer_may_have_run_and_is_unrepeated() -> None:
    line = Line()
    line.calls.attach(hello())
    call = await line.begun()
    line.calls.detach()
    line.calls.attach(hello())
    with pytest.raises(DatabaseFailed, match="may have run, or not, and was not repeated"):
        await call
    assert len(line.sent) == 1


async def test_missing_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_calls, "ANSWER_WAIT", 0.01)
    line = Line()
    line.calls.attach(hello())
    with pytest.raises(DatabaseFailed, match="may still run"):
        await line.calls.run(SELECT)


async def test_worker_has_limited_calls_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "MOST", 2)
    sent: list[ToWorker] = []
    going_on = asyncio.Event()

    async def take(call: DatabaseCall) -> DatabaseAnswer:
        await going_on.wait()
        return DatabaseAnswer(epoch=call.epoch, call=call.call)

    async def send(frame: ToWorker) -> None:
        sent.append(frame)

    caller = Caller(SimpleNamespace(take=take), send)
    for number in range(3):
        caller.take(DatabaseCall(epoch=1, call=number))
    (refused,) = await eventually(lambda: sent)
    assert isinstance(refused, DatabaseAnswer)
    assert refused.call == 2
    assert refused.error is not None
    going_on.set()
    await eventually(lambda: len(sent) == 3)


def test_frames_pass_the_channel() -> None:
    given = [None, 1, 1.5, float("-inf"), "ü", b"\xff"]
    call = DatabaseCall(epoch=1, call=2, statements=[SqlStatement("x", to_parameters(given))])
    read = decode_from_worker(encode(call))
    assert isinstance(read, DatabaseCall)
    assert from_parameters(read.statements[0].parameters) == given
    answer = DatabaseAnswer(epoch=1, call=2, results=[SqlResult(rows=to_rows([tuple(given)]))])
    back = decode_to_worker(encode(answer))
    assert isinstance(back, DatabaseAnswer)
    assert from_rows(back.results[0].rows) == [tuple(given)]
    with pytest.raises(ValueError, match="not a value"):
        from_parameters([{"b64": 1}])


def test_later_versions_frame_without_number_is_skipped() -> None:
    later = decode_from_worker(b'{"frame":"of_a_later_version","epoch":1,"call":7}')
    assert later == Skipped(epoch=1)
    assert Inbox(1, 0, Occupation(lambda: None)).sort([later]) == []
    inbox = Inbox(1, 0, Occupation(lambda: None))
    assert inbox.sort([Skipped(epoch=1, n=1)]) == [Skipped(epoch=1, n=1)]
    assert inbox.foreign
