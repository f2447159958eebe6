"""Claude's memory of a conversation is lost: said, and made up for as the policy says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import WorkerFailed
from pykoclaw_acp.model.branches import Branch
from pykoclaw_acp.model.events import Plan, PlanEntry, Text
from pykoclaw_acp.model.lost_context import LostContext
from pykoclaw_acp.model.prompt_text import NOTES_TAG, Note
from pykoclaw_acp.model.turns import Outcome, TurnState
from pykoclaw_acp.sessions import context
from pykoclaw_acp.sessions.early_starts import EarlyStarts
from pykoclaw_acp.sessions.ports import RowStanding
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import branches
from pykoclaw_acp.store.database import Statement, Unit
from tests.integration.rig import TIMES, Client, Rig, rig
from tests.integration.scripted_transcripts import ScriptedTranscripts
from tests.waiting import eventually


@asynccontextmanager
async def talked(
    path: Path, turns: int, policy: LostContext = LostContext.AUTO
) -> AsyncIterator[tuple[Rig, Session, list[str], ScriptedTranscripts]]:
    """A session after some turns, whose worker is gone; the ids of its turns."""
    transcripts = ScriptedTranscripts()
    async with rig(path, transcripts, times=replace(TIMES, lost_context=policy)) as r:
        session = await r.session()
        for number in range(turns):
            await r.run(session, f"say {number + 1}")
        await rest(r, session)
        yield r, session, await ids(r), transcripts


async def ids(r: Rig) -> list[str]:
    rows = await r.database.read("SELECT turn_id FROM acp_turns ORDER BY position")
    return [turn for (turn,) in rows]


def whole(*turns: str) -> set[str]:
    """The first and the last entries of these turns."""
    return {*turns, *(f"end-{turn}" for turn in turns)}


async def rest(r: Rig, session: Session) -> None:
    r.pool.retire(session.id)
    await eventually(lambda: not r.pool.is_live(session.id))


def given(r: Rig) -> str:
    """The note that the newest prompt carried."""
    first = r.launcher.launched[-1].contents[-1][0]["text"]
    return str(first) if first.startswith(f"<{NOTES_TAG}>") else ""


def notices(client: Client) -> list[str]:
    events = [one.event for one in client.shown]
    return [one.text for one in events if isinstance(one, Text) and one.note]


async def shown(session: Session) -> list[str]:
    client = Client()
    subscription = session.subscribe(client, 0)
    await subscription.reached(session.last_seq)
    subscription.close()
    return notices(client)


async def test_what_a_transcript_lacks_is_summed_up_once(tmp_path: Path) -> None:
    async with talked(tmp_path, 3) as (r, session, turns, transcripts):
        transcripts.held = whole(turns[0])
        assert (await r.run(session, "say 4")).state is TurnState.DONE
        assert "Asked: say 2" in given(r)
        assert "Asked: say 3" in given(r)
        assert "Asked: say 1" not in given(r)
        assert r.launcher.launched[-1].spec.resume_session_id is not None
        [notice] = await shown(session)
        assert "the last 2 turns" in notice
        await rest(r, session)
        transcripts.held |= whole((await ids(r))[-1])
        await r.run(session, "say 5")
        assert given(r) == ""
        assert len(await shown(session)) == 1


async def test_summary_that_was_lost_too_is_given_again(tmp_path: Path) -> None:
    async with talked(tmp_path, 3) as (r, session, turns, transcripts):
        for number in (4, 5):  # each time the transcript is put back as it was after the first turn
            transcripts.held = whole(turns[0])
            await r.run(session, f"say {number}")
            await rest(r, session)
        assert all(f"Asked: say {one}" in given(r) for one in (2, 3, 4))
        assert "Asked: say 1" not in given(r)
        assert len(await shown(session)) == 2


async def test_note_its_dead_worker_never_wrote_returns(tmp_path: Path) -> None:
    async with talked(tmp_path, 1) as (r, session, turns, transcripts):
        note = Note("news", "There is news.")
        await r.journal.add_note(session.id, note)
        transcripts.held = whole(turns[0])
        assert (await r.run(session, "die")).state is not TurnState.DONE
        assert "There is news." in given(r)
        await r.run(session, "say 2")
        assert "There is news." in given(r)
        transcripts.held |= whole(*await ids(r))
        await rest(r, session)
        await r.run(session, "say 3")
        assert given(r) == ""


async def test_note_in_the_transcript_is_given_once(tmp_path: Path) -> None:
    async with talked(tmp_path, 1) as (r, session, turns, transcripts):
        await r.journal.add_note(session.id, Note("news", "There is news."))
        transcripts.held = whole(turns[0])
        assert (await r.run(session, "die")).state is not TurnState.DONE
        transcripts.held |= {(await ids(r))[-1]}
        await r.run(session, "say 2")
        assert given(r) == ""


async def test_note_of_cleared_turn_stays_given(tmp_path: Path) -> None:
    async with talked(tmp_path, 1) as (r, session, turns, transcripts):
        await r.journal.add_note(session.id, Note("news", "There is news."))
        transcripts.held = whole(turns[0])
        assert (await r.run(session, "die")).state is not TurnState.DONE
        transcripts.held |= {(await ids(r))[-1]}
        await r.run(session, "say 2")
        await rest(r, session)
        transcripts.held = whole(*turns, (await ids(r))[-1])  # as that of another Claude session
        await r.run(session, "say 3")
        assert given(r) == ""


@pytest.mark.parametrize("begun", ["a fork", "early"])
async def test_lost_note_returns_however_claude_begins(tmp_path: Path, begun: str) -> None:
    """It is in no transcript, and nothing else looks for it once a turn has ended well."""
    async with talked(tmp_path, 1) as (r, session, turns, transcripts):
        await r.journal.add_note(session.id, Note("news", "There is news."))
        transcripts.held = whole(turns[0])
        assert (await r.run(session, "die")).state is not TurnState.DONE
        if begun == "early":
            await eventually(lambda: not session.busy)
            r.sessions.early = EarlyStarts(r.sessions.live, r.pool)
            r.sessions.early.begin(session)
            await eventually(lambda: r.pool.is_live(session.id))
        else:
            await r.database.commit(Unit((branches.save(session.id, Branch("source")),)))
            session.record.branch = Branch("source")
        await r.run(session, "say 2")
        assert "There is news." in given(r)


def later(
    path: Path, policy: LostContext, transcripts: ScriptedTranscripts
) -> AbstractAsyncContextManager[Rig]:
    """The next daemon, with another setting."""
    return rig(path, transcripts, times=replace(TIMES, lost_context=policy))


async def says_what_is_lost(r: Rig, session: Session, *, noted: bool) -> None:
    """The second and third turn of five, to people and, if it is `noted`, to Claude."""
    [notice] = await shown(session)
    assert "2 turns before the newest ones" in notice
    lacked = [f"Asked: say {one}" in given(r) for one in (1, 2, 3, 4, 5)]
    assert lacked == [False, noted, noted, False, False]


@pytest.mark.parametrize("policy", LostContext)
async def test_turns_missing_before_newest_are_told_once(
    tmp_path: Path, policy: LostContext
) -> None:
    """It was replaced by an older one during a turn, or before the daemon looked at it."""
    async with talked(tmp_path, 4, policy) as (r, session, turns, transcripts):
        transcripts.held = whole(turns[0], turns[3])
        outcome = await r.run(session, "say 5")
        if policy is LostContext.REQUIRED:
            assert _failure(outcome).kind == "context_lost"
            assert "2 turns before the newest ones" in _failure(outcome).message
            assert _failure(await r.run(session, "say 5")).kind == "context_lost"
        else:
            await says_what_is_lost(r, session, noted=policy is LostContext.AUTO)
    if policy is LostContext.REQUIRED:
        async with later(tmp_path, LostContext.OFF, transcripts) as r:
            session = await r.sessions.get(session.id)
            await r.run(session, "say 5")
            await says_what_is_lost(r, session, noted=False)
    async with later(tmp_path, LostContext.REQUIRED, transcripts) as r:
        session = await r.sessions.get(session.id)
        for number in (6, 7):
            await rest(r, session)
            transcripts.held |= whole((await ids(r))[-1])
            assert (await r.run(session, f"say {number}")).state is TurnState.DONE
            assert given(r) == ""
        assert len(await shown(session)) == 1


async def test_transcript_beginning_inside_newest_turn_is_told(tmp_path: Path) -> None:
    """It was removed during the turn: the CLI goes on in a new file."""
    async with talked(tmp_path, 3) as (r, session, turns, transcripts):
        transcripts.held = {f"end-{turns[2]}"}
        await r.run(session, "say 4")
        assert all(f"Asked: say {one}" in given(r) for one in (1, 2, 3))
        assert r.launcher.launched[-1].spec.branch is None
        [notice] = await shown(session)
        assert "the last 3 turns" in notice


async def test_long_loss_is_told_whole_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(context, "LOOKED_AT", 2)
    async with talked(tmp_path, 5) as (r, session, turns, transcripts):
        transcripts.held = whole(turns[0], turns[4])
        await r.run(session, "say 6")
        assert all(f"Asked: say {one}" in given(r) for one in (2, 3, 4))
        [notice] = await shown(session)
        assert "3 turns before the newest ones" in notice


async def test_second_cut_before_any_prompt_is_told(tmp_path: Path) -> None:
    async with talked(tmp_path, 4, LostContext.OFF) as (r, session, turns, transcripts):
        transcripts.held = whole(*turns[:3])
        await session.others.context.before_launch()
        await session.others.context.before_launch()
        transcripts.held = whole(*turns[:1])
        await r.run(session, "say 5")
        first, second = await shown(session)
        assert "the last turn" in first
        assert "the last 2 turns" in second


async def test_prompt_hook_stopped_is_in_no_transcript(tmp_path: Path) -> None:
    """Its turn has the newest entry of the one before."""
    async with talked(tmp_path, 3) as (r, session, turns, transcripts):
        stopped = "UPDATE acp_turns SET last_uuid = ? WHERE turn_id = ?"
        values = (f"end-{turns[1]}", turns[2])
        await r.database.commit(Unit((Statement(stopped, values, rows=1),)))
        transcripts.held = whole(*turns[:2])
        await r.run(session, "say 4")
        assert given(r) == ""
        assert await shown(session) == []


async def test_transcript_ending_inside_last_turn_is_told(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(context, "PAUSE", 0)
    async with talked(tmp_path, 2) as (r, session, turns, transcripts):
        transcripts.held = {*whole(turns[0]), turns[1]}
        await r.run(session, "say 3")
        assert "Asked: say 2" in given(r)
        assert "Asked: say 1" not in given(r)
        assert r.launcher.launched[-1].spec.branch is None
        assert any("the last turn" in one for one in await shown(session))


async def test_the_end_of_a_turn_is_required_too(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(context, "PAUSE", 0)
    async with talked(tmp_path, 1, LostContext.REQUIRED) as (r, session, turns, transcripts):
        transcripts.held = set(turns)
        assert _failure(await r.run(session, "say 2")).kind == "context_lost"


async def test_turn_that_ended_badly_may_lack_end(tmp_path: Path) -> None:
    async with talked(tmp_path, 1) as (r, session, turns, transcripts):
        transcripts.held = set(turns)
        stopped = Statement("UPDATE acp_turns SET stop_reason = 'max_tokens'", rows=1)
        await r.database.commit(Unit((stopped,)))
        await r.run(session, "say 2")
        assert given(r) == ""
        assert await shown(session) == []


async def test_a_foreign_transcript_is_not_gone_on_with(tmp_path: Path) -> None:
    async with talked(tmp_path, 2) as (r, session, _, transcripts):
        transcripts.held = set()
        await r.run(session, "say 3")
        spec = r.launcher.launched[-1].spec
        assert spec.branch is not None
        assert spec.branch.source == ""
        assert "Asked: say 1\nAnswered: 0" in given(r)
        assert len(await shown(session)) == 1


@pytest.mark.parametrize("gone", [True, False])
async def test_lost_memory_takes_its_tasks_along(tmp_path: Path, gone: bool) -> None:
    """Those of a Claude session that lacks some turns only are still there."""
    async with talked(tmp_path, 2) as (r, session, turns, transcripts):
        tasks = (PlanEntry("Do it", "pending", "1"),)
        await session.log.tell([Plan(tasks)])
        transcripts.held = set() if gone else whole(turns[0])
        await r.run(session, "say 3")
        assert r.launcher.launched[-1].spec.options.plan == (() if gone else tasks)
        client = Client()
        subscription = session.subscribe(client, 0)
        await subscription.reached(session.last_seq)
        subscription.close()
        plans = [one.event for one in client.shown if isinstance(one.event, Plan)]
        assert plans == [Plan(tasks), *([Plan(())] if gone else [])]


async def test_a_memory_that_is_required_ends_the_prompt(tmp_path: Path) -> None:
    async with talked(tmp_path, 1, LostContext.REQUIRED) as (r, session, _, transcripts):
        transcripts.held = set()
        launched = len(r.launcher.launched)
        failure = _failure(await r.run(session, "say 2"))
        assert failure.kind == "context_lost"
        assert "PYKOCLAW_LOST_CONTEXT" in failure.message
        assert len(r.launcher.launched) == launched


@pytest.mark.parametrize("policy", LostContext)
async def test_memory_lost_while_worker_lives_is_lost(tmp_path: Path, policy: LostContext) -> None:
    """The prompt is treated as that for which a worker starts."""
    async with talked(tmp_path, 2, policy) as (r, session, turns, transcripts):
        transcripts.held = whole(*turns)
        await r.run(session, "say 3")
        await eventually(lambda: not session.others)
        transcripts.find(RowStanding.SAME, replaced=True)
        transcripts.held = whole(turns[0])
        before = len(r.launcher.launched)
        outcome = await r.run(session, "say 4")
        if policy is LostContext.REQUIRED:
            assert _failure(outcome).kind == "context_lost"
        else:
            assert len(r.launcher.launched) == before + 1
            assert ("Asked: say 3" in given(r)) == (policy is LostContext.AUTO)
            [notice] = await shown(session)
            assert "the last 2 turns" in notice


async def test_replaced_transcript_with_all_turns_keeps_worker(
    tmp_path: Path,
) -> None:
    async with talked(tmp_path, 1) as (r, session, turns, transcripts):
        transcripts.held = whole(*turns)
        await r.run(session, "say 2")
        await eventually(lambda: not session.others)
        transcripts.held = whole(*await ids(r))
        before = len(r.launcher.launched)
        transcripts.find(RowStanding.SAME, replaced=True)
        assert (await r.run(session, "say 3")).state is TurnState.DONE
        assert len(r.launcher.launched) == before
        assert await shown(session) == []


async def test_without_a_summary_claude_begins_with_nothing(tmp_path: Path) -> None:
    async with talked(tmp_path, 1, LostContext.OFF) as (r, session, _, transcripts):
        transcripts.held = set()
        await r.run(session, "say 2")
        assert given(r) == ""
        [notice] = await shown(session)
        assert "goes on without it" in notice


@pytest.mark.parametrize("whole_turns", [0, 1])
async def test_loss_recorded_as_prompt_is_cancelled_holds(
    tmp_path: Path, monkeypatch: Any, whole_turns: int
) -> None:
    async with talked(tmp_path, 2) as (r, session, turns, transcripts):
        transcripts.held = whole(*turns[:whole_turns])
        client = Client()
        session.subscribe(client, session.last_seq)
        lose = r.journal.lose_context

        async def lose_and_cancel(*given: Any) -> Any:
            session.cancel()
            return await lose(*given)

        monkeypatch.setattr(r.journal, "lose_context", lose_and_cancel)
        assert (await r.run(session, "say 3")).state is TurnState.CANCELLED
        monkeypatch.undo()
        await eventually(lambda: any("does not remember" in one for one in notices(client)))
        await r.run(session, "say 4")
        spec = r.launcher.launched[-1].spec
        assert (spec.branch == Branch("")) == (whole_turns == 0)
        assert "Asked: say 2" in given(r)
        assert len(notices(client)) == len(await shown(session))


async def test_transcript_need_not_hold_slash_command(tmp_path: Path) -> None:
    async with talked(tmp_path, 1) as (r, session, turns, transcripts):
        transcripts.held = whole(*turns)
        await r.run(session, "say 1")
        await rest(r, session)
        command = "UPDATE acp_turns SET prompt = ? WHERE turn_id = ?"
        values = ('[{"type":"text","text":"/context"}]', (await ids(r))[-1])
        await r.database.commit(Unit((Statement(command, values, rows=1),)))
        await r.run(session, "say 2")
        assert given(r) == ""
        assert await shown(session) == []


async def test_stored_digest_nobody_got_comes_from_next_daemon(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """The server dies after it has said that the memory is lost, before the prompt is dispatched."""
    async with talked(tmp_path, 1) as (r, session, _, transcripts):
        transcripts.held = set()
        await session.others.context.before_launch()
        assert r.launcher.launched[-1].spec.branch is None
    again = ScriptedTranscripts()
    again.held = set()
    async with rig(tmp_path, again) as r:
        session = await r.sessions.get(session.id)
        assert session.record.branch is not None
        await r.run(session, "say 2")
        assert "Asked: say 1" in given(r)
        await r.run(session, "say 3")
        assert given(r) == ""
        assert len(await shown(session)) == 1


def _failure(outcome: Outcome) -> Any:
    assert outcome.failure is not None
    return outcome.failure


async def test_session_begins_anew_at_each_lost_memory(tmp_path: Path) -> None:
    """As after a rewind to turns that were lost: the loss is told once."""
    async with talked(tmp_path, 2) as (r, session, _, _transcripts):
        gone = WorkerFailed(ErrorKind.CONTEXT_LOST, "gone")
        for _ in range(2):
            await session.others.context.lost(gone)
            assert session.record.branch == Branch("")
            session.record.branch = Branch(session.id, "lost")
            await r.database.commit(Unit((branches.save(session.id, session.record.branch),)))
        assert len(await shown(session)) == 1
        await session.others.context.lost(gone)
        found = await r.journal.find(session.id)
        assert found is not None
        assert found.branch == Branch("")
