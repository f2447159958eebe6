"""Rewinding on a real database: what is kept, and when it is refused."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.errors import InvalidRequest, StoreClosed, StoreUnavailable
from pykoclaw_acp.model.branches import Branch
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import Event, Plan, PlanEntry, Text, ToolEnded, ToolStarted
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow
from pykoclaw_acp.model.limit_waits import LimitWait
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import PromptKeys, Turn
from pykoclaw_acp.sessions.rewinding import Rewinding
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import limit_waits, overview
from pykoclaw_acp.store.journal.branches import SqlBranchStore
from pykoclaw_acp.store.journal.imports import SqlImportStore
from pykoclaw_acp.store.units import Statement, Unit
from tests.integration.asking import BOTH, Person, park, write
from tests.integration.asking import rig as asking_rig
from tests.integration.callers import caller, prompted
from tests.integration.rig import Client, Rig, hanging, rig
from tests.waiting import eventually, not_within


def rewinding(r: Rig) -> Rewinding:
    return Rewinding(SqlBranchStore(r.database), r.pool)


async def at_rest(r: Rig) -> Session:
    """A session whose only turn has ended."""
    session = await prompted(r, "say 1")
    await session.idle()
    return session


class Copies:
    """Answers as the CLI: which files differ from its copies, and which it has put back, it says."""

    def __init__(self, files: list[str], stay: list[str] | None = None) -> None:
        self._files = files
        self._stay = stay or []
        self.asked: list[bool] = []

    async def __call__(self, turn_id: str, epoch: int, *, dry: bool) -> dict[str, Any]:
        self.asked.append(dry)
        files = self._files
        if not dry:
            self._files = self._stay
        return {"canRewind": True, "filesChanged": files}


async def test_next_worker_branches_off_before_the_turn(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        turns = [await r.prompt(session, "say 1") for _ in range(3)]
        await session.idle()
        before = session.last_seq
        plan = await rewinding(r).rewind(session, turns[1].turn_id, files=False, dry=True)
        assert (plan.turns, session.last_seq) == (2, before)
        await rewinding(r).rewind(session, turns[1].turn_id, files=False, dry=False)
        note = (await r.journal.read(session.id, before, 10))[0].event
        assert isinstance(note, Text)
        assert note.note
        point = await SqlBranchStore(r.database).point(session.record, session.last_seq, None)
        assert point.memory.branch == Branch(session.id, f"end-{turns[0].turn_id}"), (
            "of a fork, too"
        )
        with pytest.raises(InvalidRequest, match="was rewound"):
            await rewinding(r).rewind(session, turns[2].turn_id, files=False, dry=True)
        await r.run(session, "say 1")
        assert r.launcher.launched[-1].spec.branch == point.memory.branch
        newest = await rewinding(r).rewind(session, None, files=False, dry=False)
        assert newest.turns == 1
        await rewinding(r).rewind(session, None, files=False, dry=False)
        await r.run(session, "say 1")
        assert r.launcher.launched[-1].spec.branch == Branch(""), "nothing is left to remember"
        await rewinding(r).rewind(session, None, files=False, dry=False)
        with pytest.raises(InvalidRequest, match="no prompt"):
            await rewinding(r).rewind(session, None, files=False, dry=False)


async def test_note_names_prompt_also_after_earlier_rewind(tmp_path: Path) -> None:
    """Turns that were rewound before stand between."""
    async with rig(tmp_path) as r:
        session = await r.session()
        for number in (1, 2, 3):
            await r.run(session, f"say {number}")
        await rewinding(r).rewind(session, None, files=False, dry=False)
        await r.run(session, "say 4")
        before = session.last_seq
        turns = (await overview.details(r.database, session.id)).turns
        assert [one.rewound_at is not None for one in turns] == [False, True, False, False]
        await rewinding(r).rewind(session, turns[2].id, files=False, dry=False)
        (note,) = await r.journal.read(session.id, before, 10)
        assert isinstance(note.event, Text)
        assert (
            "the conversation from “say 2” on, which stays above. Files were left"
            in note.event.text
        )
        turns = (await overview.details(r.database, session.id)).turns
        assert [one.rewound_at is not None for one in turns] == [True, True, True, False]


@pytest.mark.parametrize("tasks", [(PlanEntry("Do it", "pending", "1"),), ()])
async def test_rewind_empties_the_task_list(tmp_path: Path, tasks: tuple[PlanEntry, ...]) -> None:
    """Also one of before the rewound turn: the next Claude session has none of its tasks. The note is
    set off by empty lines, as clients join what they are sent.
    """
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        await session.log.tell([Plan(tasks)])
        await r.run(session, "say 1")
        before = session.last_seq
        await rewinding(r).rewind(session, None, files=False, dry=False)
        said = [one.event for one in await r.journal.read(session.id, before, 10)]
        assert said[1:] == ([Plan(())] if tasks else [])
        assert isinstance(said[0], Text)
        assert said[0].text.startswith(
            "\n\n(Rewound: Claude no longer remembers the conversation from “say 1” on,"
        )
        assert said[0].text.endswith("stay.)\n\n")
        await r.run(session, "say 1")
        assert r.launcher.launched[-1].spec.options.plan == ()


async def test_places_before_a_compaction_are_gone(tmp_path: Path) -> None:
    """It was made in a terminal, between the second turn and the third."""
    async with rig(tmp_path) as r:
        session = await r.session()
        turns = [await r.prompt(session, "say 1") for _ in range(2)]
        await session.idle()
        store = SqlBranchStore(r.database)
        for end in (ToolEnded("compaction-1", "failed"), ToolEnded("compaction-2", "completed")):
            assert (await rewinding(r).rewind(session, None, files=False, dry=True)).turns == 1
            begun = ToolStarted(end.tool_call_id, "Compaction", "", "think")
            said: list[Event] = [begun, end]
            session.record.last_seq = (await r.journal.append(session.id, said))[-1]
        turns.append(await r.prompt(session, "say 1"))
        await session.idle()
        for turn in turns[1:]:
            with pytest.raises(InvalidRequest, match="compacted after this place"):
                await rewinding(r).rewind(session, turn.turn_id, files=False, dry=True)
        with pytest.raises(InvalidRequest, match="compacted after this place"):
            await store.point(session.record, session.last_seq, turns[1].turn_id)
        found = await store.point(session.record, session.last_seq, turns[2].turn_id)
        assert found.memory.branch == Branch(session.id, f"end-{turns[2].turn_id}")
        plan = await rewinding(r).rewind(session, turns[0].turn_id, files=False, dry=True)
        assert plan.turns == 3


async def test_request_that_is_sent_again_is_done_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        turns = [await r.prompt(session, "say 1") for _ in range(2)]
        await session.idle()
        before = session.last_seq
        for _ in range(2):
            done = await rewinding(r).rewind(
                session, None, files=False, dry=False, request_key="front:7"
            )
            assert (done.turn_id, done.turns) == (turns[1].turn_id, 1)
            assert session.last_seq == before + 1
        other = await rewinding(r).rewind(
            session, None, files=False, dry=False, request_key="front:8"
        )
        assert other.turn_id == turns[0].turn_id
        await r.sessions.delete(session)
        assert await r.database.read("SELECT * FROM acp_rewinds") == []


async def test_nothing_goes_on_with_what_was_rewound(tmp_path: Path) -> None:
    """Neither when a usage limit ends, nor by the answer to a question that waits without a worker."""
    async with asking_rig(tmp_path, "park") as r:
        asking = await park(r, questions=BOTH)
        session = asking.session
        await session.idle()
        wait = limit_waits.add(LimitWait(session.id, asking.turn.turn_id, 1))
        await r.database.commit(Unit((wait,)))
        person = Person()
        session.subscribe(person, 0)
        await eventually(lambda: person.ids == ["q1"])
        await rewinding(r).rewind(session, None, files=False, dry=False)
        assert await limit_waits.every(r.database) == []
        assert session.permissions.pending_ids == []
        with pytest.raises(InvalidRequest):
            await r.sessions.requests.decide("q1", "allow_once", "cli", "", ("Red", "Small"))


async def test_rewind_elsewhere_withdraws_question_of_turn(tmp_path: Path) -> None:
    """As soon as a look has seen it."""
    async with asking_rig(tmp_path, "park") as r:
        asking = await park(r, questions=BOTH)
        session = asking.session
        await session.idle()
        person = Person()
        session.subscribe(person, 0)
        await eventually(lambda: person.ids == ["q1"])
        session.record.claude_session_id = "claude"
        await session.others.look()
        assert person.withdrawn == []
        row = TranscriptRow("claude", "/t", 1, 1, 1, 1, "", None, related=True)
        gone = ImportedPiece(row, rewound={asking.turn.turn_id})
        await SqlImportStore(r.database).commit_piece(session.id, gone)
        await session.others.look()
        assert session.permissions.pending_ids == []
        await eventually(lambda: person.withdrawn == ["q1"])
        with pytest.raises(InvalidRequest):
            await r.sessions.requests.decide("q1", "allow_once", "cli", "", ("Red", "Small"))


@pytest.mark.parametrize("restarted", [False, True])
async def test_rewound_prompt_joins_by_its_request_alone(
    tmp_path: Path, *, restarted: bool
) -> None:
    """The same words are a new prompt: Claude was made to forget the first one."""

    def sent(request: str | None) -> Turn:
        keys = PromptKeys(request=request, fingerprint="print")
        return Turn(str(uuid4()), session.id, [{"type": "text", "text": "say 1"}], keys)

    async with rig(tmp_path) as r:
        session = await r.session()
        first = await session.accept(sent("front:1"), session.subscribe(Client(), 0))
        await first.over()
        await session.idle()
        session.deduplication.expect(first)  # its client is gone
        found = await session.deduplication.find(sent(None).keys, "")
        assert found is first
        await rewinding(r).rewind(session, None, files=False, dry=False)
        if not restarted:
            assert await session.deduplication.find(sent(None).keys, "") is None
            again = await session.deduplication.find(sent("front:1").keys, "")
            assert again is not None
            assert again.turn_id == first.turn_id
    if restarted:
        async with rig(tmp_path) as r:
            deduplication = (await r.sessions.get(session.id)).deduplication
            assert await deduplication.find(sent(None).keys, "") is None
            again = await deduplication.find(sent("front:1").keys, "")
            assert again is not None
            assert again.turn_id == first.turn_id


async def test_question_of_earlier_turn_still_waits(tmp_path: Path) -> None:
    """One without a worker, of a turn that was not rewound: Claude remembers it."""
    async with asking_rig(tmp_path, "park") as r:
        asking = await park(r, questions=BOTH)
        session = asking.session
        await session.idle()
        await r.run(session, "say 1")
        person = Person()
        session.subscribe(person, 0)
        await eventually(lambda: person.ids == ["q1"])
        await rewinding(r).rewind(session, None, files=False, dry=False)
        assert session.permissions.pending_ids == ["q1"]
        assert person.withdrawn == []
        await r.sessions.requests.decide("q1", "allow_once", "cli", "", ("Red", "Small"))


async def test_read_that_fails_after_rewind_is_harmless(tmp_path: Path) -> None:
    """The rewind is kept: who wants it is told so, and is not asked what it took back."""
    async with asking_rig(tmp_path, "park") as r:
        session = (await park(r, questions=BOTH)).session
        await session.idle()
        session.subscribe(Person(), 0)

        class Failing(SqlBranchStore):
            kept = False

            async def rewind(self, *given: Any, **more: Any) -> list[int]:
                self.kept = True
                return await super().rewind(*given, **more)

            async def parked(self, *given: Any) -> set[str]:
                if self.kept:
                    raise StoreUnavailable("blocked", "The disk fails.")
                return await super().parked(*given)

        store = Failing(r.database)
        await Rewinding(store, r.pool).rewind(session, None, files=False, dry=False)
        assert store.kept
        assert session.permissions.pending_ids == []


async def test_it_is_refused_while_a_turn_runs(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, turn, worker = await hanging(r)
        stop = f"in your editor, or with `pykoclaw-acp workers stop {session.id[:8]}`"
        with pytest.raises(InvalidRequest, match=f"A turn of this session runs.* {stop}"):
            await rewinding(r).rewind(session, None, files=False, dry=True)
        worker.say(worker.ended(turn.turn_id))
        await session.idle()
        assert (await rewinding(r).rewind(session, None, files=False, dry=True)).turns == 1


async def test_claude_is_retold_what_prompt_carried(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        before, between = Note("before", "Told with it."), Note("between", "Told with the next.")
        await r.journal.add_note(session.id, before)
        await r.run(session, "say 1")
        await r.journal.add_note(session.id, between)
        await r.run(session, "say 1")
        assert await r.journal.pending_notes(session.id) == []
        (first,) = await r.database.read("SELECT turn_id FROM acp_turns WHERE position = 1")
        await rewinding(r).rewind(session, first[0], files=False, dry=False)
        assert await r.journal.pending_notes(session.id) == [before]


async def test_turn_that_begins_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that the answer to a parked question begins; a rewind that takes long does not forget it."""
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        begun: list[Turn] = []

        async def begin() -> None:
            turn = Turn(str(uuid4()), session.id, [{"type": "text", "text": "say 2"}])
            await r.journal.accept(turn)
            session.enqueue(turn)
            begun.append(turn)

        monkeypatch.setattr(session.others, "look_if_possible", begin)
        with pytest.raises(InvalidRequest, match="A turn of this session runs"):
            await rewinding(r).rewind(session, None, files=False, dry=False)
        await begun[0].over()
        await session.idle()
        assert set((await r.states()).values()) == {"done"}
        assert await r.database.read("SELECT 1 FROM acp_turns WHERE rewound_at IS NOT NULL") == []


async def test_prompt_after_look_at_files_has_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        row = (session.id, "Bash(make)", "", 1)
        await write(r, Statement("INSERT INTO acp_session_rules VALUES (?, ?, ?, ?)", row))
        await r.pool.stop(session.id)
        monkeypatch.setattr(
            session.requests, "rewind_files", AsyncMock(return_value={"canRewind": True})
        )
        await rewinding(r).rewind(session, None, files=True, dry=True)
        await r.run(session, "say 1")
        assert [one.spec.options.rules for one in r.launcher.launched[1:]] == [(), ("Bash(make)",)]


async def test_worker_that_looks_at_files_names_no_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It acts on nothing, whether there is anything that could act or not."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await at_rest(r)
        await r.pool.stop(session.id)
        files = AsyncMock(return_value={"canRewind": True})
        monkeypatch.setattr(session.requests, "rewind_files", files)
        await rewinding(r).rewind(session, None, files=True, dry=True)
        assert [row["workspace"] for row in await cli.call("workers/list")] == [None]


async def test_files_that_could_not_be_restored_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await at_rest(r)

        async def rewind_files(turn_id: str, epoch: int, *, dry: bool) -> dict[str, Any]:
            return {"canRewind": dry, "filesChanged": ["a"], "error": "the worker is gone"}

        monkeypatch.setattr(session.requests, "rewind_files", rewind_files)
        before = session.last_seq
        with pytest.raises(InvalidRequest, match="could not be put back: the worker is gone"):
            await rewinding(r).rewind(session, None, files=True, dry=False)
        assert session.last_seq == before
        assert session.record.branch is None
        assert await r.database.read("SELECT 1 FROM acp_turns WHERE rewound_at IS NOT NULL") == []


@pytest.mark.parametrize("dry", [False, True])
async def test_worker_that_puts_files_back_outlives_changed_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dry: bool
) -> None:
    """Another client opens the session meanwhile, with other MCP servers."""
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        (worker,) = r.launcher.launched
        copies, server = Copies(["/a"]), McpServer(name="new", command="true")
        lives: list[bool] = []

        async def rewind_files(turn_id: str, epoch: int, *, dry: bool) -> dict[str, Any]:
            await r.sessions.reopen(session, "/", (), (server,))
            lives.append(r.pool.is_live(session.id))
            return await copies(turn_id, epoch, dry=dry)

        monkeypatch.setattr(session.requests, "rewind_files", rewind_files)
        rewound = await rewinding(r).rewind(session, None, files=True, dry=dry)
        assert rewound.files == ["/a"]
        assert lives == [True] * len(copies.asked)
        await eventually(lambda: worker.dead)
        await r.run(session, "say 1")
        assert r.launcher.launched[-1].spec.options.mcp_servers == (server,)


async def test_file_that_stays_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CLI says nothing of one that it cannot write, or in whose place a directory is."""
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        copies = Copies(["/a", *(f"/b{n}" for n in range(7))], [f"/b{n}" for n in range(7)])
        monkeypatch.setattr(session.requests, "rewind_files", copies)
        before = session.last_seq
        told = r"These were not: /b0, /b1, /b2, /b3, /b4 and 2 more\. .* memory was not rewound"
        with pytest.raises(InvalidRequest, match=told):
            await rewinding(r).rewind(session, None, files=True, dry=False)
        assert session.last_seq == before
        assert session.record.branch is None
        await rewinding(r).rewind(session, None, files=False, dry=False)
        assert session.record.branch == Branch("")


async def test_prompt_without_copies_names_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        none = InvalidRequest("No file checkpoint found for this message.")
        monkeypatch.setattr(session.requests, "rewind_files", AsyncMock(side_effect=none))
        with pytest.raises(InvalidRequest, match=r"made no copies .* use `rewind --no-files`"):
            await rewinding(r).rewind(session, None, files=True, dry=False)
        assert await r.database.read("SELECT 1 FROM acp_turns WHERE rewound_at IS NOT NULL") == []


async def test_no_copies_are_wanted_of_unsent_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that failed because the session's directory was missing."""
    work = tmp_path / "work"
    work.mkdir()
    async with rig(tmp_path) as r:
        session = await r.sessions.create(str(work), (), ())
        asked: list[str] = []

        async def rewind_files(turn_id: str, epoch: int, *, dry: bool) -> dict[str, Any]:
            asked.append(turn_id)
            return {"canRewind": True}

        monkeypatch.setattr(session.requests, "rewind_files", rewind_files)
        sent = await r.prompt(session, "say 1")
        await sent.over()
        work.rename(tmp_path / "elsewhere")
        unsent = await r.prompt(session, "say 2")
        await unsent.over()
        assert unsent.state == "failed"
        plan = await rewinding(r).rewind(session, None, files=True, dry=True)
        assert (plan.turn_id, plan.turns, asked) == (sent.turn_id, 1, [sent.turn_id])
        done = await rewinding(r).rewind(session, unsent.turn_id, files=True, dry=False)
        assert (done.turn_id, done.turns, asked) == (unsent.turn_id, 0, [sent.turn_id])
        with pytest.raises(InvalidRequest, match="was rewound"):
            await rewinding(r).rewind(session, unsent.turn_id, files=True, dry=False)


async def edited_and_moved(r: Rig, tmp_path: Path) -> tuple[Session, Path]:
    """A session in whose directory Claude has changed a file, and where that is now."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    session = await r.sessions.create(str(old), (), ())
    await r.run(session, "say 1")
    await session.log.tell([ToolStarted("write", "Write", "a.txt", "edit")])
    old.rename(new)
    return session, new


async def test_files_from_before_a_move_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CLI puts none back in the new place; others it does, and memory is rewound without files."""
    async with rig(tmp_path) as r:
        session, new = await edited_and_moved(r, tmp_path)
        await r.sessions.reopen(session, str(new), (), ())
        elsewhere = Copies([str(tmp_path / "newer")])
        monkeypatch.setattr(session.requests, "rewind_files", elsewhere)
        plan = await rewinding(r).rewind(session, None, files=True, dry=True)
        assert plan.files_error is None
        here = Copies([str(new / "a.txt")])
        monkeypatch.setattr(session.requests, "rewind_files", here)
        plan = await rewinding(r).rewind(session, None, files=True, dry=True)
        assert plan.files_error is not None
        assert "before this session's directory was moved" in plan.files_error
        with pytest.raises(InvalidRequest, match=r"was moved.* use `rewind --no-files`"):
            await rewinding(r).rewind(session, None, files=True, dry=False)
        assert here.asked == [True, True]
        assert (await rewinding(r).rewind(session, None, files=False, dry=False)).turns == 1


async def test_move_is_noted_with_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon dies right after that."""
    async with rig(tmp_path) as r:
        session, new = await edited_and_moved(r, tmp_path)
        with monkeypatch.context() as patch, contextlib.suppress(StoreClosed):
            patch.setattr(r.journal, "append", AsyncMock(side_effect=StoreClosed("It is dead.")))
            await r.sessions.reopen(session, str(new), (), ())
        left = await r.journal.find(session.id)
        assert left is not None
        assert left.cwd == str(new)
        assert (await SqlBranchStore(r.database).rewind_point(left, None)).moved


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ([], "No file was changed."),
        (["kept"], "1 file was put back."),
        (["gone"], "1 file that did not exist then was deleted."),
        (["kept", "gone"], "1 file was put back; 1 file that did not exist then was deleted."),
        (["kept/below", "kept"], "2 files were put back."),
    ],
)
async def test_log_says_only_known_things_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], told: str
) -> None:
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        (tmp_path / "kept").touch()
        paths = [str(tmp_path / name) for name in files]
        monkeypatch.setattr(session.requests, "rewind_files", Copies(paths))
        done = await rewinding(r).rewind(session, None, files=True, dry=False)
        gone = [path for path in paths if path.endswith("gone")]
        assert done.deleted == (gone if files else None)
        (said,) = [one.event for one in await session.log.read_after(session.last_seq - 1, 1)]
        assert isinstance(said, Text)
        assert f" {told} Mode, model" in said.text


async def test_rewind_cancelled_while_being_recorded_is_done(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        first, _ = [await r.prompt(session, "say 1") for _ in range(2)]
        await session.idle()
        before = session.last_seq

        class Cancelling(SqlBranchStore):
            async def rewind(self, *given: Any, **more: Any) -> list[int]:
                call.cancel()
                return await super().rewind(*given, **more)

        store = Cancelling(r.database)
        rewind = Rewinding(store, r.pool).rewind(session, None, files=False, dry=False)
        call = asyncio.ensure_future(rewind)
        with pytest.raises(asyncio.CancelledError):
            await call
        await eventually(lambda: session.last_seq > before)
        await r.run(session, "say 1")
        branch = Branch(session.id, f"end-{first.turn_id}")
        assert r.launcher.launched[-1].spec.branch == branch


async def test_session_stays_in_memory_while_rewound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second object of it would not know the branch, and undo the rewind."""
    reached, go, rewind = asyncio.Event(), asyncio.Event(), SqlBranchStore.rewind

    async def slow(*given: Any, **more: Any) -> list[int]:
        reached.set()
        await go.wait()
        return await rewind(*given, **more)

    monkeypatch.setattr(SqlBranchStore, "rewind", slow)
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        for one in list(session.subscriptions):
            one.close()
        task = asyncio.create_task(rewinding(r).rewind(session, None, files=False, dry=False))
        await reached.wait()
        r.sessions.live.forget(-1, r.pool)
        assert await r.sessions.get(session.id) is session
        go.set()
        await task
        await eventually(lambda: session.dormant)


@pytest.mark.parametrize("looks", [True, False])
async def test_cancelled_rewind_is_whole_or_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, looks: bool
) -> None:
    """Whole, if the files are being put back; not at all, if they are only looked at."""
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        copies = Copies(["a"])

        async def rewind_files(turn_id: str, epoch: int, *, dry: bool) -> dict[str, Any]:
            answer = await copies(turn_id, epoch, dry=dry)
            if dry == looks:
                call.cancel()
            await asyncio.sleep(0)
            return answer

        monkeypatch.setattr(session.requests, "rewind_files", rewind_files)
        rewind = rewinding(r).rewind(session, None, files=True, dry=False)
        call = asyncio.ensure_future(rewind)
        with pytest.raises(asyncio.CancelledError):
            await call
        if looks:
            assert (await r.run(session, "say 1")).state == "done"
            assert copies.asked == [True]
            assert await r.database.read("SELECT 1 FROM acp_turns WHERE rewound_at > 0") == []
        else:
            await eventually(lambda: session.record.branch == Branch(""))
            assert copies.asked == [True, False, True]


@pytest.mark.parametrize("files", [True, False])
async def test_nothing_changes_while_database_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, files: bool
) -> None:
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        copies = Copies(["a"])
        monkeypatch.setattr(session.requests, "rewind_files", copies)
        condition = r.database.condition
        monkeypatch.setattr(condition, "recovered", lambda: None)  # the file is fine
        condition.failed(DatabaseState.LOCKED, "Another program keeps it locked.")
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(10):
                await rewinding(r).rewind(session, None, files=files, dry=False)
        assert copies.asked == []
        assert r.pool.is_live(session.id)
        monkeypatch.undo()
        condition.recovered()


async def test_lock_met_before_files_changes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a lock that nothing has met yet."""
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        condition = r.database.condition
        asked: list[bool] = []

        async def rewind_files(turn_id: str, epoch: int, *, dry: bool) -> dict[str, Any]:
            asked.append(dry)
            condition.failed(DatabaseState.LOCKED, "Another program keeps it locked.")
            return {"canRewind": True, "filesChanged": ["a"]}

        monkeypatch.setattr(session.requests, "rewind_files", rewind_files)
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(10):
                await rewinding(r).rewind(session, None, files=True, dry=False)
        assert asked == [True]


async def test_rewind_that_goes_on_knows_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a rewind has put back before the daemon died is in the note, and in the answer."""
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        paths = [str(tmp_path / "gone"), str(tmp_path / "kept")]
        (tmp_path / "kept").touch()
        copies = Copies(paths)
        monkeypatch.setattr(session.requests, "rewind_files", copies)

        class Dying(SqlBranchStore):
            async def rewind(self, *_: Any, **__: Any) -> list[int]:
                raise StoreClosed

        dying = Rewinding(Dying(r.database), r.pool)
        for _ in range(2):
            with pytest.raises(StoreClosed):
                await dying.rewind(session, None, files=True, dry=False)
        done = await rewinding(r).rewind(session, None, files=True, dry=False)
        assert (sorted(done.files), done.deleted) == (paths, paths[:1])
        assert copies.asked.count(False) == 1
        (said,) = [one.event for one in await session.log.read_after(session.last_seq - 1, 1)]
        assert isinstance(said, Text)
        assert "1 file was put back; 1 file that did not exist then was deleted." in said.text


@pytest.mark.parametrize("dies", [True, False])
async def test_note_without_files_tells_earlier_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dies: bool
) -> None:
    """Which could put back a part of them, or was not completed."""
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        copies = Copies(["/a", "/b"], [] if dies else ["/b"])
        monkeypatch.setattr(session.requests, "rewind_files", copies)

        class Dying(SqlBranchStore):
            async def rewind(self, *_: Any, **__: Any) -> list[int]:
                raise StoreClosed

        with pytest.raises(StoreClosed if dies else InvalidRequest):
            await Rewinding(Dying(r.database), r.pool).rewind(session, None, files=True, dry=False)
        await rewinding(r).rewind(session, None, files=False, dry=False)
        (said,) = [one.event for one in await session.log.read_after(session.last_seq - 1, 1)]
        assert isinstance(said, Text)
        assert "An earlier try may have put some files back; this one changed none." in said.text
        assert "left as they are" not in said.text


async def test_rewind_waits_for_database_after_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await at_rest(r)
        condition = r.database.condition
        recovered = condition.recovered
        monkeypatch.setattr(condition, "recovered", lambda: None)  # the file is fine
        monkeypatch.setattr(session.requests, "rewind_files", Copies(["/a"]))

        class Locked(SqlBranchStore):
            async def rewind(self, *given: Any, **more: Any) -> list[int]:
                condition.failed(DatabaseState.LOCKED, "Another program keeps it locked.")
                return await super().rewind(*given, **more)

        rewind = Rewinding(Locked(r.database), r.pool).rewind(session, None, files=True, dry=False)
        call = asyncio.ensure_future(rewind)
        await not_within(call.done)
        assert session.record.branch is None
        recovered()
        assert (await call).files == ["/a"]
        assert session.record.branch == Branch("")
