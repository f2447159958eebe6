"""What every launcher does: the one of local processes, with the fork server and real workers, and
that in memory.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.channel.frames import PROTOCOL, FromWorker, Hello, Stop, TurnStarted, encode
from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.errors import LaunchFailed
from pykoclaw_acp.pool.launcher import Channel, Inheritance, Launcher
from pykoclaw_acp.pool.local import LocalLauncher
from tests import workers
from tests.integration.memory_launcher import MemoryLauncher
from tests.waiting import eventually

# Cookies are found in the whole machine: another test process has workers of its own.
INSTANCE = f"instance-{uuid4().hex}"


@dataclass
class Stage:
    """`launcher` is that of the daemon of today; `next` gives that of another daemon for the same
    workers.
    """

    launcher: Launcher
    next: Callable[[], Launcher]
    write_spool: Callable[[LaunchSpec, list[FromWorker]], None]
    damage_spool: Callable[[LaunchSpec], None]
    break_launches: Callable[[], None]
    cli: str | None = None
    launched: list[WorkerRecord] = field(default_factory=list)

    def spec(self, session: str, epoch: int = 1) -> LaunchSpec:
        made = workers.spec(Path(INSTANCE), session=session, epoch=epoch, orphan_grace=60.0)
        return replace(made, options=replace(made.options, cli_path=self.cli))

    async def launch(self, session: str) -> tuple[Channel, WorkerRecord]:
        """A worker that has told its first daemon something."""
        spec = self.spec(session)
        channel = await self.launcher.launch(spec)
        record = WorkerRecord(spec.identity, channel.handle, 0)
        self.launched.append(record)
        await hear(channel, record)
        return channel, record

    def lives(self, worker: WorkerRecord) -> bool:
        return self.launcher.whereabouts.lives(worker)


async def hear(channel: Channel, worker: WorkerRecord) -> None:
    """Greet the worker; it answers with frames of its epoch."""
    await channel.send(Hello(epoch=worker.epoch, after=0, protocol=PROTOCOL))
    async with asyncio.timeout(30):
        async for batch in channel.batches():
            if batch:
                assert {frame.epoch for frame in batch} == {worker.epoch}
                return
    raise AssertionError("the worker ended")


@pytest.fixture(params=["local", "memory"])
async def stage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    if request.param == "memory":
        memory = MemoryLauncher(tmp_path)

        def keep(spec: LaunchSpec, frames: list[FromWorker]) -> None:
            memory.spools[spec.cookie] = [frames]

        def lose(spec: LaunchSpec) -> None:
            memory.damaged.setdefault(spec.instance, []).append(spec.cookie)

        yield Stage(memory, lambda: memory, keep, lose, lambda: setattr(memory, "refuse", True))
        return

    def write(spec: LaunchSpec, frames: list[FromWorker]) -> None:
        spool = Path(WorkerFiles.of(tmp_path / INSTANCE, spec).spool)
        spool.write_bytes(b"".join(encode(frame) for frame in frames))

    def damage(spec: LaunchSpec) -> None:
        Path(WorkerFiles.of(tmp_path / INSTANCE, spec).spool).write_bytes(b"?" * 100 + b"\n")

    silent = tmp_path / "claude"  # a CLI that never answers: its worker lives, and waits for it
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o700)
    made: list[LocalLauncher] = []

    def another() -> LocalLauncher:
        made.append(LocalLauncher(tmp_path, tmp_path, resident=True))
        return made[-1]

    def take_python_away() -> None:
        monkeypatch.setattr(sys, "executable", "/nonexistent/python")

    one = Stage(another(), another, write, damage, take_python_away, str(silent))
    await one.launcher.prepare(INSTANCE, [])
    yield one
    for worker in one.launched:
        await one.launcher.end(worker, 0)
        await one.launcher.clean(worker.identity, 0)
    for launcher in made:
        await launcher.close()


def started(n: int) -> TurnStarted:
    return TurnStarted(epoch=1, n=n, turn_id="t")


async def delivered(launcher: Launcher, spec: LaunchSpec, after: int) -> list[FromWorker]:
    found: list[FromWorker] = []

    async def take(batch: list[FromWorker]) -> None:
        found.extend(batch)

    await launcher.deliver_spool(spec.identity, after, take)
    return found


async def ended(channel: Channel) -> None:
    """Wait until the worker has closed its line."""
    async with asyncio.timeout(30):
        async for _ in channel.batches():
            pass
        await channel.gone()


async def test_workers_end_when_told_killed_or_cut_off(stage: Stage) -> None:
    told, stopped = await stage.launch("told")
    killed, dead = await stage.launch("killed")
    unheard, lonely = await stage.launch("lonely")
    assert all(stage.lives(worker) for worker in (stopped, dead, lonely))

    await told.send(Stop(epoch=1))
    await ended(told)
    await told.close()
    await eventually(lambda: not stage.lives(stopped))

    whereabouts = stage.launcher.whereabouts
    least = 1_000_000  # bytes
    used = whereabouts.memory([dead, stopped])
    assert (used[0] or 0) > least
    assert used[1] is None
    assert (whereabouts.server_memory([dead, lonely]) or 0) > least

    killed.kill()
    async with asyncio.timeout(30):
        await killed.gone()
    await killed.close()
    await eventually(lambda: not stage.lives(dead))
    with pytest.raises(ConnectionError):
        await killed.send(Stop(epoch=1))
    with pytest.raises(LaunchFailed):
        await stage.next().attach(dead)

    assert stage.lives(lonely)
    await unheard.close()
    await stage.launcher.end(lonely, 5.0)
    assert not stage.lives(lonely)


async def test_only_chosen_workers_stay_for_next_daemon(stage: Stage) -> None:
    pairs = [await stage.launch(name) for name in ("chosen", "other", "dead")]
    for channel, _ in pairs:
        channel.detach()
    chosen, other, dead = (worker for _, worker in pairs)
    pairs[2][0].kill()
    await eventually(lambda: not stage.lives(dead))
    seen: list[WorkerRecord] = []

    def choose(alive: Sequence[WorkerRecord]) -> Collection[WorkerRecord]:
        seen.extend(alive)
        return [chosen]

    launcher = stage.next()
    assert await launcher.recover(Inheritance([chosen, other, dead], choose)) == [chosen]
    assert seen == [chosen, other]
    assert stage.lives(chosen)
    assert not stage.lives(other)
    for channel, _ in pairs:
        await channel.close()

    again = await launcher.attach(chosen)
    assert again.handle == chosen.handle
    await again.send(Hello(epoch=chosen.epoch, after=0, protocol=PROTOCOL))
    assert stage.lives(chosen)
    await again.send(Stop(epoch=chosen.epoch))
    await ended(again)
    await again.close()
    await eventually(lambda: not stage.lives(chosen))


async def test_a_failed_launch_says_so(stage: Stage) -> None:
    stage.break_launches()
    with pytest.raises(LaunchFailed) as failed:
        await stage.launcher.launch(stage.spec("s"))
    assert failed.value.kind == "start_failed"


async def test_spool_is_delivered_from_frame_until_discarded(stage: Stage) -> None:
    spec = stage.spec("s")
    assert await delivered(stage.launcher, spec, 0) == []
    stage.write_spool(spec, [started(1), started(2), started(3)])
    await stage.launcher.clean(spec.identity, 0, keep_spool=True)
    assert await delivered(stage.launcher, spec, 1) == [started(2), started(3)]
    await stage.launcher.discard(spec.identity)
    assert await delivered(stage.launcher, spec, 0) == []


async def test_instances_damaged_spools_are_listed_after_delivery(stage: Stage) -> None:
    spec = stage.spec("s")
    assert await stage.launcher.damaged_spools([INSTANCE]) == []
    stage.damage_spool(spec)
    await delivered(stage.launcher, spec, 0)
    await stage.launcher.discard(spec.identity)
    (kept,) = await stage.next().damaged_spools([INSTANCE, "none"])
    assert kept
    assert await stage.launcher.damaged_spools(["none"]) == []


async def test_unwanted_leftovers_are_removed_before_workers_launch(stage: Stage) -> None:
    channel, worker = await stage.launch("kept")
    kept, other = stage.spec("kept"), stage.spec("other")
    for spec in (kept, other):
        stage.write_spool(spec, [started(1)])
    await stage.launcher.prepare(INSTANCE, [worker])
    assert await delivered(stage.launcher, other, 0) == []
    assert await delivered(stage.launcher, kept, 0) == [started(1)]
    await channel.close()
