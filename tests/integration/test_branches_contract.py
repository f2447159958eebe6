"""Contract of `sessions.ports.BranchStore`: where a session can be forked or rewound, and what Claude
remembers there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from pykoclaw_acp.channel.frames import EventFrame, Numbered, TurnEnded, TurnStarted
from pykoclaw_acp.errors import Conflict, InvalidParams, InvalidRequest, RowRefused
from pykoclaw_acp.model.branches import (
    Branch,
    Fork,
    ForkedAt,
    ForkPoint,
    Memory,
    RewindPoint,
    Rewound,
)
from pykoclaw_acp.model.deliveries import Delivery, ImportedDelivery, note
from pykoclaw_acp.model.events import (
    BLOCKED,
    MOVED,
    Event,
    Text,
    TitleChanged,
    ToolEnded,
    ToolStarted,
    UserMessage,
    note_event,
)
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow, TranscriptTurn
from pykoclaw_acp.model.permissions import RequestPolicy
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import Outcome, SessionRecord, TurnState
from tests.integration.journals import BOTH, Subject, events, prompt, request, subject
from tests.twins.rows import QueuedDelivery

HELLO = {"type": "text", "text": "Hello"}
NOTE = Note("note", "News.")
DONE = Rewound("b", 1, [], None, None)
CALL = ToolStarted("call", "Bash", "ls", "execute")


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def begun(s: Subject, session: str, name: str, *notes: Note, words: str | None = None) -> int:
    """A turn that Claude has taken up, whose prompt is in the log; the epoch of its worker."""
    turn = prompt(session, name)
    if words is not None:
        turn.content = [{"type": "text", "text": words}]
    await s.journal.accept(turn)
    epoch = await s.workers.next_epoch(session)
    await s.journal.dispatch(turn, epoch, [UserMessage(name, HELLO)], notes)
    await s.journal.record(session, epoch, [TurnStarted(epoch=epoch, n=1, turn_id=name)], {})
    return epoch


async def ran(
    s: Subject,
    session: str,
    name: str,
    *notes: Note,
    words: str | None = None,
    stop: str = "end_turn",
) -> None:
    """A turn of two events, whose end Claude remembers by `end-<name>`."""
    epoch = await begun(s, session, name, *notes, words=words)
    said = EventFrame(epoch=epoch, n=2, turn_id=name, event=Text(f"answer-{name}", "Hi."))
    ended = TurnEnded(epoch=epoch, n=3, turn_id=name, stop_reason=stop, claude_session_id="claude")
    outcome = Outcome(TurnState.DONE, stop, claude_session_id="claude", last_uuid=f"end-{name}")
    await s.journal.record(session, epoch, [said, ended], {name: outcome})


async def ran_on(s: Subject, session: str) -> None:
    """Two turns of one worker: the end of `a` and all of `b` are committed together."""
    epoch = await begun(s, session, "a")
    second = prompt(session, "b")
    await s.journal.accept(second)
    await s.journal.dispatch(second, epoch, [])

    def said(n: int, name: str) -> list[Numbered]:
        return [
            EventFrame(epoch=epoch, n=n, turn_id=name, event=Text(f"answer-{name}", "Hi.")),
            TurnEnded(
                epoch=epoch,
                n=n + 1,
                turn_id=name,
                stop_reason="end_turn",
                claude_session_id="claude",
            ),
        ]

    begins = EventFrame(epoch=epoch, n=5, turn_id="b", event=UserMessage("b", HELLO))
    outcomes = {
        name: Outcome(TurnState.DONE, claude_session_id="claude", last_uuid=f"end-{name}")
        for name in ("a", "b")
    }
    together = [*said(2, "a"), TurnStarted(epoch=epoch, n=4, turn_id="b"), begins, *said(6, "b")]
    await s.journal.record(session, epoch, together, outcomes)


async def three(s: Subject) -> SessionRecord:
    """A session with three turns."""
    session = await s.session()
    for name in ("a", "b", "c"):
        await ran(s, session, name)
    return await found(s)


async def found(s: Subject, name: str = "one") -> SessionRecord:
    record = await s.journal.find(name)
    assert record is not None
    return record


def memory(name: str, lacks: int | None = None) -> Memory:
    """Claude remembers all up to the end of this turn."""
    return Memory(Branch("claude", f"end-{name}"), lacks)


async def point(s: Subject, message: str | None = None, name: str = "one") -> ForkPoint:
    record = await found(s, name)
    return await s.branches.point(record, record.last_seq, message)


async def rewound_to(s: Subject, message: str | None = None, **more: Any) -> RewindPoint:
    """The session was rewound to there."""
    place = await s.branches.rewind_point(await found(s), message)
    fields: dict[str, Any] = {"note": None, "request_key": None, **more}
    await s.branches.rewind("one", place, fields.pop("said", []), DONE, **fields)
    return place


def fork(at: ForkPoint, **more: Any) -> Fork:
    fields = {"at_end": False, "said": (), **more}
    return Fork("fork", "acp-fork", "one", "/fork", ("/more",), at, **fields)


async def test_session_is_forked_at_ends_of_turns(s: Subject) -> None:
    await three(s)
    assert await point(s) == ForkPoint(6, memory("c"))
    for message in ("b", "answer-b", "answer-b~1"):
        assert await point(s, message) == ForkPoint(4, memory("b"))
    with pytest.raises(InvalidParams):
        await point(s, "nothing")
    await s.session("two")
    assert await point(s, name="two") == ForkPoint(0, Memory(None))
    with pytest.raises(InvalidParams):
        await point(s, "b", "two")


async def test_forks_copied_turns_need_their_transcript(s: Subject) -> None:
    await three(s)
    assert await s.journal.branched_off({"claude", "other"}) == set()
    await s.branches.fork(fork(await point(s)))
    await ran(s, "fork", "d")
    assert (await found(s, "fork")).branch is None
    assert (await s.branches.rewind_point(await found(s, "fork"), "d")).memory == memory("c")
    await s.journal.delete("one")
    assert await s.journal.branched_off({"claude", "other"}) == {"claude"}
    await s.journal.delete("fork")
    assert await s.journal.branched_off({"claude", "other"}) == set()


async def test_turn_ends_before_what_follows_in_its_batch(s: Subject) -> None:
    await ran_on(s, await s.session())
    assert await point(s, "a") == ForkPoint(2, memory("a"))
    first = await s.branches.rewind_point(await found(s), "a")
    assert first == RewindPoint("a", 2, 0, Memory(None, lacks=0), after="a")
    assert (await s.branches.rewind_point(await found(s), "b")).turn_id == "b"


async def test_running_turn_is_left_out_of_fork(s: Subject) -> None:
    await three(s)
    await begun(s, "one", "d")
    assert await point(s) == ForkPoint(6, memory("c"), complete=False)
    for place in (
        s.branches.point(await found(s), 7, "d"),
        s.branches.rewind_point(await found(s), "d"),
    ):
        with pytest.raises(InvalidRequest, match="still runs"):
            await place


async def test_fork_at_notice_is_before_next_prompt(s: Subject) -> None:
    session = await s.session()
    await ran(s, session, "a")
    await s.journal.append(session, [Text("notice", "A note.", note=True)])
    assert await point(s, "notice") == ForkPoint(3, memory("a"))
    await ran(s, session, "b")
    assert await point(s, "notice") == ForkPoint(3, memory("a"))
    with pytest.raises(InvalidRequest, match="not begun by a prompt"):
        await s.branches.rewind_point(await found(s), "notice")


async def test_lost_turns_are_lacking_in_memory(s: Subject) -> None:
    await three(s)
    await s.journal.lose_context("one", None, None, [], ["b"])
    assert await point(s, "b") == ForkPoint(4, memory("a", lacks=2))
    assert await point(s) == ForkPoint(6, memory("c"))
    await s.journal.lose_context("one", Branch("claude", "end-a"), None, [])
    assert await point(s) == ForkPoint(6, Memory(Branch("claude", "end-a")))


async def test_turn_without_entry_is_no_place(s: Subject) -> None:
    session = await s.session()
    await begun(s, session, "a")
    done = Outcome(TurnState.DONE, "end_turn")
    await s.journal.finish(session, "a", done, [])
    assert await point(s, "a") == ForkPoint(1, Memory(None))
    await ran(s, session, "b")
    await begun(s, session, "c")
    await s.journal.finish(session, "c", done, [])
    with pytest.raises(InvalidRequest, match="not known"):
        await point(s, "a")
    assert await point(s, "c") == ForkPoint(4, Memory(Branch("claude")))


async def test_session_is_rewound_to_beginnings_of_turns(s: Subject) -> None:
    record = await three(s)
    assert await s.branches.rewind_point(record, None) == RewindPoint(
        "c", 1, 4, memory("b"), after="c"
    )
    expected = RewindPoint("b", 2, 2, memory("a"), after="b")
    for message in ("b", "answer-b"):
        assert await s.branches.rewind_point(record, message) == expected
    first = await s.branches.rewind_point(record, "a")
    assert first == RewindPoint("a", 3, 0, Memory(None, lacks=0), after="a")
    assert first.branch == Branch("")
    with pytest.raises(InvalidParams, match=r"^No message of this session has this id\. "):
        await s.branches.rewind_point(record, "nothing")
    await s.session("two")
    with pytest.raises(InvalidRequest, match="no prompt"):
        await s.branches.rewind_point(await found(s, "two"), None)


@pytest.mark.parametrize("state", [TurnState.CANCELLED, TurnState.FAILED])
async def test_prompt_that_was_never_sent_is_not_rewound(s: Subject, state: TurnState) -> None:
    """Without a message; it can be named, and nothing is known of files before it."""
    await three(s)
    await s.journal.accept(prompt("one", "d"))
    await s.journal.finish("one", "d", Outcome(state), [UserMessage("d", HELLO)])
    await not_rewound(s)


async def test_prompt_that_a_hook_blocked_is_not_rewound(s: Subject) -> None:
    await three(s)
    epoch = await begun(s, "one", "d")
    line = note_event(f"line{BLOCKED}", "**A hook blocked this**")
    said = EventFrame(epoch=epoch, n=2, turn_id="d", event=line)
    ended = TurnEnded(
        epoch=epoch, n=3, turn_id="d", stop_reason="end_turn", claude_session_id="claude"
    )
    done = Outcome(TurnState.DONE, "end_turn", claude_session_id="claude", last_uuid="end-c")
    await s.journal.record("one", epoch, [said, ended], {"d": done})
    await not_rewound(s)


async def test_turn_with_blocked_steered_prompt_is_rewound(s: Subject) -> None:
    """Its service counts no tokens, as that of some gateways; also in a fork."""
    await three(s)
    epoch = await begun(s, "one", "d")
    steered = prompt("one", "steered")
    await s.journal.accept(steered)
    await s.journal.dispatch(steered, epoch, [])
    line = note_event(f"line{BLOCKED}", "**A hook blocked this**")
    ended = TurnEnded(
        epoch=epoch, n=4, turn_id="d", stop_reason="end_turn", claude_session_id="claude"
    )
    frames: list[Numbered] = [
        TurnStarted(epoch=epoch, n=2, turn_id="steered", into="d"),
        EventFrame(epoch=epoch, n=3, turn_id="d", event=line),
        ended,
        structs.replace(ended, n=5, turn_id="steered", into="d"),
    ]
    done = Outcome(TurnState.DONE, "end_turn", claude_session_id="claude", last_uuid="end-d")
    await s.journal.record("one", epoch, frames, {"d": done, "steered": done})
    assert (await s.branches.rewind_point(await found(s), None)).turn_id == "d"
    await s.branches.fork(fork(await point(s)))
    assert (await s.branches.rewind_point(await found(s, "fork"), None)).turn_id == "fork/d"


async def not_rewound(s: Subject) -> None:
    """The newest prompt, d, is not rewound unless it is named."""
    place = await s.branches.rewind_point(await found(s), None)
    assert place == RewindPoint("c", 1, 4, memory("b"), after="c")
    assert (await s.branches.rewind_point(await found(s), "b")).turns == 2
    place = await s.branches.rewind_point(await found(s), "d")
    assert place == RewindPoint("d", 0, 6, memory("c"))
    await ran(s, "one", "e")
    place = await s.branches.rewind_point(await found(s), "d")
    assert place == RewindPoint("d", 1, 6, memory("c"), after="e")


async def test_prompt_that_only_a_transcript_has_was_sent(s: Subject) -> None:
    """The database was put back to before it was sent."""
    await three(s)
    await s.journal.accept(prompt("one", "d"))
    row = TranscriptRow("claude", "/t/claude.jsonl", 1, 1, 1, 1, "", None, related=True)
    taken = ImportedPiece(row, [], turns=[TranscriptTurn("d", "claude", own=True)])
    await s.imports.commit_piece("one", taken)
    await s.journal.finish("one", "d", Outcome(TurnState.FAILED), [UserMessage("d", HELLO)])
    assert (await s.branches.rewind_point(await found(s), None)).turn_id == "d"


async def test_prompt_cancelled_in_queue_is_no_place(s: Subject) -> None:
    await three(s)
    await s.journal.accept(prompt("one", "d"))
    await s.journal.finish("one", "d", Outcome(TurnState.CANCELLED, unsaid=True), [])
    await s.journal.say_cancelled("one", "d", [UserMessage("d", HELLO)])
    with pytest.raises(InvalidRequest, match="cancelled before it was sent"):
        await s.branches.rewind_point(await found(s), "d")
    await s.branches.fork(fork(await point(s, "d")))
    with pytest.raises(InvalidRequest, match="cancelled before it was sent"):
        await s.branches.rewind_point(await found(s, "fork"), "d")
    await ran(s, "one", "e")
    with pytest.raises(InvalidRequest, match="cancelled before it was sent"):
        await s.branches.rewind_point(await found(s), "d")


async def test_files_edited_before_a_move_are_known(s: Subject) -> None:
    await three(s)
    edit = ToolStarted("write", "Write", "a.txt", "edit")
    note = note_event(f"{MOVED}1", "It continues elsewhere.")
    for said, moved in ((note, False), (edit, False), (note, True)):
        await s.journal.append("one", [said])
        assert (await s.branches.rewind_point(await found(s), "c")).moved is moved
    await ran(s, "one", "d")
    await s.journal.append("one", [edit])
    assert not (await s.branches.rewind_point(await found(s), "d")).moved


async def test_commands_at_beginning_of_rewind_are_told(s: Subject) -> None:
    await three(s)
    for turn_id, words in (("d", "/help"), ("e", "/cost now"), ("f", "Hello"), ("g", "/help")):
        await ran(s, "one", turn_id, words=words)
    record = await found(s)
    for message, commands, after in (("f", (), "f"), ("d", ("d", "e"), "f"), ("g", ("g",), None)):
        place = await s.branches.rewind_point(record, message)
        assert (place.commands, place.after) == (commands, after)


async def test_rewound_turns_are_forgotten_but_logged(s: Subject) -> None:
    before = events(await s.journal.read((await three(s)).session_id, 0, 99))
    assert await s.journal.forgotten("one") == set()
    place = await s.branches.rewind_point(await found(s), "b")
    said: list[Event] = [Text("rewound", "Rewound.", note=True)]
    assert await s.branches.rewind("one", place, said, DONE, note=NOTE, request_key="f:1") == [7]
    assert events(await s.journal.read("one", 0, 99)) == [*before, *said]
    assert await s.journal.forgotten("one") == {"b", "c"}
    assert (await found(s)).branch == Branch("claude", "end-a")
    assert await s.journal.pending_notes("one") == [NOTE]
    assert [one.turn_id for one in await s.journal.newest_ends("one", "claude", 9)] == ["a"]
    for message in ("b", "answer-c"):
        with pytest.raises(InvalidRequest, match="was rewound"):
            await s.branches.rewind_point(await found(s), message)
        with pytest.raises(InvalidRequest, match="was rewound"):
            await point(s, message)
    assert await s.branches.rewind_point(await found(s), None) == RewindPoint(
        "a", 1, 0, Memory(None, lacks=0), after="a"
    )


async def test_summary_of_earlier_rewind_is_withdrawn(s: Subject) -> None:
    """It may tell of turns that are rewound now."""
    await three(s)
    for message in "cb":
        await rewound_to(s, message, note=Note(f"rewound-{message}", f"Before {message}."))
        assert await s.journal.pending_notes("one") == [
            Note(f"rewound-{message}", f"Before {message}.")
        ]
    await s.journal.add_note("one", NOTE)
    await rewound_to(s, "a")
    assert await s.journal.pending_notes("one") == [NOTE]


async def test_copied_summary_is_withdrawn_in_forks(s: Subject) -> None:
    """Also in a fork of the fork."""
    await three(s)
    await rewound_to(s, "c", note=Note("rewound-c", "Before c."))
    await s.branches.fork(fork(await point(s), at_end=True))
    made = replace(fork(await point(s, name="fork"), at_end=True), source="fork")
    await s.branches.fork(replace(made, session_id="two", conversation_name="acp-two"))
    for session, prefix in (("fork", "fork"), ("two", "two/fork")):
        copied = Note(f"{prefix}/rewound-c", "Before c.")
        assert await s.journal.pending_notes(session) == [copied]
        place = await s.branches.rewind_point(await found(s, session), f"{prefix}/b")
        new = Note(f"rewound-{prefix}/b", "Before b.")
        await s.branches.rewind(session, place, [], DONE, note=new, request_key=None)
        assert await s.journal.pending_notes(session) == [new]
    assert await s.journal.pending_notes("one") == [Note("rewound-c", "Before c.")]


async def test_branch_ends_with_next_turn_of_claude(s: Subject) -> None:
    await three(s)
    await rewound_to(s, "b")
    assert (await found(s)).branch == Branch("claude", "end-a")
    await ran(s, "one", "d")
    assert (await found(s)).branch is None
    assert await s.branches.rewind_point(await found(s), None) == RewindPoint(
        "d", 1, 6, memory("a"), after="d"
    )


async def test_begun_rewind_is_known_until_done(s: Subject) -> None:
    await three(s)
    assert await s.branches.begun_rewind("one") is None
    for planned in (DONE, Rewound("c", 1, ["a"], 1, None)):
        await s.branches.begin_rewind("one", planned)
        assert await s.branches.begun_rewind("one") == planned
    assert await s.branches.begun_rewind("two") is None
    await rewound_to(s)
    assert await s.branches.begun_rewind("one") is None


async def test_request_rewinds_once(s: Subject) -> None:
    await three(s)
    assert await s.branches.rewound("f:1") is None
    await rewound_to(s, request_key="f:1")
    assert await s.branches.rewound("f:1") == DONE
    assert await s.branches.rewound("f:2") is None
    with pytest.raises(RowRefused):
        await rewound_to(s, request_key="f:1", said=[Text("m", "again")])
    assert await s.journal.forgotten("one") == {"c"}
    assert [await s.journal.is_rewound(one) for one in ("b", "c", "d")] == [False, True, False]
    assert (await found(s)).last_seq == 6


async def test_note_of_rewound_prompt_is_pending_again(s: Subject) -> None:
    session = await s.session()
    for number in (1, 2):
        note = Note(f"note-{number}", "News.")
        await s.journal.add_note(session, note)
        await ran(s, session, f"turn-{number}", note)
    await rewound_to(s)
    assert await s.journal.pending_notes(session) == [Note("note-2", "News.")]


async def queued(s: Subject, number: int) -> Delivery:
    """A message that another program delivers."""
    row = QueuedDelivery(
        f"d{number}", "acp-one", "News.", created_at=f"2026-01-01T00:0{number}:00+00:00"
    )
    await s.others.enqueue(row)
    given = await s.deliveries.delivery(f"d{number}")
    assert given is not None
    return given


async def delivered(s: Subject, session: str, number: int) -> Note:
    """A message that the user was shown, and that Claude is to be told of."""
    given = await queued(s, number)
    await s.deliveries.deliver(session, given)
    return note(given)


async def told_of(s: Subject, number: int, turn: ImportedDelivery) -> Note | None:
    """What Claude is to be told of a message that the log has as this turn."""
    given = await queued(s, number)
    await s.deliveries.deliver("one", given, known=turn)
    pending = await s.journal.pending_notes("one")
    return note(given) if note(given) in pending else None


async def imported(s: Subject, name: str, claude: str = "claude") -> ImportedDelivery:
    """A turn that another program ran in a Claude session, and that its newest one now."""
    asked = UserMessage(name, {"type": "text", "text": "What is new?"}, "terminal")
    said: list[tuple[str, Event]] = [(f"{name}:0", asked), (f"said-{name}:0", Text("m", "News."))]
    row = TranscriptRow(claude, f"/t/{claude}.jsonl", 1, 1, 1, 1, "{}", name, related=True)
    turn = TranscriptTurn(name, claude, last_uuid=f"said-{name}")
    logged = await s.imports.commit_piece("one", ImportedPiece(row, said, [turn]))
    return ImportedDelivery(logged[0].seq, row.path, f"said-{name}", name)


@pytest.mark.parametrize("summed_up", [False, True])
async def test_deliveries_above_rewound_place_are_pending(s: Subject, summed_up: bool) -> None:
    """Also if they were told with a later prompt than the first that is taken back."""
    session = await s.session()
    await ran(s, session, "a")
    above = await delivered(s, session, 1)
    await ran(s, session, "b")
    below = await delivered(s, session, 2)
    await ran(s, session, "c", above, below)
    summary = Note("rewound-1", "Sums up.") if summed_up else None
    await rewound_to(s, "b", note=summary)
    expected = [above, *([summary] if summary else [])]
    assert await s.journal.pending_notes(session) == expected


async def test_rewound_result_is_never_told(s: Subject) -> None:
    session = await s.session()
    await ran(s, session, "a")
    await ran(s, session, "b")
    shown, side = await imported(s, "shown"), await imported(s, "side", "isolated")
    assert await told_of(s, 1, side) is not None
    below = await delivered(s, session, 2)
    await rewound_to(s, "b")
    assert await s.journal.pending_notes(session) == [below]
    assert await told_of(s, 3, shown) is None
    assert await told_of(s, 4, side) is None
    await ran(s, session, "c")
    await imported(s, "branched", "new")
    await s.imports.follow_transcript(session, "new", told=False)
    assert await told_of(s, 5, shown) is None


async def test_result_after_rewind_is_told_before_the_branch(s: Subject) -> None:
    """Claude will not go on from where the other program did."""
    session = await s.session()
    await ran(s, session, "a")
    await ran(s, session, "b")
    await rewound_to(s, "b")
    later = await imported(s, "later")
    assert await told_of(s, 1, later) is not None
    await ran(s, session, "c")
    assert await told_of(s, 2, later) is None


async def test_result_rewound_in_terminal_is_never_told(s: Subject) -> None:
    session = await s.session()
    turn = await imported(s, "shown")
    row = TranscriptRow("claude", "/t/claude.jsonl", 2, 2, 1, 2, "{}", "other", related=True)
    more = [TranscriptTurn("other", "claude")]
    await s.imports.commit_piece(session, ImportedPiece(row, [], more, rewound=["shown"]))
    await s.imports.follow_transcript(session, "claude", told=False)
    assert await told_of(s, 1, turn) is None


async def test_fork_is_told_of_deliveries_above_its_place(s: Subject) -> None:
    session = await s.session()
    told = await delivered(s, session, 1)
    await ran(s, session, "a", told)
    above = await delivered(s, session, 2)
    await ran(s, session, "b")
    waits = await delivered(s, session, 3)
    await ran(s, session, "c", above)
    await s.branches.fork(fork(await point(s, "b")))
    assert await s.journal.pending_notes("fork") == [
        replace(above, note_id=f"fork/{above.note_id}")
    ]
    assert await s.journal.pending_notes(session) == [waits]


async def test_rewind_takes_back_parked_requests(s: Subject) -> None:
    await three(s)
    epoch = await begun(s, "one", "d")
    await s.journal.record("one", epoch, [request("parked", "d", epoch=epoch)], {})
    await s.journal.park("one", request("parked", "d", epoch=epoch), [])
    await s.journal.record("one", epoch, [request("asked", "d", epoch=epoch, n=3)], {})
    await s.journal.finish("one", "d", Outcome(TurnState.CANCELLED, "cancelled"), [])
    await ran(s, "one", "e")
    assert await s.branches.parked("one", "e") == {"parked"}
    assert await s.branches.parked("two", "e") == set()
    await rewound_to(s)
    assert await s.journal.is_pending("parked")
    assert await s.branches.parked("one", "d") == set()
    await rewound_to(s, "b")
    assert await s.branches.parked("one", "e") == set()
    assert not await s.journal.is_pending("parked")
    assert await s.journal.is_pending("asked")
    (left,) = await s.journal.find_active("one")
    assert left.policy == RequestPolicy.ATTENDED


async def test_open_tools_are_those_at_the_place(s: Subject) -> None:
    session = await s.session()
    other = ToolStarted("other", "Bash", "make", "execute")
    await s.journal.append(session, [CALL, other, ToolEnded("call", "completed")])
    assert list(await s.branches.open_tools(session, 0)) == []
    assert list(await s.branches.open_tools(session, 2)) == ["call", "other"]
    assert list(await s.branches.open_tools(session, 3)) == ["other"]
    assert list(await s.branches.open_tools("nothing", 3)) == []


async def test_fork_has_history_up_to_place(s: Subject) -> None:
    await three(s)
    await s.journal.append("one", [TitleChanged("A title")])
    before = await s.journal.read("one", 0, 4)
    said: list[Event] = [TitleChanged("A title (fork)")]
    note = Note("of-fork", "You are a fork.")
    made = fork(await point(s, "b"), said=said, note=note, request_key="f:1", client="Mitto")
    assert await s.branches.find_created("f:1") is None
    await s.branches.fork(made)
    assert await s.branches.find_created("f:1") == "fork"
    assert await s.branches.forked_at("fork") == ForkedAt(4)
    logged = await s.journal.read("fork", 0, 99)
    assert events(logged) == [*events(before), *said]
    assert [one.turn_id for one in logged[:4]] == ["fork/a", "fork/a", "fork/b", "fork/b"]
    record = await found(s, "fork")
    assert (record.cwd, record.additional_directories) == ("/fork", ("/more",))
    assert (record.title, record.last_seq, record.prompted) == ("A title (fork)", 5, True)
    assert (record.branch, record.claude_session_id) == (Branch("claude", "end-b"), None)
    assert await s.journal.pending_notes("fork") == [note]
    assert await s.journal.name_taken("acp-fork")
    assert (await found(s)).last_seq == 7
    assert await s.branches.forked_at("one") is None


async def test_fork_is_rewound_as_its_source(s: Subject) -> None:
    await three(s)
    await s.branches.fork(fork(await point(s, "b")))
    assert await s.branches.rewind_point(await found(s, "fork"), "b") == RewindPoint(
        "fork/b", 1, 2, memory("a"), after="fork/b"
    )
    record = await found(s, "fork")
    assert await s.branches.point(record, record.last_seq, None) == ForkPoint(4, memory("b"))
    known = await s.imports.transcript_turns("fork", 9)
    assert {one.uuid for one in known} >= {"a", "b"}
    assert all(one.own and one.told for one in known)


async def test_fork_has_notes_of_turn_it_leaves_out(s: Subject) -> None:
    session = await s.session()
    await ran(s, session, "a")
    await s.journal.add_note(session, NOTE)
    await begun(s, session, "running", NOTE)
    assert await s.journal.pending_notes(session) == []
    await s.branches.fork(fork(await point(s), at_end=True))
    assert await s.journal.pending_notes("fork") == [replace(NOTE, note_id="fork/note")]


async def test_fork_at_end_has_pending_notes(s: Subject) -> None:
    session = await s.session()
    carried = Note("carried", "Old news.")
    await s.journal.add_note(session, carried)
    await ran(s, session, "a", carried)
    await s.journal.add_note(session, NOTE)
    await s.branches.fork(fork(await point(s), at_end=True))
    assert await s.journal.pending_notes("fork") == [replace(NOTE, note_id="fork/note")]
    assert await s.journal.carried_notes("fork/a") == [replace(carried, note_id="fork/carried")]
    assert await s.journal.pending_notes(session) == [NOTE]
    other = replace(fork(await point(s)), session_id="two", conversation_name="acp-two")
    await s.branches.fork(other)
    assert await s.journal.pending_notes("two") == []


async def test_fork_of_gone_session_leaves_nothing(s: Subject) -> None:
    await three(s)
    at = await point(s)
    await s.branches.fork(fork(at, request_key="f:1"))
    with pytest.raises(RowRefused):
        await s.branches.fork(fork(at))
    await s.journal.delete("one")
    other = replace(fork(at), session_id="two", conversation_name="acp-two")
    for gone in (other, replace(other, source="nothing")):
        with pytest.raises(Conflict):
            await s.branches.fork(gone)
    assert await s.journal.find("two") is None
    assert await s.branches.forked_at("two") is None
    assert not await s.journal.name_taken("acp-two")
    assert (await found(s, "fork")).last_seq == 6


async def test_refused_prompt_can_be_forgotten(s: Subject) -> None:
    session = await s.session()
    await s.journal.add_note(session, NOTE)
    assert await s.journal.refused(await found(s)) is None
    await ran(s, session, "a")
    assert await s.journal.refused(await found(s)) is None
    await ran(s, session, "b", NOTE, stop="refusal")
    await s.ended(session, "cancelled in the queue", Outcome(TurnState.CANCELLED, "cancelled"))
    refused = await s.journal.refused(await found(s))
    assert refused == RewindPoint("b", 1, 2, memory("a"), after="b")
    said: list[Event] = [Text("refused-b", "Forgotten.", note=True)]
    assert await s.journal.forget_refused(session, refused, None, said) == [5]
    record = await found(s)
    assert record.branch == refused.branch
    assert await s.journal.pending_notes(session) == [NOTE]
    assert await s.journal.refused(record) is None
    with pytest.raises(InvalidRequest, match="was rewound"):
        await s.branches.rewind_point(record, "b")


async def test_refused_prompt_before_others_is_kept(s: Subject) -> None:
    session = await s.session()
    await ran(s, session, "a", stop="refusal")
    first = await s.journal.refused(await found(s))
    assert first is not None
    assert first.branch == Branch("")
    await ran(s, session, "b")
    assert await s.journal.refused(await found(s)) is None


async def test_summary_replaces_what_went_with_refusal(s: Subject) -> None:
    session, summary = await s.session(), Note("summary", "What was before.")
    await s.journal.add_note(session, NOTE)
    await ran(s, session, "a", NOTE, stop="refusal")
    refused = await s.journal.refused(await found(s))
    assert refused is not None
    await s.journal.forget_refused(session, refused, summary, [])
    assert await s.journal.pending_notes(session) == [summary]
