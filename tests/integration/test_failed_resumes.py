"""A resume that fails, or is given up, leaves the client its place in the session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.seams import CutMessage
from pykoclaw_acp.sessions.session import Session
from tests.integration.client_windows import Windows, seen, windows
from tests.integration.linked import INITIALIZE, new, words
from tests.waiting import eventually

OTHER = {**INITIALIZE, "clientInfo": {"name": "other", "version": "1"}}


async def left(w: Windows) -> Session:
    """A session that its client's process has left, and in which another client has gone on."""
    one = await w.open(1)
    session = await new(one)
    await one.result(2, "session/prompt", **words(session, "say 3"))
    await seen(w, one, one.seqs()[-1])
    await w.die(1, one)
    other = await w.open(2, initialize=OTHER)
    await other.result(1, "session/resume", sessionId=session, cwd="/")
    await other.result(2, "session/prompt", **words(session, "say 6"))
    return w.r.sessions.live[session]


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_resume_after_failed_one_shows_what_was_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Also if a process of the client made it that has ended since."""
    async with windows(tmp_path) as w:
        session = await left(w)
        reading = asyncio.Event()

        async def said_before(_: int) -> CutMessage | None:
            reading.set()
            if how == "fails":
                raise StoreUnavailable(DatabaseState.LOCKED, "locked")
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")

        two = await w.open(3)
        with monkeypatch.context() as patch:
            patch.setattr(session.log, "said_before", said_before)
            two.call(1, "session/resume", sessionId=session.id, cwd="/")
            await reading.wait()
            if how == "is cancelled":
                two.notify(2, "$/cancel_request", requestId=1)
            assert "error" in await two.answer(1)
        await w.die(3, two)
        three = await w.open(4)
        await three.result(1, "session/resume", sessionId=session.id, cwd="/")
        await eventually(lambda: three.text() == "0 1 2 3 4 5 ")


async def test_same_client_resumes_again_after_failed_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with windows(tmp_path) as w:
        session = await left(w)

        async def said_before(_: int) -> CutMessage | None:
            raise StoreUnavailable(DatabaseState.LOCKED, "locked")

        two = await w.open(3)
        with monkeypatch.context() as patch:
            patch.setattr(session.log, "said_before", said_before)
            two.call(1, "session/resume", sessionId=session.id, cwd="/")
            assert "error" in await two.answer(1)
        await two.result(2, "session/resume", sessionId=session.id, cwd="/")
        await eventually(lambda: two.text() == "0 1 2 3 4 5 ")
