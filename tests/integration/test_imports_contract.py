"""Contract of `transcripts.ports.ImportStore`: a piece of a transcript is in the log whole, or not at
all, and once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from pykoclaw_acp.channel.frames import EventFrame, Numbered, TurnEnded, TurnStarted
from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.branches import Branch, Fork, ForkPoint, Memory, RewindPoint, Rewound
from pykoclaw_acp.model.events import Event, Text, ToolStarted, UserMessage
from pykoclaw_acp.model.imports import (
    ImportedPiece,
    KnownTranscripts,
    TranscriptRow,
    TranscriptTurn,
)
from pykoclaw_acp.model.prompt_text import Note
from tests.integration.journals import (
    BOTH,
    CANCELLED,
    DONE,
    Subject,
    end,
    events,
    places,
    prompt,
    request,
    subject,
)
from tests.integration.programs import TASK

ROW = TranscriptRow(
    "claude", "/t/claude.jsonl", 100, 2**62, 2**63 + 5, 80, "{}", "t1", related=True
)
HELLO = UserMessage("t1", {"type": "text", "text": "Hello"}, "terminal")


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


def piece(*said: tuple[str, Event], **fields: Any) -> ImportedPiece:
    return ImportedPiece(fields.pop("row", ROW), list(said), **fields)


async def known_transcripts(s: Subject, session: str) -> KnownTranscripts:
    return await s.imports.known_transcripts(session, (), 9)


async def test_piece_is_logged_with_turns_and_place(s: Subject) -> None:
    session = await s.session()
    await s.journal.append(session, [Text("m", "before")])
    turns = [TranscriptTurn("t1", "claude", None, own=False, last_uuid="e1")]
    committed = await s.imports.commit_piece(
        session, piece(("e1:0", HELLO), ("e2:0", Text("a", "Hi")), turns=turns, last={"t1": "e2"})
    )
    assert (events(committed), places(committed)) == ([HELLO, Text("a", "Hi")], [2, 3])
    logged = await s.journal.read(session, 1, 100)
    assert (events(logged), places(logged)) == ([HELLO, Text("a", "Hi")], [2, 3])
    assert {one.turn_id for one in logged} == {None}
    known = await known_transcripts(s, session)
    assert (known.rows, known.followed, known.has_turns) == ({"claude": ROW}, None, False)
    (turn,) = await s.imports.transcript_turns(session, 10)
    assert turn == replace(turns[0], last_uuid="e2")
    assert await s.journal.in_transcript(session, "t1")
    assert not await s.journal.in_transcript(session, "t2")
    assert not await s.journal.in_transcript("other", "t1")
    found = await s.journal.find(session)
    assert found is not None
    assert (found.last_seq, found.prompted) == (3, True)
    await s.imports.commit_piece(session, piece(row=replace(ROW, read_upto=100, head=None)))
    known = await known_transcripts(s, session)
    assert (known.rows["claude"].read_upto, known.rows["claude"].head) == (100, None)


async def test_only_transcripts_that_are_looked_at_are_read(s: Subject) -> None:
    """An hourly task adds thousands."""
    session = await s.session()
    times = {"c0": 5, "c1": 10**18, "c2": 9 * 10**17, "c3": 7, "c4": 6, "c5": 8}
    for name, mtime in times.items():
        row = replace(ROW, claude_session_id=name, path=f"/t/{name}", mtime=mtime)
        await s.imports.commit_piece(session, piece(row=row))
    known = await s.imports.known_transcripts(session, {"c0", "none"}, 2)
    assert sorted(known.rows) == ["c0", "c1", "c2"]
    await s.imports.follow_transcript(session, "c3", told=False)
    known = await s.imports.known_transcripts(session, {"c0"}, 1)
    assert sorted(known.rows) == ["c0", "c1", "c3"]
    assert await s.imports.transcript_paths(session) == {one: f"/t/{one}" for one in times}
    assert await s.imports.transcript_paths("other") == {}


async def test_an_event_is_imported_once(s: Subject) -> None:
    session = await s.session()
    await s.imports.commit_piece(session, piece(("e1:0", HELLO)))
    again = piece(("e9:0", Text("a", "new")), ("e1:0", HELLO), row=replace(ROW, read_upto=99))
    with pytest.raises(RowRefused):
        await s.imports.commit_piece(session, again)
    assert events(await s.journal.read(session, 0, 100)) == [HELLO]
    assert (await known_transcripts(s, session)).rows["claude"].read_upto == 80
    assert await s.imports.imported(session, ["e1:0", "e9:0"]) == {"e1:0"}
    other = await s.session("two")
    assert await s.imports.imported(other, ["e1:0"]) == set()
    assert places(await s.imports.commit_piece(other, piece(("e1:0", HELLO)))) == [1]


async def test_imported_text_is_not_joined_with_what_follows(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    said = EventFrame(epoch=epoch, n=2, turn_id="turn", event=Text("m", "ours "))
    await s.journal.record(session, epoch, [said], {})
    await s.imports.commit_piece(session, piece(("e1:0", Text("m2", "theirs "))))
    await s.journal.record(session, epoch, [end(epoch, 3, "turn")], {"turn": DONE})
    assert await s.texts(session) == "ours theirs "
    assert [one.turn_id for one in await s.journal.read(session, 0, 9)] == ["turn", None]


async def test_session_that_is_gone_takes_nothing(s: Subject) -> None:
    with pytest.raises(Conflict):
        await s.imports.commit_piece("nothing", piece(("e1:0", HELLO)))


async def test_deleted_session_takes_nothing_more(s: Subject) -> None:
    """Neither from a look that goes on during its deletion, nor from its worker."""
    session = await s.session()
    _, epoch = await s.running(session)
    await s.imports.commit_piece(session, piece(("e1:0", HELLO)))
    await s.journal.delete(session)
    turns = [TranscriptTurn("t9", "claude")]
    for more in (piece(("e2:0", Text("a", "Hi"))), piece(turns=turns)):
        with pytest.raises(Conflict):
            await s.imports.commit_piece(session, more)
    with pytest.raises(Conflict):
        await s.journal.append(session, [Text("m", "secret")])
    said = EventFrame(epoch=epoch, n=2, turn_id="turn", event=Text("m", "secret"))
    begun = TurnStarted(epoch=epoch, n=3, turn_id="b1", background=True)
    for frame in (said, begun):
        with pytest.raises(Conflict):
            await s.journal.record(session, epoch, [frame], {})
    assert await s.journal.read(session, 0, 100) == []
    assert await s.imports.transcript_turns(session, 100) == []


async def test_turns_keep_their_order_and_their_first_place(s: Subject) -> None:
    session = await s.session()
    first = [TranscriptTurn(f"t{n}", "claude", f"t{n - 1}" if n else None) for n in range(5)]
    await s.imports.commit_piece(session, piece(turns=first[:3]))
    copied = [replace(first[1], claude_session_id="fork"), *first[3:]]
    await s.imports.commit_piece(session, piece(turns=copied))
    assert await s.imports.transcript_turns(session, 100) == first
    assert await s.imports.transcript_turns(session, 2) == first[3:]


async def test_turns_have_the_parents_named_last(s: Subject) -> None:
    session = await s.session()
    turns = [TranscriptTurn(f"t{n}", "claude", f"t{n - 1}" if n else None) for n in range(3)]
    await s.imports.commit_piece(session, piece(turns=turns[:2]))
    parents: dict[str, str | None] = {"t1": None, "t2": "t0", "unknown": "t0"}
    await s.imports.commit_piece(session, piece(turns=turns[2:], parents=parents))
    found = {one.uuid: one.parent for one in await s.imports.transcript_turns(session, 9)}
    assert found == {"t0": None, "t1": None, "t2": "t0"}


async def test_turns_that_claude_was_given_are_own(s: Subject) -> None:
    session = await s.session()
    await s.running(session, "one")
    await s.ended(session, "two")
    await s.journal.accept(prompt(session, "waiting"))
    assert sorted(await s.imports.own_turns(session, new=False)) == ["one", "two"]
    await s.imports.commit_piece(
        session, piece(turns=[TranscriptTurn("one", "claude", None, own=True)])
    )
    assert await s.imports.own_turns(session, new=True) == ["two"]
    assert (await known_transcripts(s, session)).has_turns


async def test_claudes_own_turns_are_known_by_first_message(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    started = TurnStarted(epoch=epoch, n=3, turn_id="b1", background=True)
    said = EventFrame(epoch=epoch, n=4, turn_id="b1", event=Text("msg_a-1", "Done."))
    await s.journal.record(session, epoch, [end(epoch, 2, "turn"), started, said], {"turn": DONE})
    ids, running = await s.imports.background_messages(session, 10)
    assert ("msg_a" in ids, running) == (True, True)
    ended = TurnEnded(
        epoch=epoch, n=5, turn_id="b1", stop_reason="end_turn", claude_session_id="claude"
    )
    more = TurnStarted(epoch=epoch, n=6, turn_id="b2", background=True)
    call = ToolStarted("toolu_b", "Bash", "ls", "execute")
    tool = EventFrame(epoch=epoch, n=7, turn_id="b2", event=call)
    await s.journal.record(session, epoch, [ended, more, tool], {"b1": DONE})
    assert (await s.imports.background_messages(session, 1))[0] == ["toolu_b"]
    assert "msg_a" in (await s.imports.background_messages(session, 2))[0]
    assert (await known_transcripts(s, session)).followed == "claude"


async def test_claudes_own_turns_are_known_by_last_entry(s: Subject) -> None:
    """One that its service has not answered has no message."""
    session = await s.session()
    _, epoch = await s.running(session)
    started = TurnStarted(epoch=epoch, n=3, turn_id="b1", background=True)
    ended = TurnEnded(epoch=epoch, n=4, turn_id="b1", stop_reason=None, claude_session_id="claude")
    outcome = replace(DONE, last_uuid="e9")
    await s.journal.record(
        session, epoch, [end(epoch, 2, "turn"), started, ended], {"turn": DONE, "b1": outcome}
    )
    assert await s.imports.background_messages(session, 1) == (["e9"], False)


async def test_claudes_words_in_clients_turn_are_known(s: Subject) -> None:
    """Of a turn that it had begun by itself when the prompt was sent."""
    session = await s.session()
    _, epoch = await s.running(session)
    texts = [Text("msg_own-0", "It has ended."), Text("msg_later-0", "Hello.")]
    frames = [
        EventFrame(epoch=epoch, n=n, turn_id="turn", event=text) for n, text in enumerate(texts, 2)
    ]
    await s.journal.record(session, epoch, [*frames, end(epoch, 4, "turn")], {"turn": DONE})
    ids, _ = await s.imports.background_messages(session, 1)
    assert "msg_own" in ids
    assert "msg_later" not in ids


async def test_subagents_calls_are_no_messages_of_claudes(s: Subject) -> None:
    """A turn may begin with the question of a subagent, whose calls are not in that transcript."""
    session = await s.session()
    _, epoch = await s.running(session)
    started = TurnStarted(epoch=epoch, n=3, turn_id="b1", background=True)
    told: list[Event] = [
        ToolStarted("toolu_sub", "Bash", "ls", "execute", parent_id="toolu_agent"),
        ToolStarted("toolu_main", "Bash", "ls", "execute"),
        Text("msg_later-1", "Done."),
    ]
    frames = [
        EventFrame(epoch=epoch, n=n, turn_id="b1", event=event) for n, event in enumerate(told, 4)
    ]
    await s.journal.record(
        session, epoch, [end(epoch, 2, "turn"), started, *frames], {"turn": DONE}
    )
    assert (await s.imports.background_messages(session, 1))[0] == ["toolu_main"]


async def test_turns_are_told_unless_they_went_on(s: Subject) -> None:
    session = await s.session()
    turns = [TranscriptTurn(f"t{n}", "claude", None, last_uuid="e1") for n in range(3)]
    await s.imports.commit_piece(session, piece(turns=turns))
    await s.imports.commit_piece(session, piece(last={"t1": "e2"}))
    await s.imports.mark_told(session, [("t0", "e1"), ("t1", "e1")], "note")
    told = [one.told for one in await s.imports.transcript_turns(session, 9)]
    assert told == [True, False, False]
    await s.imports.commit_piece(session, piece(last={"t0": "e3"}))
    assert not (await s.imports.transcript_turns(session, 9))[0].told
    await s.imports.follow_transcript(session, "claude", told=True)
    assert not any(one.told for one in (await s.imports.transcript_turns(session, 9))[::2])
    await s.imports.follow_transcript(session, "other", told=True)
    assert all(one.told for one in await s.imports.transcript_turns(session, 9))
    assert (await known_transcripts(s, session)).followed == "other"


@pytest.mark.parametrize(
    ("ended_in", "told"), [("fresh", True), ("seen", False), ("claude", False)]
)
async def test_new_claude_session_is_told_nothing(s: Subject, ended_in: str, told: bool) -> None:
    """As after `/clear`, from the end of the first turn in it; not one that others have continued."""
    session = await s.session()
    await s.imports.commit_piece(session, piece(turns=[TranscriptTurn("t0", "claude")]))
    await s.imports.commit_piece(session, piece(row=replace(ROW, claude_session_id="seen")))
    await s.imports.follow_transcript(session, "claude", told=False)
    _, epoch = await s.running(session)
    ended = changed(end(epoch, 2, "turn"), claude_session_id=ended_in)
    await s.journal.record(session, epoch, [ended], {"turn": DONE})
    assert [one.told for one in await s.imports.transcript_turns(session, 9)] == [told]
    assert (await known_transcripts(s, session)).followed == ended_in


async def test_rewound_turn_of_others_stays_told(s: Subject) -> None:
    """Also if it goes on; one that began before the rewound prompt does not."""
    session = await s.session()
    said = UserMessage("t0", {"type": "text", "text": "Before"}, "terminal")
    turns = [TranscriptTurn(f"t{n}", "claude", last_uuid=f"t{n}") for n in range(2)]
    await s.imports.commit_piece(session, piece(("t0:0", said), turns=turns[:1]))
    await s.journal.accept(turn := prompt(session))
    epoch = await s.workers.next_epoch(session)
    prompted = UserMessage("turn", {"type": "text", "text": "Rewound"})
    await s.journal.dispatch(turn, epoch, [prompted])
    await s.journal.record(session, epoch, [end(epoch, 1, "turn")], {"turn": DONE})
    await s.imports.commit_piece(session, piece(("t1:0", HELLO), turns=turns[1:]))
    point = RewindPoint("turn", 1, 1, Memory(Branch("claude", "t0")))
    done = Rewound("turn", 1, [], None, None)
    await s.branches.rewind(session, point, [], done, note=None, request_key=None)
    await s.imports.commit_piece(session, piece(last={"t0": "e0", "t1": "e1"}))
    found = {one.uuid: one for one in await s.imports.transcript_turns(session, 9)}
    assert (found["t0"].told, found["t1"].told) == (False, True)
    assert found["t1"].last_uuid == "e1"


async def test_newer_note_replaces_one_that_waits(s: Subject) -> None:
    """A turn that was told of while it ran is told of once, unless a prompt has carried that."""
    session = await s.session()
    turns = [TranscriptTurn(f"t{n}", "claude") for n in range(3)]
    await s.imports.commit_piece(session, piece(turns=turns))
    for note, *told in (("half", "t0"), ("both", "t0", "t1"), ("more", "t1", "t2")):
        await s.journal.add_note(session, Note(note, "Turns."))
        await s.imports.mark_told(session, [(one, None) for one in told], note)
    assert [one.note_id for one in await s.journal.pending_notes(session)] == ["both", "more"]


async def test_turns_name_the_prompt_that_told_them(s: Subject) -> None:
    session, note = await s.session(), Note("note", "You have no record of these turns.")
    turns = [TranscriptTurn(f"t{n}", "claude") for n in range(2)]
    await s.imports.commit_piece(session, piece(turns=turns))
    await s.journal.add_note(session, note)
    await s.imports.mark_told(session, [("t0", None)], "note")

    async def told() -> list[tuple[bool, str | None]]:
        return [(one.told, one.told_in) for one in await s.imports.transcript_turns(session, 9)]

    assert await told() == [(True, None), (False, None)]
    await s.journal.accept(turn := prompt(session))
    await s.journal.dispatch(turn, await s.workers.next_epoch(session), [], [note])
    assert await told() == [(True, "turn"), (False, None)]
    await s.imports.follow_transcript(session, "other", told=True)
    assert await told() == [(True, None), (True, None)]


async def test_rewound_turns_are_forgotten_not_told(s: Subject) -> None:
    """With what their prompts had told Claude, and what Claude began by itself after them."""
    session, note = await s.session(), Note("note", "You have no record of these turns.")
    _, epoch = await s.running(session, "t0")
    await s.journal.record(session, epoch, [end(epoch, 2, "t0")], {"t0": DONE})
    await s.journal.add_note(session, note)
    await s.journal.accept(turn := prompt(session, "t1"))
    await s.journal.dispatch(turn, epoch, [], [note])
    frames: list[Numbered] = [
        TurnStarted(epoch=epoch, n=3, turn_id="t1"),
        end(epoch, 4, "t1"),
        TurnStarted(epoch=epoch, n=5, turn_id="b1", background=True),
        end(epoch, 6, "b1"),
    ]
    await s.journal.record(session, epoch, frames, {"t1": DONE, "b1": DONE})
    turns = [TranscriptTurn(f"t{n}", "claude", own=n < 2, last_uuid="e1") for n in range(4)]
    await s.imports.commit_piece(session, piece(turns=turns))
    await s.imports.mark_told(session, [("t3", "e1")], "note")
    assert await s.journal.pending_notes(session) == []
    gone = {"t1", "t2", "t3"}
    await s.imports.commit_piece(session, piece(last={"t2": "e2"}, rewound=gone))
    found = await s.imports.transcript_turns(session, 9)
    assert [(one.told, one.told_in) for one in found] == [(False, None), *[(True, None)] * 3]
    assert await s.journal.pending_notes(session) == [note]
    assert await s.journal.forgotten(session) - gone == {"b1"}
    assert "t1" in await s.journal.forgotten(session)


async def test_only_turns_on_rewound_branch_are_rewound(s: Subject) -> None:
    """Not those that stand after them, as a prompt that was not sent, or one that is read later; with
    the prompts that such a turn has taken up.
    """
    session = await s.session()
    _, epoch = await s.running(session, "t1")
    await s.journal.accept(steered := prompt(session, "steered"))
    await s.journal.dispatch(steered, epoch, [])
    frames: list[Numbered] = [
        TurnStarted(epoch=epoch, n=2, turn_id="steered", into="t1"),
        end(epoch, 3, "t1"),
        changed(end(epoch, 4, "steered"), into="t1"),
    ]
    await s.journal.record(session, epoch, frames, {"t1": DONE, "steered": DONE})
    await s.ended(session, "unsent", CANCELLED)
    await s.journal.accept(later := prompt(session, "later"))
    await s.journal.dispatch(later, epoch, [])
    more: list[Numbered] = [
        TurnStarted(epoch=epoch, n=5, turn_id="later"),
        end(epoch, 6, "later"),
        TurnStarted(epoch=epoch, n=7, turn_id="b1", background=True),
        end(epoch, 8, "b1"),
    ]
    await s.journal.record(session, epoch, more, {"later": DONE, "b1": DONE})
    turns = [TranscriptTurn("t1", "claude", own=True)]
    await s.imports.commit_piece(session, piece(turns=turns, rewound={"t1"}))
    assert await s.journal.forgotten(session) == {"t1", "steered"}


async def test_fork_is_told_what_was_rewound_there(s: Subject) -> None:
    """Its turns, also those of a fork of a fork, have ids of their own; its source is left alone."""
    session, note = await s.session(), Note("note", "You have no record of these turns.")
    await s.journal.add_note(session, note)
    await s.journal.accept(turn := prompt(session, "t1"))
    epoch = await s.workers.next_epoch(session)
    await s.journal.dispatch(
        turn, epoch, [UserMessage("t1", {"type": "text", "text": "Hi"})], [note]
    )
    frames: list[Numbered] = [TurnStarted(epoch=epoch, n=1, turn_id="t1"), end(epoch, 2, "t1")]
    await s.journal.record(session, epoch, frames, {"t1": DONE})
    place = ForkPoint(99, Memory(Branch("claude", "e1")))
    for source, name in ((session, "fork"), ("fork", "deep")):
        made = Fork(name, f"acp-{name}", source, "/work", (), place, said=(), at_end=True)
        await s.branches.fork(made)
    for name, told in (("fork", "fork/note"), ("deep", "deep/fork/note")):
        assert await s.journal.pending_notes(name) == []
        await s.imports.commit_piece(name, piece(rewound={"t1"}))
        assert [one.note_id for one in await s.journal.pending_notes(name)] == [told]
        assert await s.journal.forgotten(name) == {"t1"}
    assert await s.journal.pending_notes(session) == []
    assert await s.journal.forgotten(session) == set()


async def test_parked_requests_of_rewound_turns_end(s: Subject) -> None:
    """Those of other turns stay."""
    session = await s.session()
    for turn_id in ("t1", "t2"):
        await s.journal.accept(turn := prompt(session, turn_id))
        epoch = await s.workers.next_epoch(session)
        await s.journal.dispatch(turn, epoch, [])
        asked = request(f"asked-{turn_id}", turn_id, epoch=epoch)
        await s.journal.record(session, epoch, [asked], {})
        await s.journal.park(session, asked, [])
        await s.journal.finish(session, turn_id, CANCELLED, [])
    await s.imports.commit_piece(session, piece(turns=[TranscriptTurn("t3", "claude")]))
    assert await s.journal.is_pending("asked-t2")
    await s.imports.commit_piece(session, piece(rewound={"t2"}))
    assert await s.journal.is_pending("asked-t1")
    assert not await s.journal.is_pending("asked-t2")


async def test_prompts_of_tasks_are_known_by_conversation(s: Subject) -> None:
    assert await s.imports.scheduled_prompts(TASK.conversation) == []
    for task_id, conversation in (("t1", "wa-andy"), ("t2", "wa-andy"), ("t3", "wa-other")):
        task = changed(TASK, id=task_id, conversation=conversation, prompt=f"Task {task_id}")
        await s.others.schedule(task)
    assert sorted(await s.imports.scheduled_prompts("wa-andy")) == ["Task t1", "Task t2"]
    assert await s.imports.scheduled_prompts("wa-other") == ["Task t3"]
