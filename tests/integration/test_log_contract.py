"""Contract of `sessions.ports.LogStore`: seqs from 1, without a gap, read from any cursor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykoclaw_acp.channel.frames import EventFrame
from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.choices import MODELS, MODES, Selection
from pykoclaw_acp.model.events import (
    WHY,
    ConfigChanged,
    Event,
    Failure,
    ModeChanged,
    Plan,
    PlanEntry,
    Text,
    TextPart,
    TitleChanged,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    Usage,
    UserMessage,
)
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow
from pykoclaw_acp.model.turns import Outcome, TurnState
from tests.integration.journals import (
    BOTH,
    DONE,
    Subject,
    events,
    places,
    prompt,
    said,
    subject,
)


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def test_seqs_have_no_gap_whoever_appends(s: Subject) -> None:
    session = await s.session()
    other = await s.session("two")
    calls = [
        s.journal.append(session, [Text(f"m{n}", f"{n} "), Text(f"m{n}", ", ")]) for n in range(20)
    ]
    calls.append(s.journal.append(other, [Text("m", "elsewhere")]))
    seqs = await asyncio.gather(*calls)
    assert [seq for some in seqs[:-1] for seq in some] == list(range(1, 41))
    assert seqs[-1] == [1]
    found = await s.journal.find(session)
    assert found is not None
    assert found.last_seq == 40


async def test_a_cursor_gets_what_follows_it(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    await s.journal.record(session, epoch, said(epoch, 2, "turn", "a", "b", "c", "d"), {})
    tool: list[Event] = [
        ToolStarted("tool", "Bash", "make", "execute"),
        ToolEnded("tool", "completed"),
    ]
    await s.journal.append(session, tool)  # the message has ended: its pieces may be one row
    for after in range(7):
        logged = await s.journal.read(session, after, 100)
        assert places(logged) == list(range(after + 1, 7))
        assert await s.texts(session, after) == "abcd"[after:]
    assert events(await s.journal.read(session, 4, 100)) == tool
    assert [one.turn_id for one in await s.journal.read(session, 3, 100)] == ["turn", None, None]


async def test_a_page_has_at_most_so_many_rows(s: Subject) -> None:
    session = await s.session()
    await s.journal.append(session, [ToolEnded(f"t{n}", "failed") for n in range(5)])
    assert places(await s.journal.read(session, 1, 2)) == [2, 3]
    assert await s.journal.read("nothing", 0, 10) == []


async def test_nonexistent_session_has_no_log(s: Subject) -> None:
    with pytest.raises(Conflict):
        await s.journal.append("nothing", [Text("m", "lost")])


async def test_session_record_follows_its_log_events(s: Subject) -> None:
    session = await s.session()
    chosen = ConfigChanged(Selection("plan", MODES, "opus", MODELS))
    await s.journal.append(
        session, [TitleChanged("First"), ModeChanged("plan"), chosen, TitleChanged("Second")]
    )
    found = await s.journal.find(session)
    assert found is not None
    assert (found.title, found.mode, found.model) == ("Second", "plan", "opus")


async def test_nobodys_choice_of_a_model_stays_nobodys(s: Subject) -> None:
    session = await s.session()
    await s.journal.append(session, [ConfigChanged(Selection("default", MODES, "default", MODELS))])
    found = await s.journal.find(session)
    assert found is not None
    assert found.model is None


async def test_what_was_said_before_a_place(s: Subject) -> None:
    """The text of the message that a place lies in, also inside of a row that was folded."""
    session = await s.session()
    _, epoch = await s.running(session)
    await s.journal.record(session, epoch, said(epoch, 2, "turn", "a", "b", "c"), {})
    usage: list[Event] = [Usage(1, 2)]
    await s.journal.append(session, usage)
    assert [await _before(s, session, place) for place in range(5)] == [
        None,
        "a",
        "ab",
        "abc",
        "abc",
    ]
    found = await s.journal.said_before(session, 3)
    assert found is not None
    assert not found.over
    await s.journal.finish(session, "turn", DONE, [])
    assert not (await s.journal.said_before(session, 3) or found).over  # nobody knows of its end
    await s.journal.mark_answered("turn")
    found = await s.journal.said_before(session, 4)
    assert found is not None
    assert found.over
    await s.journal.append(session, [Text("note", "of ours", note=True)])
    assert await _before(s, session, 5) is None
    assert await _before(s, session, 4) == "abc"


async def _before(s: Subject, session: str, place: int) -> str | None:
    found = await s.journal.said_before(session, place)
    return None if found is None else found.text


async def test_where_the_newest_turns_begin(s: Subject) -> None:
    session = await s.session()
    ids = [f"00000000-0000-4000-8000-00000000000{n}" for n in range(3)]
    for one in ids:
        said: list[Event] = [UserMessage(one, {"type": "text", "text": text}) for text in "ab"]
        await s.journal.append(session, [*said, Text(f"m{one}", "c")])
    places = [await s.journal.last_turns(session, turns) for turns in (1, 2, 3, 4)]
    assert [(one.after, one.left_out) for one in places] == [(6, 2), (3, 1), (0, 0), (0, 0)]


async def test_prompt_never_sent_begins_no_turn(s: Subject) -> None:
    """It belongs to the turn that ran before it: `last 1` shows that, and what came after it."""
    session = await s.session()
    ran = prompt(session, "00000000-0000-4000-8000-000000000001")
    for earlier in ("a", "b"):
        await s.journal.append(session, [UserMessage(earlier * 36, {"type": "text", "text": "x"})])
    await s.journal.accept(ran)
    asked: list[Event] = [UserMessage(ran.turn_id, {"type": "text", "text": "ran"})]
    await s.journal.dispatch(ran, await s.workers.next_epoch(session), asked)
    await s.journal.finish(session, ran.turn_id, DONE, [Text("m", "answer")])
    for n in (2, 3):
        refused = prompt(session, f"00000000-0000-4000-8000-00000000000{n}")
        await s.journal.accept(refused)
        ends: list[Event] = [
            UserMessage(refused.turn_id, {"type": "text", "text": "refused"}),
            Failure(f"f{n}", "No.", "workspace_refused"),
        ]
        await s.journal.finish(session, refused.turn_id, Outcome(TurnState.FAILED), ends)
    found = [await s.journal.last_turns(session, turns) for turns in (1, 2, 3)]
    assert [(one.after, one.left_out) for one in found] == [(2, 2), (1, 1), (0, 0)]


async def test_imported_turns_next_task_list_is_found(s: Subject) -> None:
    session = await s.session()
    plan = Plan((PlanEntry("a"),))
    asked = UserMessage("u", {"type": "text", "text": "x"})
    said: list[Event] = [
        *(plan, Text("m", 'says "-why"'), Text("m-why", "so"), plan, asked, plan, Plan(())),
        *(plan, Text(f"u{WHY}", "why", note=True), plan),
    ]
    turn, epoch = await s.running(session)
    row = TranscriptRow("claude", "/t/claude.jsonl", 100, 1, 1, 80, "{}", "t1", related=True)
    piece = ImportedPiece(row, [(f"e:{n}", event) for n, event in enumerate(said)])
    await s.imports.commit_piece(session, piece)
    frame = EventFrame(epoch=epoch, n=2, turn_id=turn.turn_id, event=plan)
    await s.journal.record(session, epoch, [frame], {})
    goes_on = [await s.journal.plan_goes_on(session, seq) for seq in (1, 4, 6, 7, 8, 10)]
    assert goes_on == [True, False, False, True, False, False]


async def test_running_call_is_found_however_old(s: Subject) -> None:
    session = await s.session()
    running = ToolStarted("server", "Bash", "make serve", "execute")
    quiet = ToolStarted('a "quiet" one', "Bash", "sleep", "execute")
    ended = ToolStarted("ended", "Bash", "ls", "execute")
    shows = ToolProgressed("server", (TextPart("listening"),))
    await s.journal.append(session, [running, quiet, ended, shows, ToolEnded("ended", "completed")])
    for n in range(0, 1200, 200):
        calls: list[Event] = []
        for at in range(n, n + 200):
            calls += [
                ToolStarted(f"t{at}", "Read", "x" * 1000, "read"),
                ToolEnded(f"t{at}", "failed"),
            ]
        await s.journal.append(session, calls)
    assert events(await s.journal.in_effect(session, 2405)) == [running, quiet, shows]
    assert events(await s.journal.in_effect(session, 3)) == [running, quiet, ended]
    await s.journal.append(
        session, [ToolEnded("server", "completed"), ToolEnded(quiet.tool_call_id, "failed")]
    )
    assert await s.journal.in_effect(session, 2407) == []


async def test_newest_plan_counts(s: Subject) -> None:
    session, other = await s.session(), await s.session("two")
    assert await s.journal.last_plan(session) == ()
    entries = (PlanEntry("b", "completed"), PlanEntry("c"))
    await s.journal.append(session, [Plan((PlanEntry("a"),)), Plan(entries), Text("m", "Done.")])
    assert await s.journal.last_plan(session) == entries
    await s.journal.append(session, [Plan(())])
    for without in (session, other, "nothing"):
        assert await s.journal.last_plan(without) == ()
    assert await s.journal.last_plan(session, 3) == entries, "up to there"
