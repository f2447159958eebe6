"""The import against deaths, damage and size: each event is in the log once, in order, and the
process that reads stays small.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pykoclaw_acp.errors import InternalError, StoreClosed, StoreUnavailable
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.branches import Branch
from pykoclaw_acp.model.events import Event, Text, UserMessage
from pykoclaw_acp.model.imports import Imported, ImportedPiece, RowStanding
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.protocol import projection
from pykoclaw_acp.server.update_lines import update_line
from pykoclaw_acp.store import overview
from pykoclaw_acp.system import disks, lineage, processes
from pykoclaw_acp.system import transcript_files as files
from pykoclaw_acp.system.mounts import Mounts
from pykoclaw_acp.transcripts import process, watching, wire
from pykoclaw_acp.transcripts.process import ReaderDied, ReaderProcesses
from pykoclaw_acp.transcripts.reader import DAMAGED
from pykoclaw_acp.transcripts.state import MOST_TURNS
from pykoclaw_acp.transcripts.transcripts import ImportedTranscripts
from tests.databases import open_new
from tests.integration.journals import Subject, subject
from tests.integration.queueing import execute
from tests.unit.transcripts import Transcript, words
from tests.waiting import eventually, pass_loop_time

CLAUDE = "c1a0de00-0000-4000-8000-000000000000"
MEMORY = 64 * 1024  # KiB, above an empty Python's


class Place:
    """A session, and a transcript beside it."""

    def __init__(self, root: Path, s: Subject) -> None:
        self.projects = root / "projects"
        (self.projects / "-w").mkdir(parents=True)
        self.transcript = Transcript(self.projects / "-w" / f"{CLAUDE}.jsonl")
        self.s = s
        self.store: Any = s.journal
        self.made: list[ImportedTranscripts] = []
        self.record = SessionRecord("one", "acp-one", "/w")

    def transcripts(self) -> ImportedTranscripts:
        """As a daemon that has just started has it."""
        self.made.append(ImportedTranscripts(self.store, os.fspath(self.projects)))
        return self.made[-1]

    async def look(self, transcripts: ImportedTranscripts | None = None) -> Imported:
        found = await self.s.journal.find("one")
        assert found is not None
        made = transcripts or (self.made[-1] if self.made else self.transcripts())
        return await made.take_in(found, CLAUDE, own=())

    async def logged(self) -> list[Event]:
        """The log, page by page."""
        read: list[Logged] = []
        while page := await self.s.journal.read("one", len(read), 10_000):
            read += page
        assert [one.seq for one in read] == list(range(1, len(read) + 1))
        return [one.event for one in read if one.event is not None]

    async def log(self) -> list[str]:
        return words(await self.logged())


@pytest.fixture
async def p(tmp_path: Path) -> AsyncIterator[Place]:
    async with subject("sqlite", tmp_path) as made:
        place = Place(tmp_path, made)
        await made.session()
        yield place
        for one in place.made:
            one.close()


def turns(transcript: Transcript, count: int, first: int = 0) -> list[str]:
    """So many turns; returns what the log has of them."""
    said: list[str] = []
    for n in range(first, first + count):
        transcript.prompt(f"question {n}", f"p{n}")
        transcript.call(f"t{n}", command=f"ls {n}")
        transcript.result(f"t{n}", f"{n}.txt")
        transcript.say(f"answer {n}")
        said += [f"> question {n}", f"ls {n} …", f"t{n} completed", f"answer {n}"]
    return said


async def test_plan_that_claude_writes_is_no_edit(p: Place) -> None:
    """It is shown when Claude presents it, as by a worker; a file in another directory is one."""
    p.transcript.prompt("Plan it", "p1")
    for call, place in (("plan", p.projects.parent / "plans"), ("file", Path("/w/plans"))):
        p.transcript.call(call, "Write", file_path=f"{place}/a-b-c.md", content="# Plan")
        await p.look()
        p.transcript.result(call, toolUseResult={"type": "create", "filePath": "a-b-c.md"})
    await p.look()
    assert await p.log() == ["> Plan it", "Write /w/plans/a-b-c.md …", "file completed"]


async def test_ten_thousand_messages_come_in_few_commits(p: Place) -> None:
    said = turns(p.transcript, 2500)
    pieces = await counted(p)
    found = await p.look()
    assert await p.log() == said
    assert len(pieces) < 60
    assert all(len(piece.events) <= 402 for piece in pieces)
    newest = words(one.event for one in found.logged if one.event)
    assert len(newest) > 1000
    assert newest == said[-len(newest) :]


@pytest.mark.parametrize("again", [slice(None), slice(3, 4)], ids=["all", "one answer"])
async def test_rewritten_entry_is_in_log_once(p: Place, again: slice) -> None:
    said = turns(p.transcript, 20)
    await p.look()
    written = p.transcript.path.read_text().splitlines(keepends=True)
    said += turns(p.transcript, 1, first=20)
    p.transcript.raw("".join(written[again]))
    said += turns(p.transcript, 1, first=21)
    await p.look()
    assert await p.log() == said


async def test_turns_of_transcripts_are_counted_apart(p: Place, tmp_path: Path) -> None:
    turns(p.transcript, 3)
    await p.look()
    database = await open_new(tmp_path / "pykoclaw.db")
    found = await overview.details(database, "one")
    await database.close()
    assert (found.turn_count, found.other_turns) == (0, 3)


async def counted(p: Place) -> list[ImportedPiece]:
    """The pieces that are committed from now on."""
    pieces: list[ImportedPiece] = []
    commit = p.store.commit_piece

    async def counting(session: str, piece: ImportedPiece) -> list[Logged]:
        pieces.append(piece)
        logged: list[Logged] = await commit(session, piece)
        return logged

    p.store.commit_piece = counting
    return pieces


async def test_unchanged_transcript_starts_no_process(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "IDLE", 0.01)
    turns(p.transcript, 3)
    await p.look()
    await eventually(lambda: not p.made[0].readers.pids)
    pieces = await counted(p)
    found = await p.look()
    assert (found.standing, found.logged, pieces) == (RowStanding.MOVED_ON, [], [])
    assert p.made[0].readers.pids == []
    again = p.transcripts()
    assert (await p.look(again)).standing is RowStanding.MOVED_ON
    assert (again.readers.pids, pieces) == ([], [])


async def test_terminals_command_is_known_to_next_server(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a turn of ours is the newest, the worker lacks what the command did."""
    own: list[str] = ["p0"]

    async def own_turns(_session: str, *, new: bool) -> list[str]:
        return own

    monkeypatch.setattr(p.store, "own_turns", own_turns)
    turns(p.transcript, 1)
    assert (await p.look()).standing is RowStanding.SAME
    p.transcript.prompt("<command-name>/compact</command-name>", entrypoint="cli")
    p.transcript.prompt("<local-command-stdout></local-command-stdout>", entrypoint="cli")
    assert (await p.look()).standing is RowStanding.MOVED_ON
    assert (await p.look(p.transcripts())).standing is RowStanding.MOVED_ON
    p.transcript.leaf(str(p.transcript.head))
    assert (await p.look()).standing is RowStanding.MOVED_ON, "it was only noted"
    own.append("p1")
    turns(p.transcript, 1, 1)
    assert (await p.look()).standing is RowStanding.SAME
    assert (await p.look(p.transcripts())).standing is RowStanding.SAME


async def test_reader_is_no_process_of_a_worker(p: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lineage.WORKER, "one:two:3")
    turns(p.transcript, 1)
    await p.look()
    (pid,) = p.made[0].readers.pids
    assert lineage.cookie(pid) is None


async def test_reader_gives_way_after_working_long(p: Place) -> None:
    turns(p.transcript, 1)
    await p.look()
    readers = p.made[0].readers
    (pid,) = readers.pids
    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)
    os.kill(pid, signal.SIGPROF)  # its CPU time is used up
    await eventually(lambda: os.getpriority(os.PRIO_PROCESS, pid) >= 10)
    turns(p.transcript, 2)
    await p.look()
    assert pid not in readers.pids, "what comes next would have to wait"


@pytest.mark.long
async def test_server_that_dies_after_any_piece_goes_on(p: Place) -> None:
    said = turns(p.transcript, 700)
    commit = p.store.commit_piece
    deaths = 0

    async def dying(session: str, piece: ImportedPiece) -> list[Logged]:
        nonlocal deaths
        if deaths % 2 == 0:  # before the commit, then after it
            deaths += 1
            raise asyncio.CancelledError
        deaths += 1
        await commit(session, piece)
        raise asyncio.CancelledError

    p.store.commit_piece = dying
    for _ in range(6):
        with pytest.raises(asyncio.CancelledError):
            await p.look(p.transcripts())
    assert 0 < len(await p.log()) < len(said)
    p.store.commit_piece = commit
    await p.look(p.transcripts())
    assert await p.log() == said


async def test_killed_reader_is_replaced(p: Place) -> None:
    said = turns(p.transcript, 1000)
    commit = p.store.commit_piece
    kills: list[int] = []

    async def killing(session: str, piece: ImportedPiece) -> list[Logged]:
        logged: list[Logged] = await commit(session, piece)
        for pid in p.made[0].readers.pids:
            if pid not in kills and len(kills) < 2:
                kills.append(pid)
                os.kill(pid, signal.SIGKILL)
        return logged

    p.store.commit_piece = killing
    await p.look()
    assert len(kills) == 2
    assert await p.log() == said


@pytest.mark.parametrize("server_ends", [False, True])
async def test_reader_that_does_not_die_holds_up_nobody(
    p: Place, monkeypatch: pytest.MonkeyPatch, server_ends: bool
) -> None:
    """One whose disk hangs gets no SIGKILL before that answers."""
    turns(p.transcript, 1)
    await p.look()
    readers = p.made[0].readers
    (pid,) = readers.pids
    kill = subprocess.Popen.kill
    monkeypatch.setattr(subprocess.Popen, "kill", lambda one: one.pid == pid or kill(one))
    os.kill(pid, signal.SIGSTOP)
    await eventually(lambda: processes.state(pid) == "T")
    answers = threading.Timer(20, os.kill, (pid, signal.SIGKILL))
    answers.start()
    try:
        if server_ends:
            readers.close()
        else:
            pass_loop_time(process.IDLE)
            await eventually(lambda: not readers.pids)
        assert processes.state(pid) == "T", "it was waited for"
    finally:
        os.kill(pid, signal.SIGKILL)
        answers.cancel()
        answers.join()
    await eventually(lambda: processes.state(pid) is None)


async def test_no_more_readers_are_started_while_many_hang(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MOST_ENDING", 1)
    turns(p.transcript, 1)
    await p.look()
    readers = p.made[0].readers
    (pid,) = readers.pids
    kill = subprocess.Popen.kill
    monkeypatch.setattr(subprocess.Popen, "kill", lambda one: one.pid == pid or kill(one))
    os.kill(pid, signal.SIGSTOP)
    pass_loop_time(process.IDLE)
    await eventually(lambda: not readers.pids)
    turns(p.transcript, 1, 1)
    assert not (await p.look()).complete
    assert readers.pids == []
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: processes.state(pid) is None)
    assert (await p.look()).complete


@pytest.mark.parametrize("call", ["stat", "open"])
async def test_transcript_on_silent_disk_ends_the_look(
    p: Place, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    said = turns(p.transcript, 1)
    await p.look()
    said += turns(p.transcript, 1, 1)
    monkeypatch.setattr(Mounts, "disk_of", lambda *_: os.fspath(p.projects))
    monkeypatch.setattr(disks, "WAIT", 0.1)
    answers, real = threading.Event(), getattr(os, call)

    def hanging(path: Any, *arguments: Any, **named: Any) -> Any:
        if path == os.fspath(p.transcript.path):
            answers.wait(5)
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, call, hanging)
    found = await p.look()
    answers.set()
    assert (found.logged, found.complete) == ([], False)
    async with asyncio.timeout(60):
        while not (await p.look()).complete:
            pass
    assert await p.log() == said


async def test_silent_disk_stalls_neither_loop_nor_other_calls(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when a session is watched that was looked at before, nor when it is asked for."""
    turns(p.transcript, 1)
    await p.look()
    monkeypatch.setattr(Mounts, "disk_of", lambda *_: os.fspath(p.projects))
    monkeypatch.setattr(disks, "WAIT", 0.1)
    answers, threads = threading.Event(), set[int]()

    def hanging(*arguments: Any, **named: Any) -> Any:
        threads.add(threading.get_ident())
        answers.wait(60)
        raise OSError("Input/output error")

    made = p.made[-1]
    try:
        with monkeypatch.context() as hung:
            hung.setattr(files, "look", hanging)
            hung.setattr(files, "find", hanging)
            hung.setattr(watching.KernelWatches, "add", hanging)
            end = made.watch("one", lambda: None)
            for _ in range(10):
                with pytest.raises(InternalError, match="does not answer"):
                    await made.exists(CLAUDE)
            assert await asyncio.wait_for(asyncio.to_thread(int), 30) == 0
            assert threads
            assert threading.get_ident() not in threads, "the loop waits for nothing"
            end()
    finally:
        answers.set()


async def test_line_that_kills_readers_costs_itself(p: Place) -> None:
    before = turns(p.transcript, 150)
    hostile = p.transcript.path.stat().st_size
    p.transcript.say("hostile")
    after = turns(p.transcript, 2, 900)
    made = p.transcripts()
    made.readers = Deadly(hostile)
    await p.look(made)
    assert await p.log() == [*before, DAMAGED, *after]


async def test_turn_goes_on_long_after_readers_death(p: Place) -> None:
    said = turns(p.transcript, 1)
    middle = p.transcript.head
    said += turns(p.transcript, MOST_TURNS, 1)
    hostile = p.transcript.path.stat().st_size
    p.transcript.say("hostile")
    p.transcript.say("The answer is 42.", parentUuid=middle)
    made = p.transcripts()
    made.readers = Deadly(hostile)
    await p.look(made)
    assert await p.log() == [*said, DAMAGED, "The answer is 42."]


class Deadly(ReaderProcesses):
    """Readers that die of the line at `hostile`."""

    def __init__(self, hostile: int) -> None:
        super().__init__()
        self._hostile = hostile

    async def ask(self, request: wire.ReaderRequest) -> AsyncGenerator[wire.ReaderAnswer, None]:
        assert isinstance(request, wire.Scan)
        skipped = request.skip_first and request.offset == self._hostile
        async for answer in super().ask(request):
            assert isinstance(answer, wire.Piece)
            if answer.offset > self._hostile >= request.offset and not skipped:
                raise ReaderDied
            yield answer


@pytest.mark.long
async def test_readers_that_always_die_end_the_look(p: Place) -> None:
    turns(p.transcript, 2)
    made = p.transcripts()

    class Always(ReaderProcesses):
        async def ask(self, request: wire.ReaderRequest) -> AsyncGenerator[wire.ReaderAnswer, None]:
            async for _ in super().ask(request):
                raise ReaderDied
            yield wire.UnreadableTranscript("never")

    made.readers = Always()
    found = await p.look(made)
    assert (found.logged, found.standing, found.complete) == ([], RowStanding.SAME, False)
    made.readers = ReaderProcesses()
    found = await p.look(made)
    assert (found.standing, found.complete) == (RowStanding.MOVED_ON, True)


async def test_event_of_another_version_costs_no_line(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers start from files that were installed anew below the server."""
    said = turns(p.transcript, 3)
    with monkeypatch.context() as upgraded:
        upgraded.setattr(wire, "answers", msgspec.json.Decoder(wire.Folders))
        for _ in range(3):
            found = await p.look()
            assert (found.logged, found.complete) == ([], False)
    with monkeypatch.context() as upgraded:
        upgraded.setattr(process, "__version__", "0.0.1")
        p.made.clear()
        found = await p.look(p.transcripts())
        assert (found.logged, found.complete) == ([], False)
    assert (await p.look(p.transcripts())).complete
    assert await p.log() == said


async def test_server_stopping_during_look_blames_no_readers(p: Place) -> None:
    """A session said after such a stop that turns of other programs may be missing."""
    turns(p.transcript, 2)
    made = p.transcripts()

    class Ended(ReaderProcesses):
        async def ask(self, request: wire.ReaderRequest) -> AsyncGenerator[wire.ReaderAnswer, None]:
            self.close()
            async for answer in super().ask(request):
                yield answer

    made.readers = Ended()
    with pytest.raises(StoreClosed):
        await p.look(made)
    made.readers = ReaderProcesses()
    found = await p.look(made)
    assert (found.standing, found.complete) == (RowStanding.MOVED_ON, True)


async def test_transcript_growing_while_read_is_complete(p: Place) -> None:
    said: list[str] = []

    def write() -> None:
        for n in range(300):
            said.extend(turns(p.transcript, 1, n))

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        await p.look()
    writer.join()
    await p.look()
    assert await p.log() == said


async def test_our_prompt_meanwhile_is_not_called_anothers(p: Place) -> None:
    said = turns(p.transcript, 1)
    own_turns, late = p.store.own_turns, "late"

    async def sending(session: str, *, new: bool) -> list[str]:
        known: list[str] = await own_turns(session, new=new)
        if late not in known:
            await p.s.running(session, late)
            p.transcript.prompt("ours", late)
            p.transcript.say("our answer")
        return known

    p.store.own_turns = sending
    await p.look()
    await p.look()
    assert await p.log() == said


async def test_branch_is_told_until_it_is_noted(p: Place) -> None:
    turns(p.transcript, 1)
    fork = p.transcript.head
    await p.look()
    p.transcript.prompt("theirs", "x1")
    p.transcript.say("their answer")
    p.transcript.prompt("theirs, too", "x2", parentUuid=fork)
    p.transcript.say("another answer")
    first = await p.look()
    assert first.digest is not None
    assert "their answer" in first.digest
    assert "another answer" not in first.digest
    other = p.transcripts()  # a server that died before it could write the note
    again = await p.look(other)
    assert (again.digest, again.digest_id) == (first.digest, first.digest_id)
    assert (await p.look(other)).digest == first.digest
    await other.note_told("one")
    assert (await p.look(other)).digest is None
    assert (await p.look(p.transcripts())).digest is None


@pytest.mark.parametrize("branching", [False, True])
async def test_rewound_branch_is_not_told(p: Place, *, branching: bool) -> None:
    """Unless our next Claude session is to branch off elsewhere."""
    turns(p.transcript, 1)
    fork = p.transcript.head
    await p.look()
    await p.store.follow_transcript("one", CLAUDE, told=False)
    p.transcript.prompt("wrong", "x1")
    p.transcript.say("wrong answer")
    await p.look()
    cut = {"leafUuid": fork, "explicit": True, "rewound": True, "cutUuid": "x1"}
    p.transcript.raw(json.dumps({"type": "last-prompt", **cut}) + "\n")
    p.transcript.prompt("right", "x2", parentUuid=fork)
    p.transcript.say("right answer")
    record = await p.s.journal.find("one")
    assert record is not None
    record.branch = Branch(CLAUDE, fork) if branching else None
    found = await p.made[-1].take_in(record, CLAUDE, own=())
    assert (found.digest is not None) is branching
    assert any("Rewound" in one for one in await p.log()) is not branching
    assert (await p.s.journal.forgotten("one") == {"x1"}) is not branching


@pytest.mark.parametrize("goes_on", ["ours", "theirs"])
async def test_first_look_at_our_claude_session_tells_branches(p: Place, goes_on: str) -> None:
    """Another program was there at once with our first turn."""
    await p.s.ended("one", "ours")
    await p.store.follow_transcript("one", CLAUDE, told=False)
    prompt = p.transcript.prompt("ours", "ours")
    p.transcript.synthetic()
    p.transcript.prompt("theirs", "theirs")
    theirs = p.transcript.say("their answer")
    ours = p.transcript.say("our answer", parentUuid=prompt)
    p.transcript.leaf({"ours": ours, "theirs": theirs}[goes_on])
    found = await p.look()
    assert found.digest is not None
    assert ("their answer" in found.digest) is (goes_on == "ours")
    assert ("our answer" in found.digest) is (goes_on == "theirs")


async def test_look_that_fails_forgets_nothing_it_found(p: Place) -> None:
    """What it has committed is told by the next one, which finds nothing new in the transcript."""
    await p.s.ended("one", "p0")
    turns(p.transcript, 1)
    for _ in range(2):
        assert (await p.look()).standing is RowStanding.SAME
    commit, read = p.store.commit_piece, p.store.transcript_turns

    async def locked(*_: object) -> None:
        p.store.transcript_turns = read
        raise StoreUnavailable("locked", "Another program keeps the database locked.")

    async def committing(session: str, piece: ImportedPiece) -> list[Logged]:
        logged: list[Logged] = await commit(session, piece)
        p.store.transcript_turns = locked
        return logged

    p.store.commit_piece = committing
    said = turns(p.transcript, 1, first=1)
    with pytest.raises(StoreUnavailable):
        await p.look()
    for _ in range(2):
        found = await p.look()
        assert found.standing is RowStanding.MOVED_ON
        assert words(one.event for one in found.logged if one.event) == said
        said = []


async def test_branch_no_reader_could_tell_comes_later(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns(p.transcript, 1)
    fork = p.transcript.head
    await p.look()
    p.transcript.prompt("theirs", "x1")
    p.transcript.say("their answer")
    p.transcript.prompt("theirs, too", "x2", parentUuid=fork)
    ask = ReaderProcesses.ask

    def dying(
        readers: ReaderProcesses, request: wire.ReaderRequest
    ) -> AsyncGenerator[wire.ReaderAnswer, None]:
        if isinstance(request, wire.Digest):
            raise ReaderDied
        return ask(readers, request)

    with monkeypatch.context() as dead:
        dead.setattr(ReaderProcesses, "ask", dying)
        assert (await p.look()).digest is None
    found = await p.look()
    assert found.digest is not None
    assert "their answer" in found.digest


async def test_replaced_or_cut_file_tells_nothing_twice(p: Place) -> None:
    said = turns(p.transcript, 30)
    await p.look()
    path = p.transcript.path
    text = path.read_bytes()
    copy = path.with_suffix(".new")
    copy.write_bytes(text)
    copy.replace(path)
    assert (await p.look()).logged == []
    path.write_bytes(text[: len(text) // 2])  # in place, in the middle of a line
    assert (await p.look()).logged == []
    path.write_bytes(text)
    p.transcript.say("more")
    await p.look()
    assert await p.log() == [*said, "more"]


async def test_call_of_replaced_file_ends_once(p: Place) -> None:
    p.transcript.prompt("theirs", "p1")
    p.transcript.call("left", command="ls")
    await p.s.running("one", "ours")
    p.transcript.prompt("ours", "ours")
    p.transcript.say("our answer")
    p.transcript.prompt("theirs, too", "p2")
    p.transcript.call("open", command="ls")
    await p.look()
    path = p.transcript.path
    path.with_suffix(".new").write_bytes(path.read_bytes())
    path.with_suffix(".new").replace(path)
    p.transcript.result("open")
    await p.look()
    ends = [one for one in await p.log() if one.startswith(("left ", "open "))]
    assert ends == ["left failed", "open completed"]


async def test_file_with_another_content_is_read_anew(p: Place) -> None:
    said = turns(p.transcript, 10)
    await p.look()
    path = p.transcript.path
    lines = path.read_bytes().splitlines(keepends=True)
    path.with_suffix(".new").write_bytes(b"".join(lines[:8]))
    path.with_suffix(".new").replace(path)
    p.transcript.prompt("new", "n1", parentUuid="e8")
    p.transcript.say("after")
    await p.look()
    assert await p.log() == [*said, "> new", "after"]


async def test_message_into_running_turn_says_its_origin(p: Place) -> None:
    """Also when the prompt was imported before."""
    p.transcript.prompt("one", "p1", entrypoint="cli")
    said = {"type": "queued_command", "commandMode": "prompt"}
    for text in ("two", "three"):
        await p.look()
        p.transcript.add("attachment", attachment={**said, "prompt": text}, entrypoint="cli")
    await p.look()
    asked = [one for one in await p.logged() if isinstance(one, UserMessage)]
    assert [one.content["text"] for one in asked] == ["one", "two", "three"]
    assert {one.origin for one in asked} == {prompt_text.TERMINAL}


async def test_commands_left_out_stay_so_after_death(p: Place) -> None:
    """Earlier versions left commands for a shell out; the file is read anew, and a reader dies."""
    told = turns(p.transcript, 1)
    hostile = p.transcript.path.stat().st_size
    told += turns(p.transcript, 1, 1)
    await p.look()
    path = p.transcript.path
    read = path.read_bytes()
    path.with_suffix(".new").write_bytes(read[:hostile])
    path.with_suffix(".new").replace(path)
    p.transcript.raw("{}\n")
    p.transcript.prompt("<bash-input>old</bash-input>", "b1", entrypoint="cli", parentUuid="e4")
    p.transcript.raw(read[hostile:].decode())
    p.transcript.prompt("<bash-input>new</bash-input>", "b2", entrypoint="cli", parentUuid="e8")
    made = p.transcripts()
    made.readers = Deadly(hostile)
    await p.look(made)
    assert await p.log() == [*told, DAMAGED, "> !new", "new …"]


async def test_line_a_crash_cut_is_damaged_later(p: Place) -> None:
    said = turns(p.transcript, 1)
    p.transcript.raw('{"type": "assistant", "uuid": "x", "mess')
    await p.look()
    assert await p.log() == said
    p.transcript.raw("\n")
    p.transcript.say("after")
    await p.look()
    assert await p.log() == [*said, DAMAGED, "after"]


@pytest.mark.long
async def test_reader_of_huge_lines_stays_small(p: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    megabyte = "0123456789abcdef" * 65536
    p.transcript.prompt("huge", "p1")
    p.transcript.call("t1", command="cat big")
    p.transcript.result("t1", megabyte * 30, toolUseResult={"stdout": megabyte * 30})
    image = {"type": "base64", "media_type": "image/png", "data": "A" * 5_000_000}
    p.transcript.call("t2", "Read", file_path="/w/a.png")
    p.transcript.result(
        "t2",
        [{"type": "image", "source": image}] * 3,
        toolUseResult={"file": {"base64": "A" * 5_000_000}},
    )
    p.transcript.say("😀" + megabyte * 20)
    p.transcript.say("".join(chr(0x1F600 + n % 64) for n in range(120_000)))
    p.transcript.prompt([{"type": "image", "source": image}], "p2")
    p.transcript.say("{" * 2_000_000)
    p.transcript.raw('{"uuid": "deep", "type": ' + "[" * 300_000 + "]" * 300_000 + "}\n")
    turns(p.transcript, 2000, 10)
    monkeypatch.setattr(os, "getpriority", lambda *_: 0)  # it is looked at when it is done
    await p.look()
    (pid,) = p.made[0].readers.pids
    more = peak(pid) - empty()
    assert more < MEMORY, f"{more} KiB"
    events = await p.logged()
    assert isinstance(events[0], UserMessage)
    said = [one for one in events if isinstance(one, Text)]
    assert said[-1] == Text(said[-1].message_id, "answer 2009")
    assert max(len(one.text) for one in said) <= 256 * 1024


def peak(pid: int) -> int:
    """Most memory that a process had, KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (found,) = [line for line in lines if line.startswith("VmHWM")]
    return int(found.split()[1])


def empty() -> int:
    """Most memory that a Python without anything had, KiB."""
    program = "print(open('/proc/self/status').read())"
    out = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, check=True, text=True
    ).stdout
    (found,) = [line for line in out.splitlines() if line.startswith("VmHWM")]
    return int(found.split()[1])


async def test_state_of_another_version_is_done_without(p: Place, tmp_path: Path) -> None:
    said = turns(p.transcript, 20)
    await p.look()
    execute(tmp_path / "pykoclaw.db", "UPDATE acp_transcripts SET state = '[7]'")
    said += turns(p.transcript, 1, 20)
    p.transcript.say("and more")
    await p.look()
    assert await p.log() == [*said, "and more"]


async def test_server_that_stops_starts_no_reader(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns(p.transcript, 500)
    started: list[int] = []
    start = subprocess.Popen

    def counting(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        started.append(1)
        return start(command, **how)

    monkeypatch.setattr(subprocess, "Popen", counting)
    made, commit = p.transcripts(), p.store.commit_piece

    async def stopping(session: str, piece: ImportedPiece) -> list[Logged]:
        made.close()
        logged: list[Logged] = await commit(session, piece)
        return logged

    p.store.commit_piece = stopping
    with pytest.raises(StoreClosed):
        await p.look(made)
    assert (made.readers.pids, started) == ([], [1])


async def test_two_long_imports_do_not_starve_third(p: Place) -> None:
    turns(p.transcript, 50)
    for name in ("two", "three", "four"):
        await p.s.session(name)
    made = p.transcripts()
    looks = []
    for name in ("one", "two", "three", "four"):
        found = await p.s.journal.find(name)
        assert found is not None
        looks.append(made.take_in(found, CLAUDE, own=()))
    for one in await asyncio.gather(*looks):
        assert len(one.logged) == 200
    assert len(made.readers.pids) <= process.MOST


async def test_emptied_session_stays_empty(p: Place) -> None:
    turns(p.transcript, 5)
    found = await p.s.journal.find("one")
    assert found is not None
    found.pruned_upto = 7
    made = p.transcripts()
    assert (await made.take_in(found, CLAUDE, own=())).logged == []
    turns(p.transcript, 1, 5)
    assert len((await made.take_in(found, CLAUDE, own=())).logged) == 4


async def test_huge_import_returns_its_newest_events(p: Place) -> None:
    p.transcript.prompt("x", "p1")
    for _ in range(30):
        p.transcript.say("y" * 100_000)
    found = await p.look()
    assert len(await p.log()) == 31
    assert 5 < len(found.logged) < 15
    assert found.logged[-1].seq == 31


@pytest.mark.parametrize("inotify", [True, False])
async def test_changes_are_noticed_while_somebody_watches(
    p: Place, monkeypatch: pytest.MonkeyPatch, inotify: bool
) -> None:
    monkeypatch.setattr(watching, "SETTLE", 0.01)
    monkeypatch.setattr(watching, "LOOK_EVERY", 0.01)
    if not inotify:
        monkeypatch.setattr(watching.KernelWatches, "add", lambda *_: False)
    turns(p.transcript, 1)
    await p.look()
    made, calls = p.made[0], [0, 0]
    descriptors = len(os.listdir("/proc/self/fd"))

    def count(which: int) -> None:
        calls[which] += 1

    first = made.watch("one", lambda: count(0))
    second = made.watch("one", lambda: count(1))
    made.watch("other", lambda: count(1))()
    turns(p.transcript, 1, 1)
    await eventually(lambda: calls[0] >= 1 and calls[1] >= 1)
    first()
    before = calls[0]
    p.transcript.path.rename(p.transcript.path.with_suffix(".gone"))
    at = calls[1]
    await eventually(lambda: calls[1] > at)
    assert (await p.look()).standing is RowStanding.MISSING
    p.transcript.path.with_suffix(".gone").rename(p.transcript.path)
    assert (await p.look()).standing is RowStanding.MOVED_ON
    turns(p.transcript, 1, 2)
    at = calls[1]
    await eventually(lambda: calls[1] > at)
    second()
    assert calls[0] == before
    assert len(os.listdir("/proc/self/fd")) == descriptors


async def test_transcript_replaced_since_last_look_is_said(p: Place) -> None:
    path = p.transcript.path
    turns(p.transcript, 3)
    await p.look()
    turns(p.transcript, 1, 3)
    kept = path.read_bytes()
    assert not (await p.look()).replaced
    path.write_bytes(kept[: kept.index(b"\n") + 1])
    assert (await p.look()).replaced
    assert not (await p.look()).replaced
    path.with_suffix(".new").write_bytes(kept)
    path.with_suffix(".new").rename(path)
    assert (await p.look()).replaced
    path.unlink()
    assert (await p.look()).replaced


async def test_file_replacing_open_one_is_watched(
    p: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SETTLE", 0.01)
    turns(p.transcript, 1)
    await p.look()
    calls: list[str] = []
    end = p.made[0].watch("one", lambda: calls.append("changed"))
    path = p.transcript.path
    with path.open():
        other = path.with_suffix(".new")
        other.write_bytes(path.read_bytes())
        other.replace(path)
        await eventually(lambda: calls)
        calls.clear()
        turns(p.transcript, 1, 2)
        await eventually(lambda: calls)
    end()


@pytest.mark.parametrize("already", [True, False])
async def test_change_before_watch_begins_is_noticed(
    p: Place, monkeypatch: pytest.MonkeyPatch, *, already: bool
) -> None:
    monkeypatch.setattr(watching, "SETTLE", 0.01)
    made = p.transcripts()
    commit, calls = p.store.commit_piece, list[str]()

    async def growing(session: str, piece: ImportedPiece) -> list[Logged]:
        """Another program goes on while its first turn is taken in."""
        p.store.commit_piece = commit
        turns(p.transcript, 1, 1)
        logged: list[Logged] = await commit(session, piece)
        return logged

    p.store.commit_piece = growing
    turns(p.transcript, 1)
    ends = [made.watch("one", lambda: calls.append("changed"))] if already else []
    await p.look()
    ends.append(made.watch("one", lambda: calls.append("changed")))
    await eventually(lambda: calls)
    await p.look()
    for end in ends:
        end()
    calls.clear()
    made.watch("one", lambda: calls.append("changed"))
    for _ in range(3):
        pass_loop_time(1)
        await asyncio.sleep(0)
    assert not calls  # nothing has changed since it was read


async def test_watching_one_session_costs_the_same_among_many(tmp_path: Path) -> None:
    watcher = watching.Watcher()

    def steps() -> int:
        """Lines that run while a session comes and goes."""
        count = 0

        def trace(frame: Any, event: str, _: object) -> Any:
            nonlocal count
            count += event == "line"
            return trace

        before = sys.gettrace()
        gc.disable()  # what others have left would count
        sys.settrace(trace)
        try:
            watcher.set_transcripts("one", {str(tmp_path / "one"): stamp})
            watcher.watch("one", lambda: None)()
        finally:
            sys.settrace(before)
            gc.enable()
        return count

    for name in ("one", "other"):
        (tmp_path / name).touch()
    stamp = files.FileStamp(0, 0, 0)
    ends = [watcher.watch("first", lambda: None)]
    watcher.set_transcripts("first", {str(tmp_path / "other"): stamp})
    steps()
    alone = steps()
    for n in range(500):
        watcher.set_transcripts(f"s{n}", {str(tmp_path / "other"): stamp})
        ends.append(watcher.watch(f"s{n}", lambda: None))
    assert steps() == alone
    for end in ends:
        end()
    watcher.close()


async def test_persons_title_is_told_once_each_change(p: Place) -> None:
    def rename(title: str) -> None:
        entry = {"type": "custom-title", "customTitle": title, "sessionId": CLAUDE}
        p.transcript.raw(json.dumps(entry) + "\n")

    p.transcript.prompt("Hello", "p1")
    rename("First")
    found = await p.look()
    assert (found.title, found.title_is_new) == ("First", False)
    rename("First")  # Claude repeats it at the end of the file
    p.transcript.say("Hi.")
    found = await p.look(p.transcripts())
    assert found.title is None
    rename("Second")
    found = await p.look(p.transcripts())
    assert (found.title, found.title_is_new) == ("Second", True)


async def test_nothing_comes_from_transcript_replacing_known_one(p: Place) -> None:
    p.transcript.prompt("mine", "p1", sessionId=CLAUDE)
    p.transcript.say("my answer", sessionId=CLAUDE)
    await p.look()
    foreign = {"sessionId": "c1a0de00-0000-4000-8000-00000000000f"}
    p.transcript.path.write_text("")
    p.transcript.head = None
    p.transcript.add("custom-title", customTitle="theirs", **foreign)
    p.transcript.prompt("a secret " * 100, "f1", **foreign)
    p.transcript.say("of others", **foreign)
    found = await p.look()
    assert found.title is None
    assert await p.log() == ["> mine", "my answer"]
    p.transcript.prompt("mine again", "p2", sessionId=CLAUDE)
    await p.look()
    assert await p.log() == ["> mine", "my answer", "> mine again"]


async def test_turns_of_transcript_cut_in_place_stay_ours(
    p: Place,
) -> None:
    """What it still holds is in Claude's memory; what it lacks is a lost memory."""
    path, size = p.transcript.path, 0
    for turn in ("p1", "p2", "p3"):
        size = path.stat().st_size if path.exists() else 0
        await p.s.ended("one", turn)
        p.transcript.prompt(f"question {turn}", turn, sessionId=CLAUDE)
        p.transcript.say(f"answer {turn}", sessionId=CLAUDE)
        assert (await p.look()).digest is None
    os.truncate(path, size)
    found = await p.look()
    assert found.replaced
    assert found.digest is None
    p.transcript.head = json.loads(path.read_text().splitlines()[-1])["uuid"]
    await p.s.ended("one", "p4")
    p.transcript.prompt("question p4", "p4", sessionId=CLAUDE)
    assert (await p.look()).digest is None


async def test_nul_and_half_characters_import_as_text(p: Place) -> None:
    """What no program shows, and no database of every kind takes, in each place of a transcript."""
    bad = "x\x00y\ud83dz"
    p.transcript.add("custom-title", customTitle=bad, sessionId=CLAUDE)
    p.transcript.prompt(bad, f"p{bad}", cwd=bad, entrypoint=bad)
    p.transcript.say(bad, bad)
    p.transcript.assistant({"type": "thinking", "thinking": bad}, "t")
    p.transcript.call(f"c{bad}", "Bash", command=bad, description=bad, **{bad: [bad, {bad: bad}]})
    details = {"stdout": bad, "stderr": bad}
    p.transcript.result(f"c{bad}", bad, toolUseResult=details)
    p.transcript.call("d", bad, file_path=bad)
    p.transcript.result("d", [{"type": "text", "text": bad}], toolUseResult={bad: bad})
    p.transcript.add("assistant", message={"id": bad, "content": [{"type": bad, bad: bad}]})
    p.transcript.prompt("and then", "p2")
    found = await p.look()
    assert found.complete
    logged = await p.logged()
    assert words(logged)[-1] == "> and then"
    assert len(words(logged)) == 8
    for event in logged:
        line = update_line("one", projection.update(1, event)).decode()
        assert "\\u0000" not in line
        assert "\\ud83d" not in line.lower()
    assert (await p.look(p.transcripts())).logged == []
