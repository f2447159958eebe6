"""Contract of `sessions.ports.ConversationStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.conversations import Conversation, ConversationOwner, FollowedConversation
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from tests.integration.journals import BOTH, DONE, Subject, end, subject

ROW = Conversation("wa-andy-1@g.us", "claude-1", "/folder", "hash-1")
SESSION = SessionRecord("session", ROW.name, "/work", title="WhatsApp: andy-1@g.us", client="zed")


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def test_a_row_is_read_as_it_was_written(s: Subject) -> None:
    await s.others.upsert(ROW)
    assert await s.journal.conversation(ROW.name) == ROW
    await s.others.upsert(replace(ROW, claude_session_id=""))
    assert await s.journal.conversation(ROW.name) == replace(ROW, claude_session_id=None)
    assert await s.journal.conversation("wa-other") is None


async def test_only_conversations_with_a_claude_session_are_continued(s: Subject) -> None:
    for name, claude in (("tg-2", "b"), ("tg-1", "a"), ("tg-3", None), ("tg-4", "")):
        await s.others.upsert(Conversation(name, claude))
    assert await s.journal.continued("", 10) == ["tg-1", "tg-2"]
    assert await s.journal.continued("", 1) == ["tg-1"]
    assert await s.journal.continued("tg-1", 10) == ["tg-2"]


async def test_adopted_conversation_has_session_that_follows_it(s: Subject) -> None:
    await s.others.upsert(ROW)
    await s.journal.adopt(SESSION)
    found = await s.journal.find("session")
    assert found == replace(SESSION, client=None, claude_session_id="claude-1")
    assert await s.journal.owner_of(ROW.name) == ConversationOwner("session", deleted=False)
    assert await s.journal.conversation(ROW.name) == ROW


@pytest.mark.parametrize("claude", [None, "", "claude"])
async def test_unresumable_or_already_owned_conversation_is_not_adopted(
    s: Subject, claude: str | None
) -> None:
    await s.others.upsert(replace(ROW, claude_session_id=claude))
    if claude:
        await s.journal.adopt(SESSION)
    for session_id in ("session", "other"):
        with pytest.raises(Conflict):
            await s.journal.adopt(replace(SESSION, session_id=session_id))
    assert await s.journal.find("other") is None


async def test_a_deleted_session_keeps_its_conversation(s: Subject) -> None:
    await s.others.upsert(ROW)
    await s.journal.adopt(SESSION)
    await s.journal.delete("session")
    assert await s.journal.owner_of(ROW.name) == ConversationOwner("session", deleted=True)
    with pytest.raises(Conflict):
        await s.journal.adopt(replace(SESSION, session_id="other"))
    with pytest.raises(Conflict):
        await s.journal.add_alias("other", "session", only=False)


async def test_a_conversation_begins_with_its_session(s: Subject) -> None:
    await s.journal.begin(SESSION)
    assert await s.journal.conversation(ROW.name) == Conversation(ROW.name, None, "/work")
    with pytest.raises(Conflict):
        await s.journal.begin(replace(SESSION, session_id="other"))
    await s.others.upsert(replace(ROW, name="wa-2", claude_session_id=None))
    await s.journal.begin(replace(SESSION, session_id="two", conversation_name="wa-2"))
    assert await s.journal.conversation("wa-2") == Conversation("wa-2", None, "/folder", "hash-1")


async def test_aliases_lead_to_their_session(s: Subject) -> None:
    await s.others.upsert(ROW)
    await s.journal.adopt(SESSION)
    await s.journal.add_alias("first", "session", only=True)
    with pytest.raises(Conflict):
        await s.journal.add_alias("second", "session", only=True)
    await s.journal.add_alias("third", "session", only=False)
    with pytest.raises(RowRefused):
        await s.journal.add_alias("third", "session", only=False)
    for alias in ("first", "third"):
        found = await s.journal.find(alias)
        assert found is not None
        assert found.session_id == "session"
    assert await s.journal.find("second") is None


async def test_a_turn_is_written_back_for_other_programs(s: Subject) -> None:
    await s.others.upsert(ROW)
    await s.journal.adopt(SESSION)
    await s.journal.follow_claude_session("session", ROW)
    _, epoch = await s.running("session")
    await s.journal.record("session", epoch, [end(epoch, 2, "turn")], {"turn": DONE})
    row = await s.journal.conversation(ROW.name)
    assert row == Conversation(ROW.name, "claude", "/folder", "hash-1")  # its channel's folder


async def test_acp_conversations_turn_writes_its_directory(s: Subject) -> None:
    own = replace(SESSION, conversation_name="acp-session")
    await s.others.upsert(Conversation("acp-session", "claude", "/folder"))
    await s.journal.adopt(own)
    _, epoch = await s.running("session")
    await s.journal.record("session", epoch, [end(epoch, 2, "turn")], {"turn": DONE})
    row = await s.journal.conversation("acp-session")
    assert row == Conversation("acp-session", "claude", "/work")


async def test_turn_overwrites_no_claude_session_unseen(s: Subject) -> None:
    await s.others.upsert(ROW)
    await s.journal.adopt(SESSION)
    await s.journal.follow_claude_session("session", ROW)
    _, epoch = await s.running("session")
    other = replace(ROW, claude_session_id="of-a-task", prompt_hash=None)
    await s.others.upsert(other)
    await s.journal.record("session", epoch, [end(epoch, 2, "turn")], {"turn": DONE})
    assert await s.journal.conversation(ROW.name) == other
    found = await s.journal.find("session")
    assert found is not None
    assert found.claude_session_id == "claude"


async def test_row_is_corrected_unless_written_again(s: Subject) -> None:
    await s.others.upsert(ROW)
    await s.journal.adopt(SESSION)
    await s.journal.follow_claude_session("session", ROW)
    read = replace(ROW, claude_session_id="side", prompt_hash=None)
    await s.others.upsert(read)
    note = Note("note", "The task said so.")
    await s.journal.put_right("session", read, "claude-1", [note])
    assert await s.journal.conversation(ROW.name) == ROW
    assert await s.journal.pending_notes("session") == [note]
    newer = replace(read, claude_session_id="newer")
    await s.others.upsert(newer)
    await s.journal.put_right("session", read, "claude-1", [note])
    assert await s.journal.conversation(ROW.name) == newer
    assert await s.journal.pending_notes("session") == [note]


async def test_moved_rows_are_of_sessions_that_follow(s: Subject) -> None:
    await s.others.upsert(ROW)
    await s.journal.adopt(SESSION)
    await s.others.upsert(replace(ROW, name="wa-2"))
    await s.journal.adopt(replace(SESSION, session_id="new", conversation_name="wa-2"))
    assert await s.journal.moved_rows() == {}
    await s.journal.follow_claude_session("session", ROW)
    await s.journal.add_alias("alias", "session", only=True)
    assert await s.journal.moved_rows() == {}
    for claude, moved in (("side", {"session": "side"}), ("", {}), ("other", {"session": "other"})):
        await s.others.upsert(replace(ROW, claude_session_id=claude))
        assert await s.journal.moved_rows() == moved
    await s.journal.delete("session")
    assert await s.journal.moved_rows() == {}


@pytest.mark.parametrize(
    ("own", "written", "kept"),
    [("own", "own", "own"), ("own", "newer", None), (None, "newer", None), (None, None, None)],
)
async def test_corrected_row_keeps_no_others_hash(
    s: Subject, own: str | None, written: str | None, kept: str | None
) -> None:
    await s.others.upsert(ROW)
    await s.journal.adopt(SESSION)
    await s.journal.follow_claude_session("session", replace(ROW, prompt_hash=own))
    read = replace(ROW, claude_session_id="side", prompt_hash=written)
    await s.others.upsert(read)
    await s.journal.put_right("session", read, "claude-1", [])
    assert await s.journal.conversation(ROW.name) == replace(ROW, prompt_hash=kept)


async def test_changed_rows_are_those_not_followed(s: Subject) -> None:
    await s.others.upsert(ROW)
    await s.journal.adopt(SESSION)
    assert await s.journal.followed("session") == FollowedConversation(ROW, None, None)
    assert await s.journal.changed_rows(["session", "nothing"]) == {"session": "claude-1"}
    await s.journal.follow_claude_session("session", ROW)
    found = await s.journal.followed("session")
    assert (found, found.is_current) == (FollowedConversation(ROW, "claude-1", "hash-1"), True)
    assert await s.journal.changed_rows(["session"]) == {}
    other = replace(ROW, claude_session_id="other", prompt_hash=None)
    for row, changed in ((replace(ROW, claude_session_id=""), {}), (other, {"session": "other"})):
        await s.others.upsert(row)
        assert await s.journal.changed_rows(["session"]) == changed
    await s.journal.follow_claude_session(
        "session", replace(ROW, claude_session_id=None, prompt_hash=None)
    )
    assert await s.journal.followed("session") == FollowedConversation(other, None, None)
    with pytest.raises(Conflict):
        await s.journal.followed("nothing")
