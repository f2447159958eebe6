"""Contract of `sessions.ports.ContextStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.frames import Numbered, TurnEnded, TurnStarted
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import Outcome, TurnState
from tests.integration.journals import BOTH, CANCELLED, Subject, prompt, subject


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


def at(last: str | None, claude: str = "claude") -> Outcome:
    """An end in Claude's transcript."""
    return Outcome(TurnState.DONE, "end_turn", claude_session_id=claude, last_uuid=last)


async def ends(s: Subject, session: str, limit: int = 9) -> list[str]:
    found = await s.journal.newest_ends(session, "claude", limit)
    assert all(one.whole for one in found)
    return [one.turn_id for one in found]


async def test_newest_ends_are_what_transcript_must_hold(s: Subject) -> None:
    session, other = await s.session(), await s.session("two")
    await s.ended(session, "first", at("a"))
    await s.ended(other, "elsewhere", at("x"))
    await s.ended(session, "cancelled", CANCELLED)
    await s.ended(session, "in another one", at("b", "before"))
    await s.ended(session, "without an entry", at(None))
    await s.ended(session, "second", at("c"))
    await s.ended(session, "stopped by a hook", at("c"))
    await s.ended(session, "third", at("d"))
    assert await ends(s, session) == ["third", "second", "first"]
    assert await ends(s, session, 2) == ["third", "second"]


async def test_prompt_taken_up_may_stand_for_turn(s: Subject) -> None:
    """Claude's CLI makes one entry of prompts that wait together."""
    session = await s.session()
    epoch = await carrying(s, session, "host")
    steered = prompt(session, "steered")
    await s.journal.accept(steered)
    await s.journal.dispatch(steered, epoch, [])
    into = TurnStarted(epoch=epoch, n=2, turn_id="steered", into="host")
    outcome = at("end")
    frames: list[Numbered] = [
        into,
        ended(epoch, "host", n=3),
        ended(epoch, "steered", n=4, into="host"),
    ]
    await s.journal.record(session, epoch, frames, {"host": outcome, "steered": outcome})
    (end,) = await s.journal.newest_ends(session, "claude", 9)
    assert (end.turn_id, end.taken) == ("host", ("steered",))
    assert not end.lost({"steered", "end"})
    assert not end.lost({"host", "end"})
    assert end.lost({"end"})
    assert end.lost({"steered"})


async def test_turn_told_as_lost_need_not_be_held(s: Subject) -> None:
    session = await s.session()
    for number in (1, 2, 3):
        await s.ended(session, f"turn {number}", at(f"end {number}"))
    said = [Text("note", "lost", note=True)]
    lost = ["turn 1", "turn 2"]
    note = Note("note", "A summary.")
    [seq] = await s.journal.lose_context(session, None, note, said, lost)
    assert seq == 1
    assert await ends(s, session) == ["turn 3"]
    assert await s.journal.pending_notes(session) == [note]
    assert await s.journal.lose_context(session, None, None, [], ["turn 3"]) == []
    assert await ends(s, session) == []


async def carrying(s: Subject, session: str, turn_id: str, *given: Note) -> int:
    """A turn that Claude has taken up with these notes; the epoch of its worker."""
    turn = prompt(session, turn_id)
    await s.journal.accept(turn)
    epoch = await s.workers.next_epoch(session)
    await s.journal.dispatch(turn, epoch, [], given)
    await s.journal.record(session, epoch, [TurnStarted(epoch=epoch, n=1, turn_id=turn_id)], {})
    return epoch


def ended(epoch: int, turn_id: str, **more: Any) -> TurnEnded:
    return TurnEnded(
        epoch=epoch,
        n=more.pop("n", 2),
        turn_id=turn_id,
        stop_reason="end_turn",
        claude_session_id="claude",
        **more,
    )


async def test_notes_of_lost_turn_are_given_again(s: Subject) -> None:
    session, told, news = await s.session(), Note("told", "A summary."), Note("news", "Another.")
    await s.journal.add_note(session, told)
    epoch = await carrying(s, session, "carrier", told)
    await s.journal.record(session, epoch, [ended(epoch, "carrier")], {"carrier": at("end")})
    assert await s.journal.pending_notes(session) == []
    await s.journal.lose_context(session, None, news, [], ["carrier"])
    assert await s.journal.pending_notes(session) == [told, news]


async def test_notes_of_blocked_prompt_are_given_again(s: Subject) -> None:
    session, told = await s.session(), Note("told", "A summary.")
    await s.journal.add_note(session, told)
    epoch = await carrying(s, session, "carrier", told)
    frame = ended(epoch, "carrier", untaken=True)
    await s.journal.record(session, epoch, [frame], {"carrier": at("end")})
    assert await s.journal.pending_notes(session) == [told]


async def test_carriers_that_failed_are_doubtful(s: Subject) -> None:
    session, told = await s.session(), [Note(str(n), "A summary.") for n in range(4)]
    for note in told:
        await s.journal.add_note(session, note)
    failed = Outcome(TurnState.UNKNOWN, claude_session_id="claude")
    for name, outcome in (("well", at("end")), ("ill", failed), ("lost", failed)):
        note = told.pop()
        epoch = await carrying(s, session, name, note)
        await s.journal.record(session, epoch, [ended(epoch, name)], {name: outcome})
    await s.journal.lose_context(session, None, None, [], ["lost"])
    await carrying(s, session, "running", told[0])
    await s.ended(session, "carries nothing", failed)
    assert await s.journal.doubtful_carriers(session) == ["ill"]
    await s.journal.give_notes_again(["ill"])
    assert await s.journal.doubtful_carriers(session) == []
    assert [one.note_id for one in await s.journal.pending_notes(session)] == ["1", "2"]


async def test_carrier_before_turn_that_ended_well_is_settled(s: Subject) -> None:
    """Unless Claude has lost that turn."""
    session, note = await s.session(), Note("note", "A summary.")
    await s.journal.add_note(session, note)
    epoch = await carrying(s, session, "carrier", note)
    frame = ended(epoch, "carrier")
    await s.journal.record(session, epoch, [frame], {"carrier": Outcome(TurnState.CANCELLED)})
    assert await s.journal.doubtful_carriers(session) == ["carrier"]
    await s.ended(session, "well")
    assert await s.journal.doubtful_carriers(session) == []
    await s.journal.lose_context(session, None, None, [], ["well"])
    assert await s.journal.doubtful_carriers(session) == ["carrier"]


async def test_note_is_there_once_claude_has_it(s: Subject) -> None:
    session = await s.session()
    note = Note("note", "A summary.")
    assert not await s.journal.has_note("note")
    await s.journal.lose_context(session, None, note, [])
    assert await s.journal.has_note("note")
    turn = prompt(session)
    await s.journal.accept(turn)
    await s.journal.dispatch(turn, await s.workers.next_epoch(session), [], [note])
    assert await s.journal.has_note("note")
    assert not await s.journal.has_note("other")
