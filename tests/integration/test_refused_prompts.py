"""A prompt that Claude has refused is not in the next request to the model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from pykoclaw_acp.model.branches import Branch
from pykoclaw_acp.model.events import Event, Plan, PlanEntry, Text, UserMessage
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow, TranscriptTurn
from pykoclaw_acp.sessions.session import Session
from tests.integration.rig import Rig, rig
from tests.waiting import eventually, running


def branches(r: Rig) -> list[Branch | None]:
    """Where the workers began, in the order of their launch."""
    return [one.spec.branch for one in r.launcher.launched]


async def notes(r: Rig, session: Session) -> list[str]:
    """What the log says of refused prompts."""
    logged = [one.event for one in await r.journal.read(session.id, 0, 1000)]
    said = [one.text for one in logged if isinstance(one, Text) and one.note]
    return [one for one in said if "(Claude refused to go on," in one]


async def test_next_prompt_branches_off_before_refused_one(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        first = await r.prompt(session, "say 1")
        await session.idle()
        await session.log.tell([Plan((PlanEntry("Do it", "pending", "1"),))])
        assert (await r.run(session, "refuse")).stop_reason == "refusal"
        assert await notes(r, session) == [], "it is forgotten when there is a next prompt"
        for _ in range(2):
            await r.run(session, "say 1")
            assert branches(r) == [None, Branch(session.id, f"end-{first.turn_id}")]
            assert len(await notes(r, session)) == 1
        assert r.launcher.launched[0].dead
        assert r.launcher.launched[1].spec.options.plan == (), "of another Claude session"


async def test_refused_prompt_is_forgotten_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the prompt that began it was cancelled before it was done, and another one came."""
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "refuse")
        stop, stopping, go = r.pool.stop, asyncio.Event(), asyncio.Event()

        async def slow(session_id: str) -> None:
            stopping.set()
            await go.wait()
            await stop(session_id)

        monkeypatch.setattr(r.pool, "stop", slow)
        cancelled = await r.prompt(session, "say 1")
        await stopping.wait()
        session.cancel(cancelled)
        await cancelled.over()
        following = await r.prompt(session, "say 1")
        looks = "SessionContext._forget_if_refused"
        await eventually(lambda: len(running(looks)) == 2)
        go.set()
        await following.over()
        assert "".join(await notes(r, session)).count("(Claude refused to go on,") == 1


async def test_prompt_that_waited_has_no_refused_one(tmp_path: Path) -> None:
    """Nor has one of the next daemon, or after two refusals."""
    async with rig(tmp_path) as r:
        session = await r.session()
        turns = [await r.prompt(session, words) for words in ("refuse", "refuse", "say 1")]
        await session.idle()
        assert [turn.ended.result()[0].stop_reason for turn in turns] == [
            "refusal",
            "refusal",
            "end_turn",
        ]
        assert branches(r) == [None, Branch(""), Branch("")]
        await r.run(session, "refuse")
    async with rig(tmp_path) as r:
        again = await r.sessions.get(session.id)
        await r.run(again, "say 1")
        assert branches(r) == [Branch(session.id, f"end-{turns[2].turn_id}")]


async def test_fork_has_no_refused_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        source = await r.session()
        first = await r.prompt(source, "say 1")
        await source.idle()
        await r.run(source, "refuse")
        made, _ = await r.sessions.forks.fork(source, "/", (), ())
        await r.run(made, "say 1")
        assert branches(r) == [None, Branch(source.id, f"end-{first.turn_id}")]


async def test_refused_prompt_before_claudes_turn_stays(tmp_path: Path) -> None:
    """What Claude began by itself goes on with it."""
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "refuse")
        worker = r.launcher.launched[0]
        worker.say(worker.started("own", background=True))
        await eventually(lambda: session.background)
        worker.say(worker.event("own", "It has ended."), worker.ended("own"))
        await eventually(lambda: not session.background)
        await r.run(session, "say 1")
        assert branches(r) == [None]
        assert await notes(r, session) == []


async def test_refused_prompt_before_terminals_turn_stays(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "refuse")
        uuid, answer = str(uuid4()), str(uuid4())
        row = TranscriptRow(session.id, "/t", 1, 1, 1, 1, "{}", uuid, related=True)
        asked = UserMessage(uuid, {"type": "text", "text": "Asked there"}, "terminal")
        said: list[tuple[str, Event]] = [
            (f"{uuid}:0", asked),
            (f"{answer}:0", Text(f"{answer}-0", "Answered there.")),
        ]
        turn = TranscriptTurn(uuid, session.id, None, last_uuid=answer)
        piece = ImportedPiece(row, said, [turn])
        session.log.publish(await r.journal.commit_piece(session.id, piece))
        await r.run(session, "say 1")
        assert branches(r) == [None]
