"""Contract of `sessions.ports.NoteStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykoclaw_acp.channel.frames import TurnStarted
from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.prompt_text import Note
from tests.integration.journals import BOTH, CANCELLED, Subject, prompt, subject

FIRST, SECOND = Note("first", "The job is done."), Note("second", "So is the other.")


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def dispatched(s: Subject, session: str) -> int:
    """A turn that carries the first note; returns its epoch."""
    turn = prompt(session)
    await s.journal.accept(turn)
    epoch = await s.workers.next_epoch(session)
    await s.journal.dispatch(turn, epoch, [], [FIRST])
    return epoch


async def test_notes_wait_in_their_order(s: Subject) -> None:
    session, other = await s.session(), await s.session("two")
    await s.journal.add_note(session, FIRST)
    await s.journal.add_note(session, SECOND)
    await s.journal.add_note(session, Note("first", "again"))
    await s.journal.add_note(other, Note("third", "elsewhere"))
    assert await s.journal.pending_notes(session) == [FIRST, SECOND]


async def test_prompt_carries_a_note_once(s: Subject) -> None:
    session = await s.session()
    await s.journal.add_note(session, FIRST)
    await s.journal.add_note(session, SECOND)
    epoch = await dispatched(s, session)
    assert await s.journal.pending_notes(session) == [SECOND]
    assert await s.journal.carried_notes("turn") == [FIRST]
    await s.journal.record(session, epoch, [TurnStarted(epoch=epoch, n=1, turn_id="turn")], {})
    await s.journal.finish(session, "turn", CANCELLED, [])
    assert await s.journal.pending_notes(session) == [SECOND]


async def test_prompt_not_taken_up_gives_its_notes_back(s: Subject) -> None:
    session = await s.session()
    await s.journal.add_note(session, FIRST)
    await dispatched(s, session)
    await s.journal.finish(session, "turn", CANCELLED, [])
    assert await s.journal.pending_notes(session) == [FIRST]


async def test_refused_dispatch_takes_no_note(s: Subject) -> None:
    session = await s.session()
    await s.journal.add_note(session, FIRST)
    with pytest.raises(Conflict):
        await s.journal.dispatch(prompt(session, "unknown"), 1, [], [FIRST])
    assert await s.journal.pending_notes(session) == [FIRST]
