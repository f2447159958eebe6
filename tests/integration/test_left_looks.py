"""Looks at transcripts that a session has left, as by a rewind, where a terminal may go on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from pykoclaw_acp.errors import StoreClosed
from pykoclaw_acp.model.imports import Imported, RowStanding
from pykoclaw_acp.system import transcript_files as files
from pykoclaw_acp.transcripts import transcripts, watching
from pykoclaw_acp.transcripts.transcripts import ImportedTranscripts
from tests.integration.journals import DONE, Subject, end, subject
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
        _, epoch = await self.s.running("one", words)
        ended = replace(end(epoch, 2, words), claude_session_id=self.all[-1].path.stem)
        await self.s.journal.record("one", epoch, [ended], {words: DONE})
        self.all[-1].prompt(words, words)
        self.all[-1].say(f"answer to {words}")

    async def move(self, *, look: bool = True) -> None:
        """Go on in another Claude session."""
        n = len(self.all)
        self.all.append(Transcript(self.folder / f"c{n}.jsonl", count=100 * n))
        await self.ours(f"p{n}")
        os.utime(self.all[-1].path, (n + 1, n + 1))
        if look:
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


async def test_untold_turns_of_unread_transcripts_are_told(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if one of those transcripts is gone."""
    for _ in range(5):
        await p.move()
    for n in range(4):
        p.terminal(n, f"term{n}")
        os.utime(p.all[n].path, (10 + n, 10 + n))
    assert "Asked: term0" in str((await p.look()).digest)
    monkeypatch.setattr(transcripts, "MOST_LEFT", 1)
    known = await p.s.imports.known_transcripts("one", (), transcripts.MOST_LEFT + 2)
    assert "c0" not in known.rows
    p.all[1].path.unlink()
    digest = str((await p.look()).digest)
    assert [n for n in range(4) if f"Asked: term{n}" in digest] == [0, 2, 3]


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


@pytest.mark.parametrize("fault", ["disk is silent", "not there yet", "daemon dies"])
async def test_what_user_has_cleared_is_never_told(
    p: Place, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Whatever comes of the first look at the new Claude session."""
    await p.move()
    await p.move(look=False)
    with monkeypatch.context() as broken:
        if fault == "daemon dies":
            store: Any = p.s.imports
            commit = store.commit_piece

            async def commit_and_die(*piece: Any) -> None:
                await commit(*piece)
                raise StoreClosed("killed")

            broken.setattr(store, "commit_piece", commit_and_die)
            with pytest.raises(StoreClosed):
                await p.look()
            p.made.close()
            p.made = ImportedTranscripts(store, os.fspath(p.folder.parent))
        else:
            error = TimeoutError() if fault == "disk is silent" else None
            broken.setattr(files, "find", Mock(return_value=None, side_effect=error))
            found = await p.look()
            assert (found.digest, found.complete) == (None, error is None)
    found = await p.look()
    assert (found.standing, found.digest, found.logged) == (RowStanding.SAME, None, [])


async def test_nothing_is_told_of_transcript_that_is_gone(p: Place) -> None:
    """It is Claude's memory that is lost then, which is told from the log."""
    await p.move()
    copy = Transcript(p.folder / "copy.jsonl", count=500)
    copy.path.write_bytes(p.all[0].path.read_bytes())
    copy.head = p.all[0].head
    p.all.append(copy)
    p.terminal(1, "term")
    found = await p.look()
    assert (found.standing, found.followed, found.digest) == (RowStanding.MOVED_ON, "copy", None)
    copy.path.unlink()
    found = await p.look()
    assert (found.standing, found.replaced, found.digest) == (RowStanding.MISSING, True, None)


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
