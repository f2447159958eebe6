"""Contract of `sessions.ports.ListStore`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.branches import Branch
from pykoclaw_acp.model.conversations import Conversation
from pykoclaw_acp.model.events import TitleChanged
from pykoclaw_acp.model.listing import Archived, ListQuery
from pykoclaw_acp.model.turns import SessionRecord
from tests.integration.journals import BOTH, Subject, prompt, subject
from tests.waiting import eventually

WHATSAPP = "wa-andy"
EARLIER = "acp-1a2b3c4d"


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def ids(s: Subject, limit: int = 100, **fields: Any) -> list[str]:
    return [one.session_id for one in await s.journal.listed(ListQuery(limit, **fields))]


def _later(before: int) -> bool:
    return time.time_ns() // 1_000_000 > before


async def prompted(s: Subject, *names: str, **fields: Any) -> None:
    """Sessions that were prompted one after the other, each in a millisecond of its own."""
    for name in names:
        await s.session(name, **fields)
        await s.ended(name, f"turn-{name}")
        before = time.time_ns() // 1_000_000
        await eventually(partial(_later, before))


async def test_prompted_sessions_are_listed_newest_first(s: Subject) -> None:
    await s.session("unused")
    await prompted(s, "one", "two", "three")
    assert await ids(s) == ["three", "two", "one"]
    await s.ended("one", "again")
    assert (await ids(s))[0] == "one"


async def test_opening_and_naming_does_not_move_session(s: Subject) -> None:
    await prompted(s, "one", "two")
    found = await s.journal.find("one")
    assert found is not None
    await s.journal.reopen(found)
    await s.journal.append("one", [TitleChanged("A title")])
    assert await ids(s) == ["two", "one"]


async def test_pages_survive_inserts_and_deletes(s: Subject) -> None:
    await prompted(s, *"abcdef")
    first = await s.journal.listed(ListQuery(2))
    assert [one.session_id for one in first] == ["f", "e"]
    await prompted(s, "new")
    await s.journal.delete("e")  # the one that the next page begins after
    await s.journal.delete("c")
    second = await s.journal.listed(ListQuery(2, after=first[-1].place))
    assert [one.session_id for one in second] == ["d", "b"]
    assert await ids(s, after=second[-1].place) == ["a"]


async def test_deleted_and_auxiliary_sessions_are_left_out(s: Subject) -> None:
    await prompted(s, "one", "two")
    await s.session("helper")
    helper = prompt("helper", client="Mitto")
    helper.helper = True
    await s.journal.accept(helper)
    await s.journal.delete("one")
    assert await ids(s) == ["two"]


async def test_a_directory_has_its_own_sessions(s: Subject) -> None:
    await prompted(s, "one")
    for name, cwd in (("other", "/other"), ("third", "/third")):
        await s.journal.create(SessionRecord(name, f"acp-{name}", cwd))
        await s.ended(name, f"turn-{name}")
    assert await ids(s, cwds=("/work",)) == ["one"]
    assert set(await ids(s, cwds=("/other", "/third"))) == {"other", "third"}
    assert await ids(s, cwds=("/nowhere",)) == []


async def test_directory_has_sessions_of_links_to_it(s: Subject) -> None:
    for name, cwd, real in (
        ("link", "/link", "/real"),
        ("slash", "/real/", "/real"),
        ("real", "/real", None),
    ):
        await s.journal.create(SessionRecord(name, f"acp-{name}", cwd, real_cwd=real))
        await s.ended(name, f"turn-{name}")
    assert set(await ids(s, cwds=("/real",))) == {"link", "slash", "real"}
    assert sorted(await ids(s, cwds=("/link", "/real"))) == ["link", "real", "slash"]
    rows = await s.journal.listed(ListQuery(9, cwds=("/real",)))
    assert {one.cwd for one in rows} == {"/link", "/real/", "/real"}
    await s.journal.set_archived("link", archived=True)
    assert await ids(s, cwds=("/real",), archived=Archived.ONLY) == ["link"]
    found = await s.journal.find("slash")
    assert found is not None
    assert found.real_cwd == "/real"
    found.real_cwd = "/moved"
    await s.journal.reopen(found)
    assert await ids(s, cwds=("/moved",)) == ["slash"]


async def test_archived_sessions_are_listed_where_that_is_wanted(s: Subject) -> None:
    await prompted(s, "one", "two")
    await s.journal.set_archived("one", archived=True)
    await s.journal.set_archived("one", archived=True)
    assert await ids(s) == ["two"]
    assert await ids(s, archived=Archived.INCLUDE) == ["two", "one"]
    (only,) = await s.journal.listed(ListQuery(9, archived=Archived.ONLY))
    assert (only.session_id, only.archived) == ("one", True)
    await s.journal.set_archived("one", archived=False)
    assert await ids(s) == ["two", "one"]
    with pytest.raises(Conflict):
        await s.journal.set_archived("unknown", archived=True)


async def test_conversations_of_other_channels_are_listed_unless_hidden(s: Subject) -> None:
    await prompted(s, "one")
    await s.others.upsert(Conversation(WHATSAPP, "claude-wa", "/folders/wa"))
    await s.others.upsert(Conversation("wa-never-continued", None))
    listed = await s.journal.listed(ListQuery(9))
    assert [one.session_id for one in listed] == ["one", conversations.id_of(WHATSAPP)]
    assert listed[1].conversation == WHATSAPP
    assert listed[1].title == "WhatsApp: andy"
    assert await ids(s, hidden=("wa",)) == ["one"]
    await s.journal.adopt(SessionRecord("mine", WHATSAPP, "/work"))
    assert set(await ids(s)) == {"one", "mine"}
    assert await ids(s, hidden=("wa",)) == ["one"]


async def test_never_opened_session_is_in_every_directory(s: Subject) -> None:
    await prompted(s, "one")
    for name in (WHATSAPP, EARLIER):
        await s.others.upsert(Conversation(name, f"claude-{name}", "/folders"))
    await s.others.upsert(Conversation("wa-by-a-command", "claude-2", "/folders"))
    await s.journal.adopt(SessionRecord("mine", "wa-by-a-command", None))
    await s.others.upsert(Conversation("acp-unprompted", None))
    unopened = {conversations.id_of(WHATSAPP), conversations.id_of(EARLIER)}
    for cwds in (("/nowhere", "/real"), ("/work",)):
        listed = {one.session_id: one for one in await s.journal.listed(ListQuery(9, cwds=cwds))}
        assert listed.keys() == unopened | {"mine"} | ({"one"} if "/work" in cwds else set())
        assert {one.cwd for one in listed.values()} == {cwds[0]}
    assert {one.cwd for one in await s.journal.listed(ListQuery(9))} == {"/work", "/folders"}
    assert await ids(s, cwds=("/nowhere",), hidden=("wa", "acp")) == []
    await s.journal.adopt(SessionRecord("opened", EARLIER, "/work"))
    assert conversations.id_of(EARLIER) not in await ids(s)
    assert "opened" not in await ids(s, cwds=("/nowhere",))
    assert "opened" in await ids(s, cwds=("/work",))


async def test_earlier_plugins_conversations_are_listed_as_they_come(s: Subject) -> None:
    assert await ids(s) == []
    names = [f"acp-{at:08}" for at in range(4)]
    for count, name in enumerate(names, 1):
        await s.others.upsert(Conversation(name, None, "/work"))
        assert len(await ids(s)) == count - 1
        await s.others.upsert(Conversation(name, f"claude-{name}", "/work"))
        assert set(await ids(s)) == {conversations.id_of(one) for one in names[:count]}
    first = await ids(s, 2, cwds=("/a",))
    last = (await s.journal.listed(ListQuery(2, cwds=("/a",))))[-1]
    rest = await ids(s, 9, cwds=("/a",), after=last.place)
    assert sorted(first + rest) == sorted(conversations.id_of(one) for one in names)


async def test_buried_transcripts_id_makes_no_session(s: Subject) -> None:
    await s.journal.bury_transcript("buried")
    await s.journal.adopt_transcript(SessionRecord("kept", "acp-kept", "/work", title="T"), 5)
    await s.journal.bury_transcript("kept")  # a session has it
    assert await s.journal.id_taken("buried")
    for one in ("buried", "kept"):
        with pytest.raises(Conflict):
            await s.journal.adopt_transcript(SessionRecord(one, f"acp-2-{one}", "/work"), 5)
    (row,) = await s.journal.listed(ListQuery(9, transcripts=True))
    assert (row.session_id, row.title, row.updated_at) == ("kept", "T", 5)


async def test_transcript_is_needed_while_session_branches_off(s: Subject) -> None:
    fork = await s.session("fork")
    assert await s.journal.branched_off({"claude", "other"}) == set()
    await s.journal.lose_context(fork, Branch("claude"), None, [])
    assert await s.journal.branched_off({"claude", "other"}) == {"claude"}
    await s.journal.delete(fork)
    assert await s.journal.branched_off({"claude"}) == set()


async def test_a_conversation_is_found_by_its_claude_session(s: Subject) -> None:
    await s.others.upsert(Conversation("acp-old", "claude", "/work"))
    assert await s.journal.conversation_following("claude") == "acp-old"
    assert await s.journal.conversation_following("other") is None
    await s.journal.adopt(SessionRecord("claude", "acp-old", "/work"))
    assert await s.journal.conversation_following("claude") is None
    await s.others.upsert(Conversation("acp-older", "buried", "/work"))
    await s.journal.bury_transcript("buried")
    assert await s.journal.conversation_following("buried") is None
