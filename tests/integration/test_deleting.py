"""What comes to a session while it is deleted ends, or is refused."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest

from pykoclaw_acp.errors import SessionNotFound
from pykoclaw_acp.model.events import Text, ToolStarted
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.session import Session
from tests.integration.callers import caller
from tests.integration.rig import Rig, rig
from tests.integration.wires import client
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


def knowing(whole: object, session_id: str) -> int:
    """How many dictionaries and sets have the session, of all that can be reached from there."""
    found, seen, left = 0, {id(whole)}, [whole]
    while left:
        one = left.pop()
        found += isinstance(one, dict | set) and session_id in one
        parts = [] if isinstance(one, type | ModuleType) else gc.get_referents(one)
        left += [part for part in parts if id(part) not in seen]
        seen.update(map(id, parts))
    return found


async def test_deleted_sessions_leave_nothing_in_memory(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        before = knowing(r.sessions, session.id)
        await r.sessions.delete(session)
        gc.collect()
        assert before
        assert knowing(r.sessions, session.id) == 0


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


async def test_load_is_refused_if_session_is_deleted_meanwhile(tmp_path: Path) -> None:
    """A part of the history is not the whole."""
    async with rig(tmp_path) as r, client(r) as wire:
        session = await r.session()
        await r.run(session, "say 30")
        wire.blocked.clear()
        loading = wire.begin("session/load", sessionId=session.id, cwd="/", mcpServers=[])
        await eventually(lambda: len(session.subscriptions) == 2)
        await r.sessions.delete(session)
        wire.blocked.set()
        assert (await wire.answer(loading))["error"]["code"] == -32002


async def test_export_fails_if_session_is_deleted_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await r.session()
        await r.run(session, "say 30")
        reads, write = asyncio.Event(), cli.write

        async def slow(line: bytes) -> None:
            await reads.wait()
            await write(line)

        monkeypatch.setattr(cli, "write", slow)
        at = cli.begin("follow", session=session.id, events=True)
        await eventually(lambda: len(session.subscriptions) == 2)
        await r.sessions.delete(session)
        reads.set()
        await eventually(lambda: at in cli.answers)
        assert "only a part of it" in cli.answers[at]["error"]["message"]


async def test_prompt_is_cancelled_with_its_deleted_session(tmp_path: Path) -> None:
    """It has waited for work in the background, which the deletion has ended."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await r.session()
        at = cli.begin("prompt", session=session.id, text="hang", whole=True, idempotencyKey="k")
        await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].acked)
        worker, turn = r.launcher.launched[-1], session.turns[0].turn_id
        worker.background(1)
        worker.report(turn, ToolStarted("call", "Agent", "look", "think"), Text("a", "Started."))
        worker.say(worker.ended(turn))
        await eventually(lambda: cli.told("waits"))
        await r.sessions.delete(session)
        await eventually(lambda: at in cli.answers)
        answer = cli.answers[at]["result"]
        assert (answer["state"], answer["goesOn"]) == ("cancelled", False)
