"""Workers that are started before a prompt."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.choosing import SetMode
from pykoclaw_acp.channel.frames import Prompt, Stop
from pykoclaw_acp.channel.options import McpServer, WorkerOptions
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import StoreUnavailable, WorkerFailed
from pykoclaw_acp.model.contexts import Loss, TurnEnd
from pykoclaw_acp.model.session_environment import DaemonEnvironment, StoredEnvironment
from pykoclaw_acp.sessions import early_starts
from pykoclaw_acp.sessions.directories import Directories
from pykoclaw_acp.sessions.early_start import EarlyStart
from pykoclaw_acp.sessions.early_starts import MOST, EarlyStarts
from pykoclaw_acp.sessions.new_session import SessionBeginning
from pykoclaw_acp.sessions.ports import RowStanding
from pykoclaw_acp.sessions.rewinding import Rewinding
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.workspace_gate import WorkspaceGate
from pykoclaw_acp.store.journal.branches import SqlBranchStore
from tests.integration.rig import Client, Rig, rig
from tests.integration.scripted_transcripts import ScriptedTranscripts
from tests.integration.trusting import act, looking
from tests.integration.wires import client, load
from tests.waiting import eventually, within


class Launched(list[Any]):
    """Does something when a worker is launched."""

    def __init__(self, do: Callable[[], None]) -> None:
        super().__init__()
        self._do = do

    def append(self, worker: Any) -> None:
        super().append(worker)
        self._do()


async def begin(r: Rig, session: Session | None = None) -> Session:
    """A new session, and the start of its worker."""
    session = session or await r.session()
    session.subscribe(Client(), 0)
    if r.sessions.early is None:
        r.sessions.early = EarlyStarts(r.sessions.live, r.pool)
    r.sessions.early.begin(session)
    return session


async def started(r: Rig, session: Session) -> None:
    await eventually(lambda: r.pool.is_live(session.id) and r.pool.steers(session.id))


async def test_first_prompt_goes_to_worker_started_before(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await begin(r)
        await started(r, session)
        assert (await r.run(session, "say 2")).state == "done"
        (worker,) = r.launcher.launched
        assert worker.prompts == ["say 2"]


async def test_prompt_during_start_waits_for_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await begin(r)
        assert (await r.run(session, "say 2")).state == "done"
        assert len(r.launcher.launched) == 1
        assert (await r.run(session, "say 2")).state == "done"
        assert len(r.launcher.launched) == 1


async def loaded(r: Rig, *, turns: int = 1) -> Session:
    """A session with so many turns, without a worker."""
    session = await r.session()
    for _ in range(turns):
        assert (await r.run(session, "say 1")).state == "done"
    await r.pool.stop(session.id)
    await eventually(lambda: not session.others)
    return session


async def test_loaded_session_has_worker_before_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_starts, "READING", 2.0)
    async with rig(tmp_path) as r, client(r, "an editor") as wire:
        r.sessions.early = EarlyStarts(r.sessions.live, r.pool)
        sessions = [await loaded(r) for _ in range(3)]
        for one in sessions:
            await load(wire, one.id)
        await started(r, sessions[-1])
        assert [r.pool.is_live(one.id) for one in sessions] == [False, False, True]
        worker = r.launcher.launched[-1]
        assert worker.spec.resume_session_id == sessions[-1].record.claude_session_id is not None
        assert (await r.run(sessions[-1], "say 2")).state == "done"
        assert worker.prompts == ["say 2"]
        monkeypatch.setattr(early_starts, "READING", 0.05)
        await load(wire, sessions[0].id)
        await started(r, sessions[0])
        await r.pool.stop(sessions[-1].id)
        await load(wire, sessions[-1].id)
        await started(r, sessions[-1])


@pytest.mark.parametrize("why", ["mitto", "closed"])
async def test_loaded_session_that_nobody_reads_gets_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(early_starts, "READING", 0.05)
    async with rig(tmp_path) as r, client(r, "mitto" if why == "mitto" else "an editor") as wire:
        r.sessions.early = EarlyStarts(r.sessions.live, r.pool)
        session, later = await loaded(r), await loaded(r)
        await load(wire, session.id)
        if why == "closed":
            await wire.call("session/close", sessionId=session.id)
        read = asyncio.Event()  # set by a later timer than the one that a load may have set
        asyncio.get_running_loop().call_later(early_starts.READING, read.set)
        await read.wait()
        r.sessions.early.begin(later)
        await started(r, later)
        assert not r.pool.is_live(session.id)


@pytest.mark.parametrize("loops", [None, *range(12)])
async def test_worker_lacking_others_turns_is_replaced_at_prompt(
    tmp_path: Path, loops: int | None
) -> None:
    """Also if the prompt comes in the midst of the start."""
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts) as r:
        session = await loaded(r)
        transcripts.find(RowStanding.MOVED_ON)
        await begin(r, session)
        for _ in range((loops or 0) ** 2):
            await asyncio.sleep(0)
        if loops is None:
            await started(r, session)
        assert (await r.run(session, "say 2")).state == "done"
        _, early, last = r.launcher.launched
        assert (early.prompts, last.prompts) == ([], ["say 2"])


async def test_worker_is_replaced_if_transcript_lacks_turns(
    tmp_path: Path,
) -> None:
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts) as r:
        session = await loaded(r)
        await begin(r, session)
        await started(r, session)
        transcripts.find(RowStanding.SAME, replaced=True)
        for prompt in ("say 2", "say 3"):
            assert (await r.run(session, prompt)).state == "done"
        _, early, last = r.launcher.launched
        assert (early.prompts, last.prompts) == ([], ["say 2", "say 3"])


async def test_worker_knows_what_was_imported_before_start(tmp_path: Path) -> None:
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts) as r:
        session = await loaded(r)
        transcripts.find(RowStanding.MOVED_ON)
        await session.others.look()
        transcripts.find(RowStanding.SAME)
        await begin(r, session)
        await started(r, session)
        assert (await r.run(session, "say 2")).state == "done"
        assert r.launcher.launched[-1].prompts == ["say 2"]
        assert len(r.launcher.launched) == 2


async def test_lost_memory_is_said_and_starts_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await loaded(r)

        async def loss() -> Loss:
            return Loss((TurnEnd("turn", "end"),), "lost")

        monkeypatch.setattr(session.others.context, "loss", loss)
        end = session.last_seq
        await begin(r, session)
        later = await begin(r)
        await started(r, later)
        assert not r.pool.is_live(session.id)
        assert session.last_seq == end
        assert (await r.run(session, "say 2")).state == "done"
        said = [str(one.event) for one in await r.journal.read(session.id, end, 9)]
        assert any("history above is kept" in one for one in said), said


async def test_worker_without_a_prompt_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_starts, "UNUSED", 0.2)
    async with rig(tmp_path) as r:
        unused = await begin(r)
        used = await begin(r)
        assert (await r.run(used, "say 1")).state == "done"
        await eventually(lambda: not r.pool.is_live(unused.id))
        assert r.pool.is_live(used.id)
        assert (await r.run(unused, "say 1")).state == "done"


@pytest.mark.parametrize("begun", ["before", "meanwhile"])
async def test_rewind_holds_whenever_a_worker_was_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    looked, go_on = asyncio.Event(), asyncio.Event()
    look = WorkspaceGate.without_asking

    async def slow(self: WorkspaceGate, options: WorkerOptions) -> WorkerOptions | None:
        looked.set()
        await go_on.wait()
        return await look(self, options)

    monkeypatch.setattr(WorkspaceGate, "without_asking", slow)
    async with rig(tmp_path) as r:
        session = await loaded(r, turns=2)
        store = SqlBranchStore(r.database)
        rewind = store.rewind

        async def late(*args: Any, **more: Any) -> list[int]:
            go_on.set()
            if begun == "meanwhile":
                await begin(r, session)
            await started(r, await begin(r))
            return await rewind(*args, **more)

        monkeypatch.setattr(store, "rewind", late)
        if begun == "before":
            await begin(r, session)
            await looked.wait()
        await Rewinding(store, r.pool).rewind(session, None, files=False, dry=False)
        assert (await r.run(session, "say 3")).state == "done"
        worker = r.launcher.launched[-1]
        assert worker.prompts == ["say 3"]
        assert worker.spec.branch is not None


async def test_rewind_keeps_worker_that_was_started_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It puts files back while its place is wanted for another session."""
    async with rig(tmp_path) as r:
        session = await begin(r, await loaded(r))
        await started(r, session)
        lives: list[bool] = []

        async def rewind_files(*_: object, dry: bool) -> dict[str, Any]:
            assert r.sessions.early is not None
            r.sessions.early.end()
            lives.append(r.pool.is_live(session.id))
            return {"canRewind": True, "filesChanged": ["/a"] if len(lives) < 3 else []}

        monkeypatch.setattr(session.requests, "rewind_files", rewind_files)
        store = SqlBranchStore(r.database)
        await Rewinding(store, r.pool).rewind(session, None, files=True, dry=False)
        assert lives == [True] * 3


async def test_oldest_makes_room_for_the_next(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        sessions = [await begin(r) for _ in range(MOST + 2)]
        for session in sessions[2:]:
            await started(r, session)
        await eventually(lambda: not any(r.pool.is_live(one.id) for one in sessions[:2]))
        outcomes = await asyncio.gather(*(r.run(one, "say 1") for one in sessions))
        assert {one.state for one in outcomes} == {"done"}


async def test_no_other_worker_ends_for_it(tmp_path: Path) -> None:
    async with rig(tmp_path, max_workers=1) as r:
        first = await r.session()
        assert (await r.run(first, "say 1")).state == "done"
        second = await begin(r)
        assert (await r.run(first, "say 1")).state == "done"
        assert len(r.launcher.launched) == 1
        assert (await r.run(second, "say 1")).state == "done"


async def test_prompt_in_mid_start_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path, max_workers=1, stall_timeout=300.0) as r:
        session, other = await r.session(), await r.session()
        prompted: list[asyncio.Task[Any]] = []
        read = r.journal.rules

        async def rules(path: str, session_id: str) -> tuple[str, ...]:
            if session_id == session.id:
                prompted.append(asyncio.ensure_future(r.run(other, "say 1")))
                await within(prompted[0].done, 0.5)
            return await read(path, session_id)

        monkeypatch.setattr(r.journal, "rules", rules)
        await begin(r, session)
        await eventually(lambda: session.id in {one.spec.session_id for one in r.launcher.launched})
        assert (await prompted[0]).state == "done"
        assert [one.spec.session_id for one in r.launcher.live] == [other.id]


async def test_mode_chosen_during_start_holds_at_first_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await begin(r)
        await session.choosing.choose("modeId", mode="plan")
        assert (await r.run(session, "say 1")).state == "done"
        (worker,) = r.launcher.launched
        told = [one for one in worker.got if isinstance(one, SetMode | Prompt)]
        launched_so = worker.spec.options.permission_mode == "plan"
        assert launched_so or (isinstance(told[0], SetMode) and told[0].mode == "plan")
        assert isinstance(told[-1], Prompt)


@pytest.mark.parametrize("loops", range(12))
async def test_servers_named_during_start_hold_at_first_prompt(tmp_path: Path, loops: int) -> None:
    async with rig(tmp_path) as r:
        session = await begin(r)
        for _ in range(loops**2):
            await asyncio.sleep(0)
        server = McpServer(name="new", command="true")
        await r.sessions.reopen(session, "/", (), (server,))
        assert (await r.run(session, "say 1")).state == "done"
        last = r.launcher.launched[-1]
        assert (last.prompts, last.spec.options.mcp_servers) == (["say 1"], (server,))


@pytest.mark.parametrize("loops", range(12))
async def test_closed_session_gets_no_worker(tmp_path: Path, loops: int) -> None:
    async with rig(tmp_path) as r:
        session = await begin(r)
        for _ in range(loops**2):
            await asyncio.sleep(0)
        await r.sessions.close(session)
        later = await begin(r)
        await started(r, later)
        assert not r.pool.is_live(session.id)
        assert {one.spec.session_id for one in r.launcher.launched} <= {session.id, later.id}
        assert all(one.got for one in r.launcher.launched if one.spec.session_id == session.id)


async def test_session_that_is_closed_already_gets_no_worker(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.sessions.close(session)
        await begin(r, session)
        later = await begin(r)
        await started(r, later)
        assert [one.spec.session_id for one in r.launcher.launched] == [later.id]


async def test_worker_is_idle_after_prompt_cancelled_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    note = Directories.note

    async def slow(self: Directories) -> None:
        await gate.wait()
        await note(self)

    waits, over = asyncio.Event(), EarlyStart.over

    async def noted(self: EarlyStart) -> None:
        waits.set()
        await over(self)

    monkeypatch.setattr(Directories, "note", slow)
    monkeypatch.setattr(EarlyStart, "over", noted)
    async with rig(tmp_path, max_workers=1, stall_timeout=300.0) as r:
        session = await begin(r)
        turn = await r.prompt(session, "say 1")
        await waits.wait()
        session.cancel()
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "cancelled"
        gate.set()
        await started(r, session)
        other = await r.session()
        assert (await r.run(other, "say 1")).state == "done"


@pytest.mark.parametrize(
    "error",
    [StoreUnavailable("gone", "No disk."), WorkerFailed(ErrorKind.WORKSPACE_REFUSED, "Too much.")],
)
async def test_worker_makes_room_after_a_look_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    looks = 0

    async def look(_: WorkspaceGate, options: WorkerOptions) -> WorkerOptions:
        nonlocal looks
        looks += 1
        if looks == 2:  # the worker is there
            raise error
        return options

    monkeypatch.setattr(WorkspaceGate, "without_asking", look)
    async with rig(tmp_path, max_workers=1, stall_timeout=300.0) as r:
        await begin(r)
        await eventually(lambda: looks == 2)
        assert (await r.run(await r.session(), "say 1")).state == "done"


async def test_settings_becoming_active_during_start_are_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    async with rig(tmp_path, **looking()) as r:
        session = await r.sessions.create(str(place), (), ())
        monkeypatch.setattr(r.launcher, "launched", Launched(lambda: act(place, "true")))
        await begin(r, session)
        await eventually(lambda: r.launcher.launched)
        await eventually(lambda: not r.pool.is_live(session.id))
        (worker,) = r.launcher.launched
        await eventually(lambda: any(isinstance(one, Stop) for one in worker.got))


async def test_nothing_starts_before_an_answer_about_the_directory(tmp_path: Path) -> None:
    acting, empty = tmp_path / "acting", tmp_path / "empty"
    for place in (acting, empty):
        place.mkdir()
    act(acting, "true")
    async with rig(tmp_path, **looking()) as r:
        await begin(r, await r.sessions.create(str(acting), (), ()))
        harmless = await begin(r, await r.sessions.create(str(empty), (), ()))
        await started(r, harmless)
        assert [one.spec.session_id for one in r.launcher.launched] == [harmless.id]


async def test_changed_directory_at_prompt_gets_another_worker(
    tmp_path: Path,
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    async with rig(tmp_path) as r:
        session = await begin(r, await r.sessions.create(str(place), (), ()))
        await started(r, session)
        place.rename(tmp_path / "before")
        place.mkdir()
        assert (await r.run(session, "say 1")).state == "done"
        first, second = r.launcher.launched
        assert (first.prompts, second.prompts) == ([], ["say 1"])
        assert any(isinstance(one, Stop) for one in first.got)
        shutil.rmtree(place)


@pytest.mark.parametrize(
    "changed",
    [
        "CLAUDE.md",
        "place/.claude/rules/a.md",
        "user/rules/deep/a.md",
        "user/CLAUDE.md",
        "accounts/work/CLAUDE.md",
    ],
)
async def test_memory_written_before_prompt_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "user"))
    of_account = StoredEnvironment("work" if changed.startswith("accounts") else "")
    place, memory = tmp_path / "place", tmp_path / changed
    for directory in (place, memory.parent):
        directory.mkdir(parents=True, exist_ok=True)
    memory.write_text("Be clear.")
    async with rig(tmp_path) as r:
        r.sessions.daemon_environment = DaemonEnvironment(accounts=str(tmp_path / "accounts"))
        begun = SessionBeginning(environment=of_account)
        session = await begin(r, await r.sessions.create(str(place), (), (), begun=begun))
        await started(r, session)
        memory.write_text("Be brief.")
        assert (await r.run(session, "say 1")).state == "done"
        assert (await r.run(session, "say 1")).state == "done"
        first, second = r.launcher.launched
        assert (first.prompts, len(second.prompts)) == ([], 2)


async def test_settings_active_only_before_prompt_act_no_more(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    async with rig(tmp_path, **looking()) as r:
        session = await begin(r, await r.sessions.create(str(place), (), ()))
        await started(r, session)
        act(place, "true")
        shutil.rmtree(place / ".claude")
        assert (await r.run(session, "say 1")).state == "done"
        first, second = r.launcher.launched
        assert (first.prompts, second.prompts) == ([], ["say 1"])


async def test_prompt_gets_own_try_if_early_start_hangs(tmp_path: Path) -> None:
    async with rig(tmp_path, worker_start_timeout=0.5) as r:
        r.launcher.slow = True
        session = await begin(r)
        await eventually(lambda: r.launcher.launched)
        r.launcher.slow = False
        assert (await r.run(session, "say 1")).state == "done"
        first, second = r.launcher.launched
        assert (first.prompts, second.prompts) == ([], ["say 1"])


async def test_logout_ends_those_that_were_not_prompted(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        unused, used = await begin(r), await begin(r)
        assert (await r.run(used, "say 1")).state == "done"
        await started(r, unused)
        assert r.sessions.early is not None
        r.sessions.early.end()
        assert (r.pool.is_live(unused.id), r.pool.is_live(used.id)) == (False, True)
        assert (await r.run(unused, "say 1")).state == "done"


async def test_daemon_leaving_in_mid_start_leaves_worker(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await begin(r)
        await eventually(lambda: r.launcher.launched)
        await session.suspend()
        await r.pool.detach()
        (worker,) = r.launcher.launched
        assert not worker.terminated
        assert not any(isinstance(one, Stop) for one in worker.got)
