"""The index of transcripts on a real database, with the process that reads them."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pykoclaw_acp import __version__
from pykoclaw_acp.errors import Conflict, InternalError
from pykoclaw_acp.model.found_transcripts import Removed
from pykoclaw_acp.model.listing import ListQuery
from pykoclaw_acp.model.session_environment import StoredEnvironment
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions.turns import titles
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.system.regular_files import opened
from pykoclaw_acp.transcripts import child, finding, survey, watching, wire
from pykoclaw_acp.transcripts.finding import TranscriptFinder
from pykoclaw_acp.transcripts.process import ReaderDied, ReaderProcesses
from pykoclaw_acp.transcripts.roots import Roots
from tests.unit.transcripts import Transcript
from tests.waiting import eventually


def uuid(n: int) -> str:
    return f"{n:08d}-0000-4000-8000-000000000000"


class Index:
    """Transcripts in a folder, and what a list has of them."""

    def __init__(self, root: Path, database: Database) -> None:
        self.folder = root / "projects" / "-w"
        self.folder.mkdir(parents=True)
        self.accounts = root / "accounts"
        self.database = database
        self.journal = SessionJournal(database)
        self.readers = ReaderProcesses()
        self.finders: list[TranscriptFinder] = []
        self.asked: list[wire.ReaderRequest] = []

    def finder(self) -> TranscriptFinder:
        """As a daemon that has just started has it."""
        made = TranscriptFinder(
            self.journal, self.readers, titles.title, ["/data/conversations"],
            Roots(os.fspath(self.folder.parent), os.fspath(self.accounts)),
        )  # fmt: skip
        ask = made.surveyors.ask

        def noting(request: wire.ReaderRequest) -> Any:
            self.asked.append(request)
            return ask(request)

        made.surveyors.ask = noting  # type: ignore[method-assign]
        self.finders.append(made)
        return made

    def transcript(self, n: int, text: str = "Hi", **fields: Any) -> Transcript:
        made = Transcript(self.folder / f"{uuid(n)}.jsonl")
        made.prompt(text, timestamp=f"2026-01-01T00:00:{n:02d}Z", **fields)
        return made

    async def ids(self) -> list[str]:
        query = ListQuery(1000, transcripts=True)
        return [one.session_id for one in await self.journal.listed(query)]

    async def lists(self, *numbers: int) -> None:
        """Wait until the list has exactly these, in this order."""

        async def equal() -> bool:
            return await self.ids() == [uuid(n) for n in numbers]

        done: bool = await eventually(equal)
        assert done


@pytest.fixture
async def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Index]:
    monkeypatch.setattr(finding, "LONGEST_WAIT", 60.0)
    monkeypatch.setattr(finding, "SETTLE", 0.01)
    monkeypatch.setattr(finding, "LONGEST_REST", 0.0)
    database = await Database.open(tmp_path / "pykoclaw.db")
    made = Index(tmp_path, database)
    yield made
    for finder in made.finders:
        finder.close()
    made.readers.close()
    await database.close()


async def test_an_unchanged_start_reads_no_transcript(index: Index) -> None:
    for n in range(3):
        index.transcript(n)
    await index.finder().refresh()
    await index.lists(2, 1, 0)
    assert [type(one) for one in index.asked] == [wire.Survey, wire.Compare]
    index.finders[0].close()
    index.asked.clear()
    await index.finder().refresh()
    await index.lists(2, 1, 0)
    assert [type(one) for one in index.asked] == [wire.Survey]
    index.transcript(3)
    await index.lists(3, 2, 1, 0)


@pytest.mark.parametrize("inotify", [True, False])
async def test_changes_are_in_the_next_lists(
    index: Index, monkeypatch: pytest.MonkeyPatch, inotify: bool
) -> None:
    if not inotify:
        monkeypatch.setattr(watching.KernelWatches, "add", lambda *_: False)
        monkeypatch.setattr(finding, "LOOK_EVERY", 0.0)
    finder = index.finder()
    first = index.transcript(1)

    async def lists(*numbers: int) -> None:
        async def equal() -> bool:
            await finder.refresh()
            return await index.ids() == [uuid(n) for n in numbers]

        done: bool = await eventually(equal)
        assert done

    await lists(1)
    index.transcript(2)
    await lists(2, 1)
    first.say("more", timestamp="2026-01-01T01:00:00Z")
    await lists(1, 2)
    os.unlink(first.path)
    await lists(2)
    another = index.folder.with_name("-another")
    another.mkdir()
    index.folder, before = another, index.folder
    index.transcript(3)
    await lists(3, 2)
    for file in before.iterdir():
        file.unlink()
    before.rmdir()
    await lists(3)


async def test_lists_do_not_wait_for_next_look(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which would be much later by itself."""
    monkeypatch.setattr(finding, "LEAST_REST", 1000.0)
    monkeypatch.setattr(finding, "LONGEST_REST", 1000.0)
    finder = index.finder()
    for n in (1, 2, 3):
        index.transcript(n)

        async def newest(n: int = n) -> bool:
            await finder.refresh()
            return (await index.ids())[0] == uuid(n)

        done: bool = await eventually(newest)
        assert done


async def test_our_sessions_transcripts_are_not_listed_twice(index: Index) -> None:
    await index.journal.create(SessionRecord(uuid(1), "acp-1", "/w"))
    await index.journal.create(SessionRecord("other", "acp-other", "/w"))
    await index.journal.follow_transcript("other", uuid(2), told=True)
    for n in range(1, 5):
        index.transcript(n)
    index.transcript(5, cwd="/data/conversations/wa-1")
    index.transcript(6, "List ALL MCP tools currently available to you.")
    await index.finder().refresh()
    await index.lists(4, 3)
    await index.journal.adopt_transcript(SessionRecord(uuid(3), "acp-3", "/w"), 1)
    await index.journal.bury_transcript(uuid(4))
    await index.lists(3)
    with pytest.raises(Conflict):
        await index.journal.adopt_transcript(SessionRecord(uuid(4), "acp-4", "/w"), 1)
    with pytest.raises(Conflict):
        await index.journal.adopt_transcript(SessionRecord(uuid(2), "acp-2", "/w"), 1)
    await index.journal.delete(uuid(3))
    index.transcript(3, "Once more")
    index.transcript(4, "Once more")
    index.transcript(7)
    await index.lists(7)
    rows = await index.database.read("SELECT title FROM acp_found_transcripts WHERE listed = 0")
    assert set(rows) == {(None,)}


async def test_a_session_that_a_terminal_continues_moves_up(index: Index) -> None:
    for n in (1, 2):
        index.transcript(n)
        await index.journal.adopt_transcript(SessionRecord(uuid(n), f"acp-{n}", "/w"), n)
    finder = index.finder()
    await finder.refresh()
    await index.lists(2, 1)
    index.transcript(1).say("more", timestamp="2026-02-01T00:00:00Z")
    await index.lists(1, 2)


async def test_a_terminal_may_be_quick(index: Index) -> None:
    """An answer to a terminal a moment after the end of a turn of ours is news as well."""
    ended = 1_767_225_600_000  # 2026-01-01
    for n in (1, 2):
        index.transcript(n)
        await index.journal.adopt_transcript(SessionRecord(uuid(n), f"acp-{n}", "/w"), ended + 5000)
    await index.finder().refresh()
    await index.lists(2, 1)
    index.transcript(1).say("more", timestamp="2026-01-01T00:00:05.001Z")
    await index.lists(1, 2)
    rows = await index.journal.listed(ListQuery(9, transcripts=True))
    assert [one.updated_at for one in rows] == [ended + 5001, ended + 5000]


async def test_of_copies_the_newest_is_listed(index: Index) -> None:
    index.transcript(1, cwd="/old")
    copies = index.folder.with_name("-copies")
    copies.mkdir()
    newest = Transcript(copies / f"{uuid(1)}.jsonl")
    newest.prompt("Hi", timestamp="2026-03-01T00:00:00Z", cwd="/new")
    await index.finder().refresh()
    (row,) = await index.journal.listed(ListQuery(9, transcripts=True))
    assert (row.session_id, row.cwd, row.title) == (uuid(1), "/new", "Hi")


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("later", [False, True])
async def test_older_copy_is_listed_when_the_newest_goes(
    index: Index, *, whole: bool, later: bool
) -> None:
    index.transcript(1, "Older", cwd="/old")
    copies = index.folder.with_name("-copies")
    copies.mkdir()
    newest = Transcript(copies / f"{uuid(1)}.jsonl")
    newest.prompt("Hi", timestamp="2026-03-01T00:00:00Z", cwd="/new")
    await index.finder().refresh()
    await index.lists(1)
    if later:
        index.finders[0].close()
    if whole:
        shutil.rmtree(copies)
    else:
        newest.path.unlink()
    if later:
        await index.finder().refresh()

    async def old() -> bool:
        rows = await index.journal.listed(ListQuery(9, transcripts=True))
        return [(row.cwd, row.title) for row in rows] == [("/old", "Older")]

    done: bool = await eventually(old)
    assert done


async def test_transcript_is_found_before_it_is_indexed(index: Index) -> None:
    finder = index.finder()
    index.transcript(1, "A question", cwd="/somewhere", permissionMode="plan")
    found = await finder.find(uuid(1))
    assert found is not None
    assert (found.title, found.cwd, found.mode) == ("A question", "/somewhere", "plan")
    assert await finder.find(uuid(2)) is None
    assert await finder.find("../../x") is None
    index.transcript(3, isSidechain=True)
    assert await finder.find(uuid(3)) is None
    beside = index.folder / uuid(1)
    beside.mkdir()
    (beside / "note").write_text("x")
    removed = await finder.remove([uuid(1), uuid(2), "../projects"])
    assert removed == Removed(some=True)
    assert [one.name for one in index.folder.iterdir()] == [f"{uuid(3)}.jsonl"]
    assert await finder.remove([uuid(1)]) == Removed()


async def test_transcript_is_found_after_its_reader_was_killed(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder = index.finder()
    index.transcript(1)
    for _ in range(3):
        assert await finder.find(uuid(1)) is not None
        for pid in index.readers.pids:
            os.kill(pid, signal.SIGKILL)

    async def dying(_: object) -> AsyncIterator[Any]:
        for reason in ("it has ended",):
            raise ReaderDied(reason)
        yield None

    monkeypatch.setattr(index.readers, "ask", dying)
    with pytest.raises(InternalError, match="cannot be read now"):
        await finder.find(uuid(1))


async def test_unreadable_transcript_is_not_called_missing(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.transcript(1)
    index.transcript(2)
    finder = index.finder()
    index.readers.ask = finder.surveyors.ask = here  # type: ignore[method-assign]
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(survey, "opened", refusing(f"{index.folder}/{uuid(1)}.jsonl", opened))
        await finder.refresh()
        await index.lists(2)
        with pytest.raises(InternalError, match="Permission denied"):
            await finder.find(uuid(1))
    assert await finder.find(uuid(1)) is not None
    monkeypatch.setattr(finding, "LOOK_EVERY", 0.0)
    await finder.refresh()
    await index.lists(2, 1)


@pytest.mark.parametrize("root", [True, False])
async def test_sessions_in_unreadable_folders_stay_listed(
    index: Index, monkeypatch: pytest.MonkeyPatch, root: bool
) -> None:
    index.transcript(1)
    await index.finder().refresh()
    await index.lists(1)
    index.transcript(2)
    index.finders[0].close()
    monkeypatch.setattr(finding, "LOOK_EVERY", 0.0)
    finder = index.finder()
    finder.surveyors.ask = here  # type: ignore[method-assign]
    place = index.folder.parent if root else index.folder
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(os, "scandir", refusing(str(place), os.scandir))
        await finder.refresh()
        assert await index.ids() == [uuid(1)]
    await finder.refresh()
    await index.lists(2, 1)


async def here(request: wire.ReaderRequest) -> AsyncGenerator[wire.ReaderAnswer, None]:
    """What the process that reads answers, in this one."""
    for answer in child.answers(request, __version__):
        yield answer


def refusing(refused: str, opening: Callable[[str], Any]) -> Callable[[str], Any]:
    """Opens what the function does, but for one path: root may open all."""

    def chosen(path: str) -> Any:
        if path == refused:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opening(path)

    return chosen


async def test_transcript_that_cannot_be_deleted_is_named(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder = index.finder()
    index.transcript(1)
    index.transcript(2)
    unlink = os.unlink

    def refusing(path: str, **more: Any) -> None:
        if str(path).endswith(f"{uuid(1)}.jsonl"):
            raise PermissionError
        unlink(path, **more)

    monkeypatch.setattr(os, "unlink", refusing)
    removed = await finder.remove([uuid(1), uuid(2)])
    path = str(index.folder / f"{uuid(1)}.jsonl")
    assert removed == Removed(some=True, left=(path,), left_of=frozenset({uuid(1)}))
    assert (await finder.remove([uuid(1)])).some is False


async def test_transcript_stays_until_what_is_beside_goes(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is by the transcript that the rest is found again."""
    finder = index.finder()
    index.transcript(1)
    beside = index.folder / uuid(1)
    beside.mkdir()
    with monkeypatch.context() as stubborn:
        stubborn.setattr(shutil, "rmtree", lambda *_, **__: None)
        assert (await finder.remove([uuid(1)])).left_of == {uuid(1)}
    assert await finder.remove([uuid(1)]) == Removed(some=True)
    assert not beside.exists()


async def test_transcripts_in_unreadable_folder_are_left(index: Index) -> None:
    finder = index.finder()
    root = index.folder.parent
    root.rename(root.with_name("away"))
    root.write_text("no folder")
    assert (await finder.remove([uuid(1)])).left_of == {uuid(1)}
    root.unlink()
    assert await finder.remove([uuid(1)]) == Removed()


async def test_deleted_transcript_is_not_left_elsewhere(index: Index) -> None:
    """A folder that cannot be searched counts only for what was found nowhere else."""
    finder = index.finder()
    index.transcript(1)
    broken = index.accounts / "work" / "projects"
    broken.parent.mkdir(parents=True)
    broken.write_text("no folder")
    with capture_logs() as logged:
        removed = await finder.remove([uuid(1), uuid(2)])
    assert removed == Removed(some=True, left=(str(broken),), left_of=frozenset({uuid(2)}))
    assert [one["paths"] for one in logged if one["action"] == "undeleted"] == [(str(broken),)]


@pytest.mark.parametrize("name", ["projects/-v", "accounts", "accounts/work"])
async def test_transcript_is_left_where_nothing_can_be_entered(index: Index, name: str) -> None:
    finder = index.finder()
    closed = index.accounts.parent / name
    closed.parent.mkdir(exist_ok=True)
    closed.symlink_to(closed)  # root may enter any directory
    (left,) = (await finder.remove([uuid(1)])).left
    assert left.startswith(str(closed))
    closed.unlink()
    assert await finder.remove([uuid(1)]) == Removed()


@pytest.mark.parametrize("link", [True, False])
async def test_what_is_beside_may_be_no_directory(index: Index, link: bool) -> None:
    finder = index.finder()
    index.transcript(1)
    index.transcript(2)
    beside, other = index.folder / uuid(1), index.folder.parent / "other"
    other.mkdir()
    (other / "note").write_text("x")
    if link:
        beside.symlink_to(other)
    else:
        beside.write_text("x")
    assert await finder.remove([uuid(1)]) == Removed(some=True)
    assert [one.name for one in index.folder.iterdir()] == [f"{uuid(2)}.jsonl"]
    assert (other / "note").exists(), "that is somebody else's"


async def test_dead_reader_is_replaced_at_next_list(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "LOOK_EVERY", 0.0)
    index.transcript(1)
    finder = index.finder()
    keep = index.journal.keep_found

    async def failing(*arguments: Any) -> None:
        index.journal.keep_found = keep  # type: ignore[method-assign]
        raise OSError("no")

    index.journal.keep_found = failing  # type: ignore[method-assign,assignment]
    await finder.refresh()
    assert await index.ids() == []
    await finder.refresh()
    await index.lists(1)


async def test_nothing_is_watched_when_nobody_asks(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.transcript(1)
    finder = index.finder()
    descriptors = len(os.listdir("/proc/self/fd"))
    await finder.refresh()
    await index.lists(1)
    with monkeypatch.context() as later:
        later.setattr(finding, "UNASKED", -1.0)
        index.transcript(2)
        finder.surveyors.close()
        await eventually(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
    assert await index.ids() == [uuid(1)]


def watches() -> int:
    """How many descriptors of this process watch files."""
    every = Path("/proc/self/fd").iterdir()
    return sum(os.path.realpath(one).endswith("anon_inode:inotify") for one in every)


async def test_first_list_in_hours_waits_for_look(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = 0.0
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + hours)
    finder = index.finder()
    await finder.refresh()
    before = watches()
    hours = 7200.0
    index.transcript(1)
    await eventually(lambda: watches() < before)
    await finder.refresh()
    assert await index.ids() == [uuid(1)]


async def test_accounts_have_transcripts_of_their_own(index: Index) -> None:
    own, work = index.folder, index.accounts / "work" / "projects" / "-w"
    index.transcript(1)
    index.accounts.mkdir()
    (index.accounts / "not an account").mkdir()
    finder = index.finder()
    await finder.refresh()
    await index.lists(1)
    work.mkdir(parents=True)  # `pykoclaw-acp login --account work`, then `claude` in a terminal
    index.folder = work
    index.transcript(2)

    async def listed() -> bool:
        await finder.refresh()
        return await index.ids() == [uuid(2), uuid(1)]

    shown: bool = await eventually(listed)
    assert shown
    found = await finder.find(uuid(2))
    assert found is not None
    assert found.account == "work"
    record = SessionRecord(uuid(2), "acp-2", "/w", environment=StoredEnvironment(found.account))
    await index.journal.adopt_transcript(record, found.updated_at)
    kept = await index.journal.find(uuid(2))
    assert kept is not None
    assert kept.environment.account == "work"
    index.folder = own
    mine = await finder.find(uuid(1))
    assert mine is not None
    assert mine.account == ""

    index.folder = work
    index.transcript(3)
    await index.lists(3, 2, 1)
    shutil.rmtree(index.accounts)

    async def gone() -> bool:
        await finder.refresh()
        return await index.ids() == [uuid(2), uuid(1)]

    left: bool = await eventually(gone)
    assert left
