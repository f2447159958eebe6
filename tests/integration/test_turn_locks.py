"""The lock that the daemon takes around the turns of a conversation."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from uuid import uuid4

import pytest

from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import WorkerFailed
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model.limit_waits import LimitWait
from pykoclaw_acp.model.scheduled import run_key
from pykoclaw_acp.model.turns import Outcome, PromptKeys, Turn
from pykoclaw_acp.server import turn_locks
from pykoclaw_acp.server.app import App
from pykoclaw_acp.server.turn_locks import FileLocks
from pykoclaw_acp.sessions import other_programs
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.sessions.turns.outcomes import UNTOLD
from pykoclaw_acp.store import limit_waits
from pykoclaw_acp.store.units import Unit
from pykoclaw_acp.system import turn_lock
from pykoclaw_acp.system.turn_lock import Holder, TurnLock
from tests.integration.adopting import alive, daemon, found, killed
from tests.integration.asking import LONG, choice
from tests.integration.rig import hanging, rig
from tests.integration.shortages import short_of_memory
from tests.integration.trusting import Working, act
from tests.integration.trusting import rig as trust_rig
from tests.integration.wires import client, new, prompt
from tests.waiting import eventually, not_within

__all__ = ["alive"]


def held(path: Path, name: str) -> TurnLock:
    """Another program runs a turn of this conversation."""
    lock = TurnLock.take(str(path), name, "bot")
    assert isinstance(lock, TurnLock)
    return lock


def locks(path: Path, timeout: float = 60) -> FileLocks:
    return FileLocks(str(path), timeout)


def holder(path: Path, name: str) -> Holder | None:
    found = TurnLock.take(str(path), name, "test")
    if isinstance(found, Holder):
        return found
    found.release()
    return None


async def test_a_turn_holds_the_lock_of_its_conversation(tmp_path: Path) -> None:
    async with rig(tmp_path, locks=locks(tmp_path)) as r:
        session = await r.session()
        name = session.record.conversation_name
        turn = await r.prompt(session, "hang")
        await eventually(lambda: r.launcher.launched and r.launcher.launched[0].prompts)
        found = holder(tmp_path, name)
        assert found is not None
        assert (found.program, found.pid) == ("pykoclaw-acp", os.getpid())
        session.cancel()
        await turn.over()
        await eventually(lambda: holder(tmp_path, name) is None)
        await eventually(lambda: os.listdir(tmp_path / turn_lock.DIRECTORY) == [])


async def test_start_removes_locks_of_killed_holders(tmp_path: Path) -> None:
    places = Places(str(tmp_path / "data"), str(tmp_path / "state"), str(tmp_path / "run" / "s"))
    data = Path(places.data)
    lock = held(data, "acp-held")
    held(data, "acp-left")  # dropped at once, as by the kernel
    assert len(os.listdir(data / turn_lock.DIRECTORY)) == 2
    app = await App.start(Settings(data=data, state=Path(places.state)), places, resident=True)
    try:
        assert len(os.listdir(data / turn_lock.DIRECTORY)) == 1
        assert holder(data, "acp-held") is not None
    finally:
        await app.detach()
        lock.release()


async def test_turns_follow_one_another(tmp_path: Path) -> None:
    async with rig(tmp_path, locks=locks(tmp_path)) as r:
        session = await r.session()
        turns = [await r.prompt(session, "say 1") for _ in range(3)]
        for turn in turns:
            assert (await asyncio.wait_for(turn.ended, 30))[0].state == "done"


async def test_a_prompt_waits_for_another_programs_turn(tmp_path: Path) -> None:
    async with rig(tmp_path, locks=locks(tmp_path)) as r:
        session = await r.session()
        lock = held(tmp_path, session.record.conversation_name)
        turn = await r.prompt(session, "say 1")
        await not_within(turn.ended.done)
        assert r.launcher.launched == []
        lock.release()
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "done"


async def test_wait_for_other_program_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_locks, "MOMENT", 0.0)
    async with rig(tmp_path, locks=locks(tmp_path)) as r, client(r) as wire:
        session = await new(wire)
        name = (await r.sessions.get(session)).record.conversation_name
        lock = held(tmp_path, name)
        said = f"Waiting for bot (process {os.getpid()}), which runs a turn of this conversation."
        asked = wire.begin("session/prompt", **prompt(session, "say 1"))
        await eventually(lambda: said in wire.text())
        lock.release()
        assert "result" in await wire.answer(asked)
        assert wire.text().count("Waiting for") == 1
        wire.lines.clear()
        await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        kinds = [one["sessionUpdate"] for one in wire.updates()]
        assert wire.text().count(said) == 1
        assert kinds.index("agent_message_chunk") < kinds.index("user_message_chunk")


async def test_short_wait_is_not_told(tmp_path: Path) -> None:
    waits: list[str] = []
    lock = held(tmp_path, "acp-1")
    waiting = asyncio.ensure_future(locks(tmp_path, 0.3).acquire("acp-1", waits.append))
    await asyncio.wait([waiting])
    assert isinstance(waiting.exception(), WorkerFailed)
    assert waits == []
    lock.release()


async def test_prompt_that_waited_long_names_lock_holder(tmp_path: Path) -> None:
    async with rig(tmp_path, locks=locks(tmp_path, timeout=0.2)) as r:
        session = await r.session()
        lock = held(tmp_path, session.record.conversation_name)
        outcome = await r.run(session, "say 1")
        assert outcome.failure is not None
        assert outcome.failure.kind == "conversation_busy"
        assert f"bot (process {os.getpid()})" in outcome.failure.message
        lock.release()
        assert (await r.run(session, "say 1")).state == "done"


@pytest.mark.parametrize("key", [run_key("turn"), LimitWait("s", "turn", 0, 1).request_key])
async def test_prompt_that_nobody_repeats_waits_longer(tmp_path: Path, key: str) -> None:
    """As that which tells Claude the answer to a parked request."""
    async with rig(tmp_path, locks=locks(tmp_path, timeout=0.2)) as r:
        session = await r.session()
        lock = held(tmp_path, session.record.conversation_name)
        content = [{"type": "text", "text": "say 1"}]
        turn = Turn(str(uuid4()), session.id, content, PromptKeys(request=key), unattended=True)
        waits = limit_waits.add(LimitWait(session.id, "turn", 2**40))
        await r.database.commit(Unit((waits,)))
        await session.submit(turn)
        await not_within(turn.ended.done, 1.0)
        lock.release()
        assert (await turn.ended)[0].state == "done"


async def test_answer_that_could_not_be_told_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_programs, "PATIENCE", 0.0)
    async with rig(tmp_path, locks=locks(tmp_path, timeout=0.2)) as r:
        session = await r.session()
        lock = held(tmp_path, session.record.conversation_name)
        keys = PromptKeys(request=run_key("turn"))
        turn = Turn("turn", session.id, [{"type": "text", "text": "say 1"}], keys, unattended=True)
        await session.submit(turn)
        failure = (await turn.ended)[0].failure
        assert failure is not None
        assert failure.message.endswith(f"Send a prompt later. {UNTOLD}")
        lock.release()


@pytest.mark.parametrize("place", ["pending_notes", "begin_attempt", "dispatch"])
async def test_turn_that_cannot_start_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    async with rig(tmp_path, locks=locks(tmp_path)) as r:
        session = await r.session()
        name = session.record.conversation_name
        with monkeypatch.context() as patched:
            patched.setattr(r.journal, place, short_of_memory)
            turn = await r.prompt(session, "say 1")
            turn.begun = False
            outcome = (await asyncio.wait_for(turn.ended, 30))[0]
        assert outcome.state == "failed"
        await eventually(lambda: holder(tmp_path, name) is None)
        assert (await r.run(session, "say 1")).state == "done"


async def test_turn_that_cannot_end_at_once_ends_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path, locks=locks(tmp_path)) as r:
        session = await r.session()
        name = session.record.conversation_name
        real, tries = outcomes.not_started, 0

        def not_started(turn: Turn, error: Exception) -> Outcome:
            nonlocal tries
            tries += 1
            if tries <= 2:
                raise MemoryError
            return real(turn, error)

        with monkeypatch.context() as patched:
            patched.setattr(r.journal, "dispatch", short_of_memory)
            patched.setattr(outcomes, "not_started", not_started)
            outcome = await r.run(session, "say 1")
        assert outcome.state == "failed"
        await eventually(lambda: holder(tmp_path, name) is None)
        assert (await r.run(session, "say 1")).state == "done"


async def test_lock_that_gets_lost_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take, taken = TurnLock.take, list[bool]()

    def short(*given: str) -> TurnLock | Holder:
        taken.append(isinstance(take(*given), TurnLock))
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(TurnLock, "take", short)
        with pytest.raises(MemoryError):
            await locks(tmp_path).acquire("acp-1")
    assert taken == [True]
    await eventually(lambda: holder(tmp_path, "acp-1") is None)


async def test_lock_is_released_if_its_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = held(tmp_path, "acp-1")
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", short_of_memory)
        with pytest.raises(MemoryError):
            lock.release()
    assert holder(tmp_path, "acp-1") is None


async def test_own_process_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_locks, "MOMENT", 0.0)
    left = TurnLock.take(str(tmp_path), "acp-1", turn_locks.PROGRAM)
    assert isinstance(left, TurnLock)
    waits: list[str] = []
    await asyncio.wait_for(locks(tmp_path, LONG).acquire("acp-1", waits.append), 30)
    assert waits == []
    left.release()


async def test_a_cancelled_prompt_leaves_no_lock(tmp_path: Path) -> None:
    async with rig(tmp_path, locks=locks(tmp_path)) as r:
        session = await r.session()
        name = session.record.conversation_name
        lock = held(tmp_path, name)
        turn = await r.prompt(session, "say 1")
        await asyncio.sleep(0)
        session.cancel(turn)
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "cancelled"
        lock.release()
        await eventually(lambda: holder(tmp_path, name) is None)
        assert (await r.run(session, "say 1")).state == "done"


async def test_lock_is_free_while_user_decides_on_directory(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    act(work, "true")
    async with trust_rig(tmp_path) as r:
        r.sessions.locks = locks(tmp_path)
        session = await Working.begin(r, work)
        name = session.session.record.conversation_name
        turn = await session.prompt("hang")
        await session.asked()
        await eventually(lambda: holder(tmp_path, name) is None)
        await session.person.answer(session.person.ids[-1], choice("allow_always"))
        await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].prompts)
        assert holder(tmp_path, name) is not None
        session.session.cancel()
        await turn.over()


async def test_next_server_in_same_process_finds_lock_free(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, locks=locks(tmp_path)) as r:
        session, _, _ = await hanging(r)
        name = session.record.conversation_name
        assert holder(tmp_path, name) is not None
        assert r.sessions.locks is not None
        r.sessions.locks.close()
        assert holder(tmp_path, name) is None
        await r.sessions.locks.acquire(name)
        assert holder(tmp_path, name) is None
        session.cancel()


async def test_disk_taking_no_file_keeps_no_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path, locks=locks(tmp_path / "pykoclaw.db")) as r:
        assert (await r.run(await r.session(), "say 1")).state == "done"


async def test_another_daemons_turn_has_lock_too(tmp_path: Path, alive: WorkerProcess) -> None:
    async with killed(tmp_path, alive) as before:
        session, turn, channel = await hanging(before)
    name = session.record.conversation_name
    async with daemon(tmp_path, before, locks=locks(tmp_path)) as r:
        again = await found(r, session)
        await eventually(lambda: holder(tmp_path, name))
        channel.say(channel.ended(turn.turn_id))
        await eventually(lambda: not again.busy)
        await eventually(lambda: holder(tmp_path, name) is None)
        assert (await r.run(again, "say 1")).state == "done"


async def test_another_daemons_turn_continues_under_others_lock(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as before:
        session, turn, channel = await hanging(before)
    lock = held(tmp_path, session.record.conversation_name)
    async with daemon(tmp_path, before, locks=locks(tmp_path)) as r:
        again = await found(r, session)
        channel.say(channel.ended(turn.turn_id))
        await eventually(lambda: not again.busy)
        waiting = await r.prompt(again, "say 1")
        await not_within(waiting.ended.done)
        lock.release()
        assert (await asyncio.wait_for(waiting.ended, 30))[0].state == "done"
