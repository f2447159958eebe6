"""Looks at transcripts that a session has left, as by a rewind, where a terminal may go on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykoclaw_acp.model.imports import Imported, RowStanding
from pykoclaw_acp.system import transcript_files as files
from pykoclaw_acp.transcripts import transcripts, watching
from pykoclaw_acp.transcripts.transcripts import ImportedTranscripts
from tests.integration.journals import Subject, subject
from tests.unit.transcripts import Transcript, words
from tests.waiting import eventually


class Place:
    """A session that goes on in one Claude session after another: c0, c1 …"""

    def __init__(self, root: Path, s: Subject) -> None:
        self.folder = root / "projects" / "-w"
        self.folder.mkdir(parents=True)
        self.s = s
        self.made = ImportedTranscripts(s.imports, os.fspath(self.folder.parent))
        self.all: list[Transcript] = []

    async def ours(self, words: str) -> None:
        """A turn of ours in the newest Claude session."""
        await self.s.ended("one", words)
        self.all[-1].prompt(words, words)
        self.all[-1].say(f"answer to {words}")

    async def move(self) -> None:
        """Go on in another Claude session."""
        n = len(self.all)
        self.all.append(Transcript(self.folder / f"c{n}.jsonl", count=100 * n))
        await self.ours(f"p{n}")
        os.utime(self.all[-1].path, (n + 1, n + 1))
        # As the end of the turn does.
        await self.s.imports.follow_transcript("one", f"c{n}", told=False)
        await self.look()

    def terminal(self, n: int, words: str) -> None:
        """A terminal goes on in an earlier Claude session."""
        self.all[n].prompt(words, words, entrypoint="cli")
        self.all[n].say(f"answer to {words}", entrypoint="cli")

    async def look(self) -> Imported:
        record = await self.s.journal.find("one")
        assert record is not None
        return await self.made.take_in(record, self.all[-1].path.stem, own=())


@pytest.fixture
async def p(tmp_path: Path) -> AsyncIterator[Place]:
    async with subject("sqlite", tmp_path) as made:
        await made.session()
        place = Place(tmp_path, made)
        yield place
        place.made.close()


def said(found: Imported) -> list[str]:
    return words(one.event for one in found.logged if one.event is not None)


async def test_newest_left_transcripts_are_looked_at(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "MOST_LEFT", 2)
    for _ in range(4):
        await p.move()
    for n in range(3):
        p.terminal(n, f"term{n}")
    found = await p.look()
    assert (found.standing, found.followed) == (RowStanding.SAME, "c3")
    assert said(found) == ["> term1", "answer to term1", "> term2", "answer to term2"]
    assert found.digest is not None
    assert "Asked: term1\nAnswered: answer to term1" in found.digest
    assert "Asked: p" not in found.digest
    await p.made.note_told("one")
    found = await p.look()
    assert (found.digest, found.logged) == (None, [])


async def test_turn_in_rows_former_session_is_seen(p: Place) -> None:
    """A program read the row before it was put right: the side session goes on."""
    await p.move()
    side = Transcript(p.folder / "side.jsonl", count=500)
    side.prompt("result", "result", entrypoint="sdk-py")
    record = await p.s.journal.find("one")
    assert record is not None
    found = await p.made.take_in(record, "side", own=())
    assert (found.standing, said(found)) == (RowStanding.SIDE, ["> result"])
    side.prompt("bot", "bot", entrypoint="sdk-py")
    side.say("answer to bot", entrypoint="sdk-py")
    found = await p.look()
    assert said(found) == ["> bot", "answer to bot"]
    assert "Asked: bot\nAnswered: answer to bot" in str(found.digest)


async def test_own_turn_in_left_transcript_is_not_told(p: Place) -> None:
    """One that came into the transcript after the newest look at it."""
    await p.move()
    await p.ours("late")
    await p.move()
    found = await p.look()
    assert (found.followed, found.digest, found.logged) == ("c1", None, [])


async def test_left_transcript_that_is_gone_is_not_missed(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await p.move()
    await p.move()
    p.all[0].path.unlink()
    monkeypatch.setattr(files, "find", lambda *_: pytest.fail("it was searched for"))
    found = await p.look()
    assert (found.standing, found.complete, found.replaced) == (RowStanding.SAME, True, False)


async def test_command_in_left_transcript_moves_nothing(p: Place) -> None:
    """Our worker has all that it needs."""
    await p.move()
    await p.move()
    p.all[0].prompt("<command-name>/cost</command-name>", entrypoint="cli")
    p.all[0].prompt("<local-command-stdout>1 USD</local-command-stdout>", entrypoint="cli")
    found = await p.look()
    assert (found.standing, found.logged, found.digest) == (RowStanding.SAME, [], None)


async def test_change_of_left_transcript_is_noticed(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SETTLE", 0.01)
    await p.move()
    await p.move()
    calls: list[str] = []
    end = p.made.watch("one", lambda: calls.append("changed"))
    p.terminal(0, "term")
    await eventually(lambda: bool(calls))
    end()
    assert said(await p.look()) == ["> term", "answer to term"]
