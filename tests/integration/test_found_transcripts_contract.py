"""Contract of `transcripts.ports.FoundStore`: the index follows the files, and lists each transcript
that is no session of ours once.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pykoclaw_acp.model.found_transcripts import FoundTranscript
from pykoclaw_acp.model.listing import ListQuery
from pykoclaw_acp.model.turns import SessionRecord
from tests.integration.journals import BOTH, Subject, subject

HERE, THERE = "/claude/-here", "/claude/-there"
ONE = FoundTranscript(f"{HERE}/one.jsonl", "one", 10, 2**62, "/here", "Title", 1000, True)


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


def copy(one: FoundTranscript, updated_at: int) -> FoundTranscript:
    """The same session in the other folder."""
    path = f"{THERE}/{os.path.basename(one.path)}"
    return replace(one, path=path, updated_at=updated_at, title="Copy")


async def listed(s: Subject) -> list[tuple[str, str | None, int]]:
    found = await s.journal.listed(ListQuery(9, transcripts=True))
    return [(one.session_id, one.title, one.updated_at) for one in found]


async def test_found_transcripts_are_known_by_folder(s: Subject) -> None:
    assert (await s.found.transcript_folders(), await s.found.known_in_folder(HERE)) == ({}, {})
    two = replace(ONE, path=f"{HERE}/two.jsonl", claude_session_id="two", size=20, mtime=5)
    await s.found.keep_found(HERE, [ONE, two], [], None)
    known = {"one.jsonl": f"10 {2**62}", "two.jsonl": "20 5"}
    assert await s.found.known_in_folder(HERE) == known
    assert await s.found.known_in_folder(THERE) == {}
    assert await s.found.transcript_folders() == {}
    await s.found.keep_found(HERE, [], [], "digest")
    await s.found.keep_found(THERE, [], [], "other")
    await s.found.keep_found(HERE, [], [], "newer")
    assert await s.found.transcript_folders() == {HERE: "newer", THERE: "other"}
    assert await s.found.known_in_folder(HERE) == known


async def test_sessions_are_listed_as_they_are_found(s: Subject) -> None:
    helper = replace(ONE, path=f"{HERE}/x.jsonl", claude_session_id="helper", is_session=False)
    await s.found.keep_found(HERE, [ONE, helper], [], None)
    assert await listed(s) == [("one", "Title", 1000)]
    assert await s.journal.listed(ListQuery(9)) == []
    await s.found.keep_found(HERE, [replace(ONE, title="New", updated_at=2000)], [], None)
    assert await listed(s) == [("one", "New", 2000)]
    await s.found.keep_found(HERE, [replace(ONE, is_session=False)], [], None)
    assert await listed(s) == []


async def test_newest_copy_of_transcript_is_listed(s: Subject) -> None:
    await s.found.keep_found(HERE, [ONE], [], "here")
    await s.found.keep_found(THERE, [copy(ONE, 500)], [], "there")
    assert await listed(s) == [("one", "Title", 1000)]
    await s.found.keep_found(THERE, [copy(ONE, 1000)], [], "there")
    assert await listed(s) == [("one", "Copy", 1000)]
    await s.found.keep_found(THERE, [], ["one.jsonl", "nothing.jsonl"], "there")
    assert await s.found.known_in_folder(THERE) == {}
    assert await s.found.known_in_folder(HERE) == {"one.jsonl": "10 "}, "it is looked at again"
    assert await s.found.transcript_folders() == {HERE: "", THERE: "there"}
    assert await listed(s) == []


async def test_transcripts_of_our_sessions_are_not_listed(s: Subject) -> None:
    await s.journal.bury_transcript("buried")
    buried = replace(ONE, path=f"{HERE}/b.jsonl", claude_session_id="buried")
    await s.found.keep_found(HERE, [ONE, buried], [], None)
    assert await listed(s) == [("one", "Title", 1000)]
    await s.journal.adopt_transcript(SessionRecord("one", "acp-one", "/here", title="Own"), 5)
    await s.found.keep_found(THERE, [copy(ONE, 3)], [], None)
    assert await listed(s) == [("one", "Own", 5)]
    await s.found.keep_found(HERE, [ONE], [], None)
    assert await listed(s) == [("one", "Own", 1000)], "it was continued elsewhere"
    await s.found.keep_found(HERE, [replace(ONE, updated_at=900)], [], None)
    assert await listed(s) == [("one", "Own", 1000)]
    await s.journal.delete("one")
    await s.found.keep_found(HERE, [ONE], [], None)
    assert await listed(s) == []


async def test_session_of_transcript_has_its_mode(s: Subject) -> None:
    for session, mode in (("one", "plan"), ("two", None)):
        record = SessionRecord(session, f"acp-{session}", "/here", mode=mode)
        await s.journal.adopt_transcript(record, 5)
        kept = await s.journal.find(session)
        assert kept is not None
        assert kept.mode == mode


async def test_transcript_of_lost_first_turn_is_its_sessions(s: Subject) -> None:
    session = await s.session("session")
    for _ in range(2):
        await s.workers.transcript_begun(session, "one")
    await s.found.keep_found(HERE, [ONE], [], None)
    assert await listed(s) == []
    assert await s.journal.begun_transcripts(session) == {"one"}
    assert await s.journal.begun_transcripts("other") == set()
    await s.journal.delete(session)
    await s.found.keep_found(HERE, [ONE], [], None)
    assert await listed(s) == []
    assert await s.journal.begun_transcripts(session) == set()


async def test_transcripts_are_to_be_removed_until_they_are(s: Subject) -> None:
    await s.journal.bury_transcript("stays")
    await s.journal.bury_transcript("one", remove=True)
    await s.journal.adopt_transcript(SessionRecord("two", "acp-two", "/here"), 5)
    await s.journal.bury_transcript("two", remove=True)
    assert await s.journal.transcripts_to_remove() == {"one"}, "a session has the other one"
    await s.journal.delete("two", transcripts={"two", "three"})
    assert await s.journal.transcripts_to_remove() == {"one", "two", "three"}
    await s.journal.transcripts_removed({"one", "three"})
    assert await s.journal.transcripts_to_remove() == {"two"}


async def test_unlisted_transcript_stays_unlisted_when_buried(s: Subject) -> None:
    await s.found.keep_found(HERE, [ONE], [], None)
    await s.journal.bury_transcript("one")
    assert await listed(s) == []
    assert await s.found.known_in_folder(HERE) == {"one.jsonl": f"10 {2**62}"}


async def test_folder_that_is_gone_is_forgotten(s: Subject) -> None:
    two = replace(ONE, path=f"{THERE}/two.jsonl", claude_session_id="two", title="Two")
    await s.found.keep_found(THERE, [replace(ONE, path=f"{THERE}/one.jsonl"), two], [], "there")
    await s.found.keep_found(HERE, [replace(ONE, updated_at=500)], [], "here")
    for _ in range(2):
        await s.found.forget_folder(THERE)
    await s.found.forget_folder("/nothing")
    assert await s.found.known_in_folder(THERE) == {}
    assert await s.found.transcript_folders() == {HERE: ""}
    assert await s.found.known_in_folder(HERE) == {"one.jsonl": "10 "}
    await s.found.keep_found(HERE, [replace(ONE, updated_at=500)], [], "here")
    assert await listed(s) == [("one", "Title", 500)]
