"""A close ends what was there when it came; what another client begins meanwhile goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.errors import SessionNotFound, StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.sessions.subscriber import Subscriber
from pykoclaw_acp.tasks import Tasks
from tests.integration.callers import caller
from tests.integration.linked import Front, front, new, there, words
from tests.integration.rig import Rig, rig
from tests.waiting import eventually, running

LOCKED = (DatabaseState.LOCKED, "locked")


async def close(r: Rig, one: Front, session: str, text: str) -> None:
    """The client has prompted this, and closes the session; the worker obeys nobody, and is killed
    in the end.
    """
    one.call(2, "session/prompt", **words(session, text))
    await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].acked)
    if text != "hang":
        await one.answer(2)
    r.launcher.launched[-1].deaf = True
    one.call(3, "session/close", sessionId=session)
    await there(r, "SELECT 1 FROM acp_sessions WHERE closed_at IS NOT NULL")


async def load(one: Front, number: int, session: str) -> None:
    await one.result(number, "session/load", sessionId=session, cwd="/", mcpServers=[])


async def in_database(r: Rig, session: str) -> bool:
    """Whether the database has it as closed."""
    query = "SELECT closed_at IS NOT NULL FROM acp_sessions WHERE acp_session_id = ?"
    return bool((await r.database.read(query, (session,)))[0][0])


async def test_client_that_loads_during_close_follows_on(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r, "A") as a, front(r, "B") as b:
        session = await new(a)
        await close(r, a, session, "hang")
        await load(b, 1, session)
        assert "result" in await a.answer(3)
        assert a.rests("detached")
        assert not r.launcher.live
        await load(a, 4, session)
        await a.result(5, "session/prompt", **words(session, "say 3"))
        await eventually(lambda: b.text().endswith("0 1 2 "))
        assert not b.rests("detached")


@pytest.mark.parametrize("text", ["hang", "say 1"])
async def test_prompt_during_close_is_shown_whole(tmp_path: Path, text: str) -> None:
    async with rig(tmp_path) as r, front(r, "A") as a, front(r, "B") as b:
        session = await new(a)
        await close(r, a, session, text)
        await load(b, 1, session)
        result = await b.result(2, "session/prompt", **words(session, "pace 5 1 20"))
        assert result["stopReason"] == "end_turn"
        pieces = b.text().rpartition("0@")[2].split("@")
        assert len(pieces) == 5
        assert "result" in await a.answer(3)
        assert not b.rests("detached")


async def test_command_prompt_during_close_is_shown_whole(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r, "A") as a, caller(r, tmp_path) as cli:
        session = await new(a)
        await close(r, a, session, "hang")
        turns = r.sessions.live[session].turns
        await eventually(turns[0].cancelled.is_set)
        prompt = cli.begin("prompt", session=session, text="pace 5 1 20")
        assert "result" in await a.answer(3)
        await eventually(lambda: prompt in cli.answers)
        result = cli.answers[prompt]["result"]
        assert result["state"] == "done"
        assert cli.text() == result["text"]


@asynccontextmanager
async def overtaken(close: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Loads find the session open, and are subscribed after this close, or while it goes on."""
    real, done = Subscriber.claim, asyncio.Event()

    async def claim(self: Subscriber, *given: Any, **more: Any) -> Any:
        await close()
        done.set()
        return await real(self, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Subscriber, "claim", claim)
        yield
        await eventually(done.is_set)


@pytest.mark.parametrize("over", [True, False])
async def test_load_overtaken_by_others_close_follows(tmp_path: Path, over: bool) -> None:
    async with rig(tmp_path) as r, front(r, "A") as a, front(r, "B") as b:
        session = await new(a)

        async def closed() -> None:
            await close(r, a, session, "say 1")
            if over:
                await a.answer(3)

        async with overtaken(closed):
            await load(b, 1, session)
        assert b.text().startswith("0 ")
        assert "result" in await a.answer(3)
        result = await b.result(2, "session/prompt", **words(session, "say 3"))
        assert result["stopReason"] == "end_turn"
        assert b.text().endswith("0 1 2 ")
        assert not b.rests("detached")


@pytest.mark.parametrize("own", [True, False])
async def test_load_overtaken_by_its_close_is_detached(tmp_path: Path, own: bool) -> None:
    """By one of this client, or one for all, as archiving is."""
    async with rig(tmp_path) as r, front(r, "A") as a, front(r, "B") as b:
        session = await new(a)
        a.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].acked)
        r.launcher.launched[-1].deaf = True
        assert b.connection is not None
        closing = r.sessions.close(r.sessions.live[session], b.connection.client if own else None)
        tasks = Tasks()

        async def closed() -> None:
            tasks.start(closing)
            await there(r, "SELECT 1 FROM acp_sessions WHERE closed_at IS NOT NULL")

        async with overtaken(closed):
            b.call(1, "session/load", sessionId=session, cwd="/", mcpServers=[])
        await eventually(lambda: b.rests("detached"))


async def test_close_does_not_wait_for_later_prompts(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r, "A") as a, front(r, "B") as b:
        session = await new(a)
        await close(r, a, session, "hang")
        await load(b, 1, session)
        b.call(2, "session/prompt", **words(session, "hang"))
        assert "result" in await a.answer(3)
        await eventually(lambda: [one.prompts for one in r.launcher.launched] == [["hang"]] * 2)
        assert r.sessions.live[session].busy
        assert r.launcher.live == [r.launcher.launched[-1]]


async def test_client_that_resumes_during_close_follows_on(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r, "A") as a, front(r, "B") as b:
        session = await new(a)
        await load(b, 1, session)
        await close(r, a, session, "hang")
        await b.result(2, "session/resume", sessionId=session, cwd="/")
        assert "result" in await a.answer(3)
        await b.result(3, "session/prompt", **words(session, "say 3"))
        assert b.text().endswith("0 1 2 ")
        assert (a.rests("detached"), b.rests("detached")) == (["1"], [])


async def test_load_committed_after_close_leaves_session_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        mark_closed = r.journal.mark_closed

        async def closed(session_id: str) -> None:
            await mark_closed(session_id)
            await r.sessions.reopen(session, "/", (), ())

        monkeypatch.setattr(r.journal, "mark_closed", closed)
        await r.sessions.close(session)
        assert (session.record.closed, await in_database(r, session.id)) == (False, False)


async def test_close_that_is_refused_leaves_session_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()

        async def refuse(_: str) -> None:
            raise StoreUnavailable(*LOCKED)

        with monkeypatch.context() as patch:
            patch.setattr(r.journal, "mark_closed", refuse)
            with pytest.raises(StoreUnavailable):
                await r.sessions.close(session)
        assert (await r.run(session, "say 1")).state == "done"
        assert not session.record.closed


async def test_close_overtaking_stored_load_closes_session(tmp_path: Path) -> None:
    """The load was answered while another program kept the database locked."""
    async with rig(tmp_path) as r:
        session = await r.session()
        for watching in running("watch-store"):
            watching.cancel()
        r.database.condition.failed(*LOCKED)
        await r.sessions.reopen(session, "/", (), ())
        closing = asyncio.ensure_future(r.sessions.close(session))
        r.database.condition.recovered()
        await closing
        await eventually(lambda: not running("write-opened"))
        assert (session.record.closed, await in_database(r, session.id)) == (True, True)


async def test_session_being_deleted_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a load that had found it before."""
    async with rig(tmp_path) as r:
        session = await r.session()
        delete = r.journal.delete

        async def deleted(*given: Any) -> None:
            with pytest.raises(SessionNotFound):
                await r.sessions.reopen(session, "/", (), ())
            await delete(*given)

        monkeypatch.setattr(r.journal, "delete", deleted)
        await r.sessions.delete(session)
        assert session.record.closed
