"""Contract of `sessions.ports.RestoreStore`: a session of an export is there whole, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.events import Event, Text, TitleChanged
from pykoclaw_acp.model.listing import ListQuery
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from tests.integration.journals import BOTH, Subject, events, places, subject

RECORD = SessionRecord("one", "acp-one", "/work", ("/more",), mode="plan", client="Mitto")
NOTE = Note("import-one", "A summary.")
IMAGE = b"image"
HASH = sha256(IMAGE).hexdigest()


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def shown(s: Subject) -> list[str]:
    """Sessions in lists and by their ids."""
    listed = {one.session_id for one in await s.journal.listed(ListQuery(9))}
    found = await s.journal.find("one")
    return sorted(listed | ({"found"} if found is not None else set()))


async def test_session_is_shown_when_it_is_whole(s: Subject) -> None:
    await s.restoring.begin_restoring(RECORD)
    said = [Text("a", "Hello."), Text("b", "More."), Text("c", "The end.")]
    await s.restoring.restore("one", 0, said[:1], {})
    await s.restoring.restore("one", 1, said[1:], {})
    assert await shown(s) == []
    assert await s.journal.id_taken("one")
    last: list[Event] = [TitleChanged("A title"), Text("note", "Imported.", note=True)]
    await s.restoring.end_restoring(RECORD, last, NOTE)
    assert await shown(s) == ["found", "one"]
    logged = await s.journal.read("one", 0, 9)
    assert (events(logged), places(logged)) == ([*said, *last], [1, 2, 3, 4, 5])
    found = await s.journal.find("one")
    assert found == replace(RECORD, client=None, title="A title", last_seq=5, prompted=True)
    assert await s.journal.pending_notes("one") == [NOTE]
    row = await s.journal.conversation("acp-one")
    assert row is not None
    assert (row.claude_session_id, row.cwd) == (None, "/work")


async def test_session_is_restored_once(s: Subject) -> None:
    await s.restoring.begin_restoring(RECORD)
    with pytest.raises(RowRefused):
        await s.restoring.begin_restoring(RECORD)
    await s.restoring.end_restoring(RECORD, [], None)
    with pytest.raises(Conflict):
        await s.restoring.end_restoring(RECORD, [Text("m", "again")], NOTE)
    assert await s.journal.read("one", 0, 9) == []
    assert await s.journal.pending_notes("one") == []
    with pytest.raises(RowRefused):
        await s.restoring.begin_restoring(replace(RECORD, conversation_name="acp-other"))


async def test_events_at_same_place_are_taken_once(s: Subject) -> None:
    await s.restoring.begin_restoring(RECORD)
    await s.restoring.restore("one", 0, [Text("a", "Hello.")], {})
    with pytest.raises(RowRefused):
        await s.restoring.restore("one", 0, [Text("b", "Again.")], {})
    with pytest.raises(Conflict):
        await s.restoring.restore("nothing", 0, [Text("b", "Again.")], {})
    await s.restoring.end_restoring(RECORD, [], None)
    assert events(await s.journal.read("one", 0, 9)) == [Text("a", "Hello.")]


async def test_blobs_of_events_can_be_read(s: Subject) -> None:
    await s.restoring.begin_restoring(RECORD)
    await s.restoring.restore("one", 0, [Text("a", "An image.")], {HASH: IMAGE})
    assert await s.journal.read_blob(HASH, len(IMAGE)) == IMAGE
    assert await s.journal.read_blob(HASH, len(IMAGE) + 1) is None
    assert await s.journal.read_blob(sha256(b"other").hexdigest(), 5) is None


async def test_name_that_is_taken_meanwhile_is_refused(s: Subject) -> None:
    await s.restoring.begin_restoring(RECORD)
    await s.journal.create(SessionRecord("two", "acp-two", "/work"))
    with pytest.raises(RowRefused):
        await s.restoring.end_restoring(
            replace(RECORD, conversation_name="acp-two"), [Text("m", "Imported.")], NOTE
        )
    assert await shown(s) == []
    assert await s.journal.pending_notes("one") == []


async def test_given_up_session_is_never_shown(s: Subject) -> None:
    await s.restoring.begin_restoring(RECORD)
    await s.restoring.restore("one", 0, [Text("a", "Hello.")], {})
    for _ in range(2):
        await s.restoring.give_up("one")
    await s.restoring.give_up("nothing")
    with pytest.raises(Conflict):
        await s.restoring.end_restoring(RECORD, [], None)
    assert await shown(s) == []
    assert await s.journal.conversation("acp-one") is None
    await s.session("two")
    await s.restoring.give_up("two")
    assert await s.journal.find("two") is not None
