"""What Claude remembers at a place, where turns of other programs were taken in from transcripts."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from pykoclaw_acp.errors import InvalidRequest
from pykoclaw_acp.model.branches import Branch, Memory
from pykoclaw_acp.model.events import Event, Text, ToolEnded, UserMessage
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow, TranscriptTurn
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.sessions.rewinding import Rewinding
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import overview
from pykoclaw_acp.store.database import Statement, Unit
from pykoclaw_acp.store.journal.branches import SqlBranchStore
from tests.integration.rig import Rig, rig

DAMAGED = Text("damaged-4711", "A part of the transcript is damaged.", note=True)


async def terminal(
    r: Rig, session: Session, *more: tuple[str, Event], last: str | None = None
) -> tuple[str, str]:
    """A turn of a terminal was taken in; returns the uuids of its prompt and its answer."""
    uuid, answer = str(uuid4()), str(uuid4())
    claude = session.record.claude_session_id or ""
    known = await r.journal.transcript_turns(session.id, 1000)
    head = known[-1].uuid if known else None
    row = TranscriptRow(claude, "/t", 1, 1, 1, 1, "{}", uuid, related=True)
    said: list[tuple[str, Event]] = [
        (f"{uuid}:0", UserMessage(uuid, {"type": "text", "text": "Asked there"}, "terminal")),
        (f"{answer}:0", Text(f"{answer}-0", "Answered there.")),
        *more,
    ]
    turn = TranscriptTurn(uuid, claude, head, last_uuid=last or answer)
    session.log.publish(await r.journal.commit_piece(session.id, ImportedPiece(row, said, [turn])))
    return uuid, answer


async def own(
    r: Rig, session: Session, turn_id: str, *, after: str | None = None, head: str | None = None
) -> None:
    """A turn of ours was seen in the transcript, after this one or the newest; Claude goes on from it,
    or from `head`.
    """
    claude = session.record.claude_session_id or ""
    known = await r.journal.transcript_turns(session.id, 1000)
    parent = after or (known[-1].uuid if known else None)
    row = TranscriptRow(claude, "/t", 1, 1, 1, 1, "{}", head or turn_id, related=True)
    turn = TranscriptTurn(turn_id, claude, parent, own=True)
    await r.journal.commit_piece(session.id, ImportedPiece(row, [], [turn]))


@pytest.mark.parametrize("last", ["known", "without events"])
@pytest.mark.parametrize("source", ["damaged-4711:0", "{}-before:0"])
async def test_memory_ends_at_an_entry_of_the_transcript(
    tmp_path: Path, source: str, last: str
) -> None:
    """Not at a damaged line, nor before the prompt that ended open calls."""
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        event = ToolEnded("call", "failed") if "before" in source else DAMAGED
        newest = None if last == "known" else str(uuid4())
        _, answer = await terminal(r, session, (source.format(uuid4()), event), last=newest)
        end = session.last_seq
        await r.run(session, "say 1")
        store = SqlBranchStore(r.database)
        assert (await store.rewind_point(session.record, None)).branch == Branch(session.id, answer)
        assert (await store.rewind_point(session.record, None)).upto == end


@pytest.mark.parametrize("what", ["rewind", "fork"])
async def test_unprompted_fork_remembers_what_its_source_does(tmp_path: Path, what: str) -> None:
    """Also of another program's turn."""
    async with rig(tmp_path) as r:
        source = await r.session()
        turns = [await r.prompt(source, "say 1")]
        await source.idle()
        await own(r, source, turns[0].turn_id)
        uuid, answer = await terminal(r, source)
        turns.append(await r.prompt(source, "say 1"))
        await source.idle()
        await own(r, source, turns[1].turn_id)
        made, _ = await r.sessions.forks.fork(source, "/", (), ())
        store = SqlBranchStore(r.database)
        if what == "rewind":
            memory = (await store.rewind_point(made.record, None)).memory
        else:
            memory = (await store.point(made.record, made.last_seq, uuid)).memory
        assert memory == Memory(Branch(source.id, answer))


async def test_fork_counts_the_turns_it_has(tmp_path: Path) -> None:
    """Not the terminal's turns after its place, which it knows all the same."""
    async with rig(tmp_path) as r:
        source = await r.session()
        first = await r.prompt(source, "say 1")
        await source.idle()
        await terminal(r, source)
        counts = []
        for message in (None, first.turn_id):
            made, _ = await r.sessions.forks.fork(source, "/", (), (), message_id=message)
            counts.append((await overview.details(r.database, made.id)).other_turns)
        assert counts == [1, 0]


async def test_terminals_turn_unknown_to_claude_is_summed_up(tmp_path: Path) -> None:
    """As after a fork of a session of which no transcript is known."""
    async with rig(tmp_path) as r:
        session = await r.session()
        first = await r.prompt(session, "say 1")
        await session.idle()
        end = session.last_seq
        await terminal(r, session)
        await r.run(session, "say 1")
        gone = Statement("DELETE FROM acp_transcripts")
        await r.database.commit(Unit((gone,)))
        store = SqlBranchStore(r.database)
        memory = (await store.rewind_point(session.record, None)).memory
        assert memory == Memory(Branch(session.id, f"end-{first.turn_id}"), lacks=end)


async def test_delivery_after_a_rewind_can_be_forked(tmp_path: Path) -> None:
    """The rewind covered a turn of a terminal; messages of that turn cannot."""
    async with rig(tmp_path) as r:
        session = await r.session()
        first = await r.prompt(session, "say 1")
        await session.idle()
        second = await r.prompt(session, "say 1")
        await session.idle()
        _, answer = await terminal(r, session)
        rewinding = Rewinding(SqlBranchStore(r.database), r.pool)
        await rewinding.rewind(session, second.turn_id, files=False, dry=False)
        await session.log.tell([Text("delivery", "The backup is done.", note=True)])
        store = SqlBranchStore(r.database)
        end = session.last_seq
        await r.prompt(session, "say 1")
        await session.idle()
        found = await store.point(session.record, session.last_seq, "delivery")
        assert found.upto == end
        assert found.memory.branch == Branch(session.id, f"end-{first.turn_id}")
        with pytest.raises(InvalidRequest, match="was rewound"):
            await store.point(session.record, session.last_seq, f"{answer}-0")


async def beside_a_terminal(r: Rig, session: Session) -> tuple[str, str]:
    """A turn of ours beside that of a terminal, from which Claude goes on; returns its id, and the uuid
    of the terminal's answer.
    """
    first = await ran(r, session)
    await own(r, session, first)
    uuid, answer = await terminal(r, session)
    beside = await ran(r, session)
    await own(r, session, beside, after=first, head=uuid)
    return beside, answer


async def ran(r: Rig, session: Session) -> str:
    """Id of a turn of ours."""
    turn = await r.prompt(session, "say 1")
    await session.idle()
    return turn.turn_id


@pytest.mark.parametrize("more", ["nothing", "seen", "unseen"])
async def test_memory_is_on_the_branch_that_goes_on(tmp_path: Path, more: str) -> None:
    """A turn that is not seen as one, as Claude begins it by itself, is where the one before it is."""
    async with rig(tmp_path) as r:
        session, store = await r.session(), SqlBranchStore(r.database)
        beside, answer = await beside_a_terminal(r, session)
        before = (await store.rewind_point(session.record, None)).upto
        assert (await store.rewind_point(session.record, None)).memory == Memory(
            Branch(session.id, answer)
        )
        if more != "nothing":
            another = await ran(r, session)
        if more == "seen":
            uuid = (await r.journal.transcript_turns(session.id, 1000))[1].uuid
            await own(r, session, another, after=beside, head=uuid)
        untold = Memory(Branch(session.id, answer), lacks=before)
        assert (await store.point(session.record, session.last_seq + 1, beside)).memory == untold
        await ran(r, session)
        assert (await store.rewind_point(session.record, None)).memory == untold


@pytest.mark.parametrize("pending", [True, False])
async def test_pending_note_is_not_summed_up(tmp_path: Path, pending: bool) -> None:
    """It tells of a terminal's turn from which Claude does not go on."""
    async with rig(tmp_path) as r:
        session, store = await r.session(), SqlBranchStore(r.database)
        first = await ran(r, session)
        await own(r, session, first)
        end = session.last_seq
        uuid, answer = await terminal(r, session)
        await own(r, session, await ran(r, session), after=first)
        if pending:
            await r.journal.mark_told(session.id, [(uuid, answer)], "telling")
            await r.journal.add_note(session.id, Note("telling", "News."))
        memory = (await store.rewind_point(session.record, None)).memory
        branch = Branch(session.id, f"end-{first}")
        assert memory == Memory(branch, lacks=None if pending else end)


@pytest.mark.parametrize("whose", ["ours", "theirs"])
@pytest.mark.parametrize("where", ["session", "fork"])
async def test_rewind_withdraws_what_tells_of_its_turns(
    tmp_path: Path, whose: str, where: str
) -> None:
    """Not what tells of others."""
    async with rig(tmp_path) as r:
        session = await r.session()
        first = await ran(r, session)
        await own(r, session, first)
        second = await ran(r, session)
        await own(r, session, second)
        uuid, answer = await terminal(r, session)
        told = [(second, None)] if whose == "ours" else [(uuid, answer)]
        await r.journal.mark_told(session.id, told, "telling")
        await r.journal.mark_told(session.id, [(first, None)], "other")
        for note in ("telling", "other"):
            await r.journal.add_note(session.id, Note(note, note))
        if where == "fork":
            session, _ = await r.sessions.forks.fork(session, "/", (), ())
        assert len(await r.journal.pending_notes(session.id)) == 2
        await Rewinding(SqlBranchStore(r.database), r.pool).rewind(
            session, None, files=False, dry=False
        )
        assert [one.text for one in await r.journal.pending_notes(session.id)] == ["other"]
        await Rewinding(SqlBranchStore(r.database), r.pool).rewind(
            session, None, files=False, dry=False
        )
        assert await r.journal.pending_notes(session.id) == []
