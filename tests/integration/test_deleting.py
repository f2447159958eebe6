"""What comes to a session while it is deleted ends, or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pykoclaw_acp.errors import SessionNotFound
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.session import Session
from tests.integration.rig import Rig, rig
from tests.waiting import eventually


def prompt(session: Session, text: str) -> Turn:
    content = [{"type": "text", "text": text}]
    return Turn(str(uuid4()), session.id, content, unattended=True)


def while_closing(
    r: Rig, patch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[None]]
) -> None:
    """This happens when the turns of the session have ended, and its worker is stopped."""
    stop = r.pool.stop

    async def stopped(session_id: str) -> None:
        patch.undo()
        await stop(session_id)
        await happens()

    patch.setattr(r.pool, "stop", stopped)


async def test_turn_beginning_while_session_is_deleted_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that with which the answer to a parked question goes on."""
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        turn = prompt(session, "hang")

        delete = r.journal.delete

        async def deleted(*given: Any) -> None:
            await r.journal.accept(turn)
            session.enqueue(turn)
            await eventually(lambda: r.launcher.launched[-1].prompts == ["hang"])
            await delete(*given)

        monkeypatch.setattr(r.journal, "delete", deleted)
        await r.sessions.delete(session)
        assert turn.ended.done()
        await session.idle()
        await eventually(lambda: not r.launcher.live)
        assert await r.sessions.find(session.id) is None
        assert session.id not in r.sessions.live


async def test_unattended_prompt_is_refused_during_sessions_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")

        async def task_comes_due() -> None:
            with pytest.raises(SessionNotFound):
                await session.accept_unattended(prompt(session, "say 2"))

        while_closing(r, monkeypatch, task_comes_due)
        await r.sessions.delete(session)
        assert r.launcher.launched[-1].prompts == ["say 1"]


async def test_session_that_could_not_be_deleted_takes_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()

        async def refuse(*_: object) -> None:
            raise OSError("no")

        monkeypatch.setattr(r.journal, "delete", refuse)
        with pytest.raises(OSError, match="no"):
            await r.sessions.delete(session)
        assert await r.sessions.find(session.id) is session
        turn = await session.accept_unattended(prompt(session, "say 1"))
        assert (await asyncio.wait_for(turn.ended, 60))[0].state == "done"
