"""What other programs do with a session's conversation, as clients and Claude learn of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.conversations import Conversation, FollowedConversation
from pykoclaw_acp.model.events import Text, ToolEnded, ToolStarted, UserMessage
from pykoclaw_acp.model.imports import Side
from pykoclaw_acp.model.prompt_text import NOTES_TAG
from pykoclaw_acp.sessions import row_changes
from pykoclaw_acp.sessions.ports import RowStanding
from pykoclaw_acp.sessions.row_changes import RowChanges
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store.condition import unavailable
from pykoclaw_acp.store.session_journal import SessionJournal
from tests.double import rules
from tests.double.agent import Canned
from tests.double.handle import init_db
from tests.double.messaging import dispatch_to_agent
from tests.integration.adopting import alive, daemon, found, killed
from tests.integration.callers import caller
from tests.integration.linked import Front, front
from tests.integration.linked import words as prompt
from tests.integration.programs import upsert_row
from tests.integration.rig import Rig, hanging, rig
from tests.integration.scripted_transcripts import ScriptedTranscripts
from tests.waiting import eventually, not_within, pass_loop_time

__all__ = ["alive"]

NAME: Final = "wa-andy-1@g.us"
SESSION: Final = conversations.id_of(NAME)
CLAUDE: Final = "claude-1"
ROW: Final = Conversation(NAME, CLAUDE, "/folder", "hash")


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[Rig, ScriptedTranscripts, Front, Session]]:
    """A conversation that WhatsApp began, open in a client, with a live worker."""
    transcripts = ScriptedTranscripts()
    async with rig(path, transcripts) as r, front(r) as one:
        await upsert_row(r.database, ROW)
        await one.result(1, "session/load", sessionId=SESSION, cwd="/", mcpServers=[])
        await say(one, 2)
        session = await r.sessions.get(SESSION)
        await settled(session)
        transcripts.looks.clear()
        yield r, transcripts, one, session


async def say(one: Front, number: int, text: str = "say 1") -> None:
    result = await one.result(number, "session/prompt", **prompt(SESSION, text))
    assert result["stopReason"] == "end_turn"


async def settled(session: Session) -> None:
    """Wait until no look goes on."""
    await eventually(lambda: not session.others)


async def row(r: Rig) -> Conversation | None:
    return await SessionJournal(r.database).conversation(NAME)


def carried(r: Rig) -> list[str]:
    """Notes that the newest prompt carried."""
    blocks = r.launcher.launched[-1].contents[-1]
    return [one["text"] for one in blocks if one["text"].startswith(f"<{NOTES_TAG}>")]


async def test_load_shows_others_words_before_its_answer(tmp_path: Path) -> None:
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts) as r, front(r) as one:
        await upsert_row(r.database, ROW)
        transcripts.find(RowStanding.MOVED_ON, "Said in WhatsApp.")
        await one.result(1, "session/load", sessionId=SESSION, cwd="/", mcpServers=[])
        assert one.text() == "Said in WhatsApp."
        (look,) = transcripts.looks
        assert (look.session, look.row) == (SESSION, CLAUDE)


async def test_a_command_shows_what_others_said(tmp_path: Path) -> None:
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts) as r, caller(r, tmp_path) as cli:
        await upsert_row(r.database, ROW)
        transcripts.find(RowStanding.MOVED_ON, "Said in WhatsApp.")
        assert (await cli.call("sessions/show", session=NAME))["events"] > 0
        transcripts.find(RowStanding.MOVED_ON, " And more.")
        await cli.call("follow", session=NAME)
        assert cli.text() == "Said in WhatsApp. And more."


async def test_a_resume_that_follows_shows_it_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        await one.leave()
        transcripts.find(RowStanding.MOVED_ON, "Meanwhile.")
        async with front(r, "front-2") as two:
            meta = {"pykoclaw.dev/after": session.last_seq}
            await two.result(1, "session/resume", sessionId=SESSION, cwd="/", _meta=meta)
            await eventually(lambda: two.text() == "Meanwhile.")


async def test_others_running_call_outlives_our_worker(tmp_path: Path) -> None:
    """A call that a terminal makes goes on there when our worker, which does nothing, is ended."""
    async with opened(tmp_path) as (r, transcripts, _, session):
        started = ToolStarted("toolu_1", "Bash", "npm test", "execute")
        transcripts.find(RowStanding.MOVED_ON, started)
        session.others.changed()
        await settled(session)
        channel = r.launcher.launched[-1]
        r.pool.evict(SESSION)
        await eventually(lambda: channel.dead)
        transcripts.find(RowStanding.MOVED_ON, ToolEnded("toolu_1", "completed"))
        session.others.changed()
        await settled(session)
        events = [one.event for one in await r.journal.read(SESSION, 0, 100)]
        assert [one for one in events if isinstance(one, ToolStarted | ToolEnded)] == [
            started,
            ToolEnded("toolu_1", "completed"),
        ]


async def test_worker_is_replaced_once_another_program_moved_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        moved = replace(ROW, claude_session_id="claude-2", prompt_hash="newer")
        await upsert_row(r.database, moved)
        transcripts.find(RowStanding.MOVED_ON, "In between. ")
        await say(one, 3)
        first, second = r.launcher.launched
        assert second.spec.resume_session_id == "claude-2"
        assert first not in r.launcher.live
        assert one.text() == "0 In between. 0 "
        assert await row(r) == moved
        await settled(session)
        await say(one, 4)
        assert len(r.launcher.launched) == 2


async def test_worker_is_replaced_if_its_session_has_grown(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as (r, transcripts, one, _):
        transcripts.find(RowStanding.MOVED_ON, "In between. ")
        await say(one, 3)
        assert [each.spec.resume_session_id for each in r.launcher.launched] == [CLAUDE, CLAUDE]


async def test_no_prompt_leaves_after_look_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt that the database kept from seeing what others did is not for a worker without it."""
    followed, failures = SessionJournal.followed, list[str]()

    async def locked(journal: SessionJournal, session_id: str) -> FollowedConversation:
        if not failures:
            failures.append(session_id)
            raise unavailable(DatabaseState.LOCKED, "Another program keeps it locked.")
        return await followed(journal, session_id)

    async with opened(tmp_path) as (r, transcripts, one, session):
        transcripts.find(RowStanding.MOVED_ON, "In between. ")
        monkeypatch.setattr(SessionJournal, "followed", locked)
        one.call(3, "session/prompt", **prompt(SESSION, "say 2"))
        error = (await one.answer(3))["error"]
        assert error["data"]["errorKind"] == "store_locked"
        await eventually(lambda: transcripts.all_found)
        await settled(session)
        assert r.launcher.launched[0].prompts == ["say 1"]
        await say(one, 4, "say 3")
        assert [each.prompts for each in r.launcher.launched] == [["say 1"], ["say 3"]]


async def test_a_worker_stays_while_nothing_happens(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        await say(one, 3)
        await settled(session)
        assert len(r.launcher.launched) == 1
        assert len(transcripts.looks) == 2  # before the prompt, and after its turn
        assert {each.own for each in transcripts.looks} == {frozenset()}


async def test_side_turn_is_noted_and_row_is_corrected(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        side = replace(ROW, claude_session_id="side", prompt_hash=None)
        await upsert_row(r.database, side)
        transcripts.find(RowStanding.SIDE, "The task's words. ", digest="Answered: 42")
        await say(one, 3)
        assert await row(r) == ROW
        assert one.text() == "0 The task's words. 0 "
        (note,) = carried(r)
        assert "Answered: 42" in note
        assert len(r.launcher.launched) == 1
        assert session.record.claude_session_id == CLAUDE
        await say(one, 4)
        assert carried(r) == []


async def test_bot_with_new_system_prompt_begins_once(tmp_path: Path) -> None:
    """While the conversation is open in an editor, to which its side turn is shown."""
    async with opened(tmp_path) as (r, transcripts, _, session):
        await upsert_row(r.database, replace(ROW, prompt_hash=rules.prompt_hash("Be Andy.")))
        await session.others.look()
        resumed = []
        with closing(init_db(r.database.path)) as db:
            for number in range(4):
                before = await row(r)
                reply = await dispatch_to_agent(
                    "Hi", "wa", NAME[3:], db, tmp_path, Canned(), system_prompt="Be Bob."
                )
                assert before is not None
                resumed.append(reply.session_id == before.claude_session_id)
                transcripts.find(
                    RowStanding.MOVED_ON if resumed[-1] else RowStanding.SIDE, f"{number} "
                )
                await session.others.look()
        assert resumed == [False, True, True, True]
        after = replace(ROW, prompt_hash=rules.prompt_hash("Be Bob."))
        kept = await row(r)
        assert kept is not None
        assert replace(kept, cwd=ROW.cwd) == after


async def test_side_turn_others_cannot_leave_keeps_the_row(tmp_path: Path) -> None:
    """The conversation's own Claude session is gone: nobody could resume it."""
    async with opened(tmp_path) as (r, transcripts, one, _):
        side = replace(ROW, claude_session_id="side", prompt_hash=None)
        await upsert_row(r.database, side)
        transcripts.find(RowStanding.SIDE, "New. ", digest="Answered: 42", resumable=False)
        await say(one, 3)
        assert await row(r) == side
        (note,) = carried(r)
        assert "Answered: 42" in note


async def test_next_daemon_does_not_follow_side_turn(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, _, _, _):
        await upsert_row(r.database, replace(ROW, claude_session_id="side", prompt_hash=None))
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts) as r, front(r) as one:
        transcripts.find(RowStanding.SIDE, "The task's words. ", digest="Answered: 42")
        await one.result(1, "session/load", sessionId=SESSION, cwd="/", mcpServers=[])
        assert (transcripts.looks[0].followed, transcripts.looks[0].row) == (CLAUDE, "side")
        await say(one, 12)  # a line of its own: the front is the one of before
        assert r.launcher.launched[0].spec.resume_session_id == CLAUDE
        assert carried(r)
        assert await row(r) == ROW


async def test_words_written_during_side_turns_import_stay(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        newest = replace(ROW, claude_session_id="claude-2")
        await upsert_row(r.database, replace(ROW, claude_session_id="side"))
        transcripts.find(
            RowStanding.SIDE, digest="x", meanwhile=partial(upsert_row, r.database, newest)
        )
        await session.others.look()
        assert await row(r) == newest
        transcripts.find(RowStanding.MOVED_ON)
        await say(one, 3)
        assert r.launcher.launched[-1].spec.resume_session_id == "claude-2"


async def test_a_branch_that_claude_lacks_is_noted_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        for _ in range(2):
            transcripts.find(RowStanding.SAME, digest="Asked: what?")
            await session.others.look()
        transcripts.find(RowStanding.SAME, digest="Asked: what? And when?")
        await session.others.look()
        await say(one, 3)
        (note,) = carried(r)
        assert note.count("Asked: what?") == 2
        assert one.text().count("Claude does not remember what was said there") == 1
    async with rig(tmp_path, ScriptedTranscripts()) as r, front(r) as one:
        await one.result(11, "session/load", sessionId=SESSION, cwd="/", mcpServers=[])
        assert one.text().count("Claude does not remember what was said there") == 1


async def test_the_side_that_claude_forgets_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, transcripts, one, session):
        for n, side in enumerate((Side.THERE, Side.THERE, Side.HERE, Side.BOTH)):
            transcripts.find(RowStanding.SAME, digest=f"Asked: {n}", lacks=side)
            await session.others.look()
        await say(one, 3)
        said = one.text()
        assert said.count("Another program has continued this conversation at the same time.") == 3
        assert said.count("Claude does not remember what was said there") == 1
        assert said.count("does not remember what was said here meanwhile") == 1
        assert said.count("remembers only a part of what was said there and here") == 1


async def test_undecided_branch_is_told_without_a_worker(tmp_path: Path) -> None:
    """Our CLI notes its branch as it ends, so that Claude goes on from that after all."""
    async with opened(tmp_path) as (r, transcripts, one, session):
        transcripts.noted_for.clear()
        for _ in range(2):
            transcripts.find(
                RowStanding.MOVED_ON, digest="Asked: ours", lacks=Side.HERE, undecided=True
            )
        await session.others.look()
        assert (transcripts.noted_for, "at the same time" in one.text()) == ([], False)
        transcripts.find(RowStanding.SAME, digest="Asked: theirs")
        await say(one, 3)
        assert carried(r)[-1].count("Asked:") == 1
        assert "Asked: theirs" in carried(r)[-1]
        assert "what was said there; it gets a summary" in one.text()
        assert "said here meanwhile" not in one.text()


async def test_digest_waits_until_it_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that cannot write the note leaves what Claude lacks to the next look."""

    async def full(*_: object) -> None:
        raise StoreUnavailable("blocked", "The disk is full.")

    async with opened(tmp_path) as (_, transcripts, _, session):
        transcripts.noted_for.clear()
        transcripts.find(RowStanding.SAME, digest="Asked: what?")
        with monkeypatch.context() as patch:
            patch.setattr(SessionJournal, "add_note", full)
            await session.others.look()
        assert not transcripts.noted_for
        transcripts.find(RowStanding.SAME, digest="Asked: what?")
        await session.others.look()
        assert transcripts.noted_for == [SESSION]


async def test_transcript_unreadable_to_its_end_is_told_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, transcripts, one, session):
        for _ in range(2):
            transcripts.find(RowStanding.SAME, "As far as it goes. ", complete=False)
            await session.others.look()
        await eventually(lambda: one.text().count("As far as it goes.") == 2)
        assert one.text().count("Turns of other programs may be missing here") == 1


async def test_unreadable_transcript_is_told_again_later(tmp_path: Path) -> None:
    """All could be read in between."""
    async with opened(tmp_path) as (r, transcripts, one, session):
        for complete in (False, True, False):
            transcripts.find(RowStanding.SAME, "As far as it goes. ", complete=complete)
            await session.others.look()
        told = "Turns of other programs may be missing here"
        await eventually(lambda: one.text().count(told) == 2)
        log = [each.event for each in await r.journal.read(SESSION, 0, 100)]
        notes = [each for each in log if isinstance(each, Text) and told in each.text]
        assert len({each.message_id for each in notes}) == 2, "clients merge those of one id"


async def test_missing_transcript_is_told_and_session_continues(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        other = replace(ROW, claude_session_id="unknown")
        await upsert_row(r.database, other)
        for number in (3, 4):
            transcripts.find(RowStanding.MISSING, resumable=False)  # before it, and after it
            transcripts.find(RowStanding.MISSING, resumable=False)
            await say(one, number)
            await settled(session)
        assert one.text().count("unknown") == 1
        assert "is missing here" in one.text()
        assert len(r.launcher.launched) == 1
        assert await row(r) == other


async def test_others_resume_ours_when_theirs_is_gone(tmp_path: Path) -> None:
    """Unless they write such a Claude session again: then they keep their transcripts elsewhere."""
    async with opened(tmp_path) as (r, transcripts, one, session):
        for number, (claude, kept) in enumerate([("gone", CLAUDE), ("theirs", "theirs")], 3):
            other = replace(ROW, claude_session_id=claude)
            await upsert_row(r.database, other)
            for _ in range(2):
                transcripts.find(RowStanding.MISSING)
                await session.others.look()
            assert await row(r) == other
            for _ in range(2):
                transcripts.find(RowStanding.MISSING)
            await say(one, number)
            await settled(session)
            assert await row(r) == replace(ROW, claude_session_id=kept)


async def test_adopted_conversation_without_transcript_resumes_rows_session(
    tmp_path: Path,
) -> None:
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts) as r, front(r) as one:
        await upsert_row(r.database, ROW)
        transcripts.find(RowStanding.MISSING)
        await one.result(1, "session/load", sessionId=SESSION, cwd="/", mcpServers=[])
        await say(one, 2)
        assert r.launcher.launched[0].spec.resume_session_id == CLAUDE


async def test_session_nobody_prompted_is_not_looked_at(tmp_path: Path) -> None:
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts) as r:
        session = await r.session()
        await session.others.look()
        assert transcripts.looks == []
        await r.run(session, "say 1")
        assert r.launcher.launched[0].spec.resume_session_id is None


async def test_row_without_claude_session_does_not_end_conversation(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as (r, _, one, _):
        await upsert_row(r.database, replace(ROW, claude_session_id=None))
        await say(one, 3)
        assert await row(r) == replace(ROW, claude_session_id=CLAUDE)


# --- while a turn runs


async def test_change_during_turn_is_looked_at_afterwards(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, _):
        one.call(3, "session/prompt", **prompt(SESSION, "hang"))
        channel = r.launcher.launched[0]
        await eventually(lambda: channel.prompts[-1] == "hang" and channel.acked == channel.last)
        looks = len(transcripts.looks)
        transcripts.find(RowStanding.MOVED_ON, "Both at once. ")
        await upsert_row(r.database, replace(ROW, claude_session_id="claude-2"))
        transcripts.watched[SESSION]()
        await one.result(9, "session/load", sessionId=SESSION, cwd="/", mcpServers=[])
        await not_within(lambda: len(transcripts.looks) > looks)
        assert channel in r.launcher.live
        one.notify(4, "session/cancel", sessionId=SESSION)
        await one.answer(3)
        await eventually(lambda: one.text().endswith("Both at once. "))
        kept = await row(r)
        assert kept is not None
        assert kept.claude_session_id == "claude-2"  # the turn's end has not overwritten it
        await say(one, 5)
        assert r.launcher.launched[-1].spec.resume_session_id == "claude-2"


async def test_claudes_own_turn_is_not_cut_off(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, _):
        channel = r.launcher.launched[0]
        channel.say(channel.started("own-turn", background=True))
        await eventually(lambda: channel.acked == channel.last)
        transcripts.find(RowStanding.MOVED_ON)
        one.call(3, "session/prompt", **prompt(SESSION, "say 1"))
        await eventually(lambda: transcripts.all_found)
        assert transcripts.looks[-1].own == {"own-turn"}
        await not_within(lambda: r.launcher.live != [channel])
        channel.say(channel.ended("own-turn"))
        assert (await one.answer(3))["result"]["stopReason"] == "end_turn"
        assert len(r.launcher.launched) == 2


async def test_a_cancel_during_a_look_loses_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, _):
        going, gate = asyncio.Event(), asyncio.Event()

        async def meanwhile() -> None:
            going.set()
            await gate.wait()

        transcripts.find(RowStanding.MOVED_ON, "Found. ", meanwhile=meanwhile)
        one.call(3, "session/prompt", **prompt(SESSION, "say 1"))
        await going.wait()
        one.notify(4, "session/cancel", sessionId=SESSION)
        assert (await one.answer(3))["result"]["stopReason"] == "cancelled"
        gate.set()
        await eventually(lambda: "Found. " in one.text())
        await say(one, 5)
        assert len(r.launcher.launched) == 2


# --- attached sessions


async def test_change_is_shown_to_present_clients(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        for text in ("First. ", "Second. "):
            transcripts.find(RowStanding.MOVED_ON, text)
            transcripts.watched[SESSION]()
            await eventually(partial(lambda text: one.text().endswith(text), text))
        await settled(session)
        assert len(transcripts.looks) == 2  # and none without a change
        assert len(r.launcher.live) == 1  # until there is a prompt
        await one.leave()
        assert transcripts.watched == {}


async def test_attached_sessions_changed_row_is_noticed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        rows = RowChanges(r.sessions, SessionJournal(r.database))
        await rows.look()
        assert transcripts.looks == []
        await upsert_row(r.database, replace(ROW, claude_session_id="side"))
        transcripts.find(RowStanding.SIDE, "The task's words. ", digest="x")
        await rows.look()
        await eventually(lambda: one.text().endswith("The task's words. "))
        await settled(session)
        await one.leave()
        transcripts.looks.clear()
        await upsert_row(r.database, replace(ROW, claude_session_id="side-2"))
        await rows.look()
        assert transcripts.looks == []


async def test_unchanged_row_is_looked_at_again_later(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, _, session):
        rows, looks = RowChanges(r.sessions, SessionJournal(r.database)), transcripts.looks
        running = asyncio.create_task(rows.run())
        for number, claude in ((1, "gone"), (2, "gone-2")):
            await upsert_row(r.database, replace(ROW, claude_session_id=claude))
            transcripts.find(RowStanding.MISSING)
            rows.changed.set()
            await eventually(lambda number=number: len(looks) == number)  # type: ignore[misc]
            await settled(session)
        transcripts.find(RowStanding.MISSING)
        rows.changed.set()  # as the look itself may have changed the database
        await not_within(lambda: len(looks) > 2)
        pass_loop_time(row_changes.SAME_PAUSE)
        await eventually(lambda: len(looks) == 3)
        running.cancel()


async def test_side_turn_is_left_while_nobody_is_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, _):
        await one.leave()
        rows = RowChanges(r.sessions, SessionJournal(r.database))
        with closing(init_db(r.database.path)) as db:

            async def turn(*, fresh: bool = False) -> str | None:
                at = "wa", NAME[3:], db, tmp_path, Canned()
                return (await dispatch_to_agent("Hi", *at, fresh=fresh)).session_id

            side = await turn(fresh=True)  # as an isolated task
            transcripts.find(RowStanding.SIDE, "The task's words. ", digest="x")
            await rows.look_unattended()
            assert await turn() == CLAUDE != side
            assert await turn() == CLAUDE


async def test_unattended_row_is_looked_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, _):
        await one.leave()
        rows = RowChanges(r.sessions, SessionJournal(r.database))
        for claude in ("gone", "gone-2"):
            transcripts.looks.clear()
            await upsert_row(r.database, replace(ROW, claude_session_id=claude))
            for _ in range(2):
                transcripts.find(RowStanding.MISSING)
                await rows.look_unattended()
            assert [each.row for each in transcripts.looks] == [claude]


async def test_unattended_side_turn_goes_on_elsewhere_twice(tmp_path: Path) -> None:
    """A bot has read the row before it was put right, and writes what it went on from again."""
    async with opened(tmp_path) as (r, transcripts, one, _):
        await one.leave()
        rows = RowChanges(r.sessions, SessionJournal(r.database))
        for digest in ("task", "bot"):
            await upsert_row(r.database, replace(ROW, claude_session_id="side"))
            transcripts.find(RowStanding.SIDE, f"The {digest}'s words. ", digest=digest)
            await rows.look_unattended()
            found = await row(r)
            assert found is not None
            assert found.claude_session_id == CLAUDE


async def test_row_skipped_for_client_is_looked_at_later(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, _):
        rows = RowChanges(r.sessions, SessionJournal(r.database))
        await upsert_row(r.database, replace(ROW, claude_session_id="side"))
        await rows.look_unattended()
        await one.leave()
        transcripts.find(RowStanding.SIDE, "The task's words. ", digest="x")
        await rows.look_unattended()
        found = await row(r)
        assert found is not None
        assert found.claude_session_id == CLAUDE


# --- when something fails


async def test_unattended_row_is_looked_at_after_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        await one.leave()
        await upsert_row(r.database, replace(ROW, claude_session_id="side"))
        transcripts.find(RowStanding.SIDE, "The task's words. ", digest="x")
        locked = StoreUnavailable(DatabaseState.LOCKED, "Another program keeps it locked.")
        answers = iter([locked, locked])
        find = r.sessions.find

        async def at_last(session_id: str) -> Session | None:
            for error in answers:
                raise error
            return await find(session_id)

        monkeypatch.setattr(r.sessions, "find", at_last)
        looking = asyncio.create_task(
            RowChanges(r.sessions, SessionJournal(r.database)).run_unattended()
        )
        await eventually(lambda: transcripts.looks)
        await settled(session)
        found = await row(r)
        assert found is not None
        assert found.claude_session_id == CLAUDE
        looking.cancel()
        await asyncio.wait([looking])


async def test_unattended_row_is_looked_at_behind_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as (r, transcripts, one, _):
        await one.leave()
        await upsert_row(r.database, replace(ROW, claude_session_id="gone"))
        store, find = SessionJournal(r.database), r.sessions.find

        async def moved() -> dict[str, str]:
            return {"broken": "other", SESSION: "gone"}

        async def found_or_broken(session_id: str) -> Session | None:
            if session_id == "broken":
                raise ValueError("a row of another kind")
            return await find(session_id)

        monkeypatch.setattr(store, "moved_rows", moved)
        monkeypatch.setattr(r.sessions, "find", found_or_broken)
        transcripts.find(RowStanding.MISSING)
        await RowChanges(r.sessions, store).look_unattended()
        assert [each.row for each in transcripts.looks] == ["gone"]


async def test_failed_look_is_told_and_prompt_runs(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, transcripts, one, _):

        async def broken() -> None:
            raise ValueError("a transcript of another kind")

        for _ in range(2):
            transcripts.find(RowStanding.SAME, meanwhile=broken)
        await say(one, 3)
        assert one.text().count("may be missing here") == 1


async def test_look_at_damaged_rows_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        looks: list[object] = []

        async def damaged(*given: object) -> None:
            looks.append(given)
            raise unavailable(DatabaseState.DAMAGED, "The database is damaged.")

        monkeypatch.setattr(r.journal, "followed", damaged)
        transcripts.watched[SESSION]()
        await eventually(lambda: looks)
        await not_within(lambda: len(looks) > 1)
        await eventually(lambda: "may be missing here" in one.text())
        await say(one, 3)
        assert one.text().count("may be missing here") == 1
        await settled(session)


async def test_load_does_not_wait_for_unwritable_database(tmp_path: Path) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        never = asyncio.Event()
        transcripts.find(RowStanding.SAME, meanwhile=never.wait)
        one.call(3, "session/load", sessionId=SESSION, cwd="/", mcpServers=[])
        await eventually(lambda: transcripts.looks)
        r.database.condition.failed(DatabaseState.LOCKED, "Another program keeps it locked.")
        assert "result" in await one.answer(3)
        r.database.condition.recovered()
        never.set()
        await settled(session)


async def test_change_during_storage_trouble_is_shown_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as (r, transcripts, one, session):
        condition = r.database.condition
        recovered = condition.recovered
        monkeypatch.setattr(condition, "recovered", lambda: None)  # the file is fine

        async def locked() -> None:
            condition.failed(DatabaseState.LOCKED, "Another program keeps it locked.")
            condition.require()

        transcripts.find(RowStanding.MOVED_ON, "Never. ", meanwhile=locked)
        transcripts.watched[SESSION]()
        await eventually(lambda: transcripts.looks and not condition.is_writable)
        await not_within(lambda: len(transcripts.looks) > 1)
        transcripts.find(RowStanding.MOVED_ON, "Theirs. ")
        monkeypatch.undo()
        recovered()
        await eventually(lambda: one.text().endswith("Theirs. "))
        await settled(session)


async def test_adopted_worker_is_replaced_if_others_moved_on(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    """Before the daemon died, or after it."""
    async with killed(tmp_path, alive) as before:
        session, turn, channel = await hanging(before)
    transcripts = ScriptedTranscripts()
    async with daemon(tmp_path, before, transcripts=transcripts) as r:
        again = await found(r, session)
        channel.say(channel.ended(turn.turn_id))
        await eventually(lambda: not again.busy)
        await settled(again)
        await r.run(again, "say 1")
        assert len(r.launcher.launched) == 1
        await settled(again)
        transcripts.find(RowStanding.MOVED_ON)
        await r.run(again, "say 1")
        assert len(r.launcher.launched) == 2


# --- what lists show


async def test_title_is_first_prompt_taken_in(tmp_path: Path) -> None:
    old, name = "1a2b3c4d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "acp-1a2b3c4d"
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts) as r, front(r) as one:
        await upsert_row(r.database, Conversation(name, CLAUDE))
        asked = UserMessage("u", {"type": "text", "text": "Mend the parser"})
        shell = UserMessage("s", {"type": "text", "text": "!ls"}, "terminal")
        transcripts.find(RowStanding.MOVED_ON, shell, asked, "Done.")
        await one.result(1, "session/load", sessionId=old, cwd="/", mcpServers=[])
        record = (await r.sessions.get(old)).record
        assert record.title == "Mend the parser"


async def test_channels_exclamation_mark_begins_a_title(tmp_path: Path) -> None:
    old, name = "1a2b3c4d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "acp-1a2b3c4d"
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts) as r, front(r) as one:
        await upsert_row(r.database, Conversation(name, CLAUDE))
        asked = UserMessage("u", {"type": "text", "text": "!remind me"}, "whatsapp")
        transcripts.find(RowStanding.MOVED_ON, asked, "Done.")
        await one.result(1, "session/load", sessionId=old, cwd="/", mcpServers=[])
        assert (await r.sessions.get(old)).record.title == "!remind me"


async def test_clients_own_prompt_makes_no_helper(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        await upsert_row(r.database, ROW)
        await one.result(1, "session/load", sessionId=SESSION, cwd="/", mcpServers=[])
        record = (await r.sessions.get(SESSION)).record
        assert record.prompted
        await say(one, 2)
        rows: list[Any] = await r.database.read(
            "SELECT auxiliary, prompted_at IS NOT NULL FROM acp_sessions"
        )
        assert rows == [(0, 1)]
