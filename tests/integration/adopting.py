"""Daemons that are killed, and those that adopt their workers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.model.turns import Outcome
from pykoclaw_acp.pool.local import LocalLauncher
from pykoclaw_acp.server.identity import InstanceWorkers
from pykoclaw_acp.server.recovery import RecoveredWork, recover
from pykoclaw_acp.server.session_recovery import hand_over
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.system import processes
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Rig, rig
from tests.waiting import eventually, running


@pytest.fixture
def alive() -> Iterator[WorkerProcess]:
    """A process that lives, to stand for a worker's."""
    process = subprocess.Popen(["sleep", "1000"])
    started = processes.start_time(process.pid)
    assert started is not None
    yield WorkerProcess(process.pid, started, processes.boot_id())
    process.kill()
    process.wait()


async def recovered(
    r: Rig, directory: Path, *, resident: bool = True, usage_limit: str = "stop"
) -> RecoveredWork:
    """What a daemon finds whose instance has this directory; processes and files are real."""
    launcher = LocalLauncher(directory.parent, directory.parent, resident=resident)
    return await recover(
        r.database,
        launcher,
        InstanceWorkers.of(directory.name),
        resident=resident,
        usage_limit=usage_limit,
    )


@asynccontextmanager
async def daemon(
    path: Path, before: Rig | None = None, *, resident: bool = True, **limits: Any
) -> AsyncIterator[Rig]:
    """A daemon; `before` is one whose workers it finds, and that was left without a word, as after
    SIGKILL.
    """
    async with rig(path, launcher=before.launcher if before else None, **limits) as r:
        found = await recovered(r, path, resident=resident)
        await hand_over(found, r.sessions, r.pool, r.database)
        yield r


@asynccontextmanager
async def killed(path: Path, process: WorkerProcess) -> AsyncIterator[Rig]:
    """A daemon that dies at the end of the block: nothing is told to anybody."""
    async with rig(path) as r:
        r.launcher.process = process
        await SessionJournal(r.database).note_time()  # as a daemon does at its start
        try:
            yield r
        finally:
            await end_turn_tasks()
            await r.pool.detach()


async def end_turn_tasks() -> None:
    """The tasks in which sessions run their turns end without a word, as with their process."""
    if turns := running("run-turns"):
        for one in turns:
            one.cancel()
        await asyncio.wait(turns)


async def found(r: Rig, session: Session) -> Session:
    again = await r.sessions.find(session.id)
    assert again is not None
    return again


async def ended(session: Session) -> Outcome:
    (turn,) = session.turns
    return (await asyncio.wait_for(turn.ended, 30))[0]


async def texts(r: Rig, session: Session) -> list[str]:
    logged = await SessionJournal(r.database).read(session.id, 0, 1000)
    return [one.event.text for one in logged if isinstance(one.event, Text)]


async def asks(session: Session, channel: MemoryChannel, turn_id: str, *ask_ids: str) -> None:
    """Let the worker ask this while nobody is there."""
    session.subscriptions[0].close()
    await eventually(lambda: not session.subscriptions)
    for name in ask_ids:
        channel.last += 1
        channel.say(
            PermissionRequest(
                epoch=channel.spec.epoch, n=channel.last, ask_id=name, turn_id=turn_id,
                tool_call_id="c", title="Run", tool_kind="execute",
            )
        )  # fmt: skip
    await eventually(lambda: channel.acked == channel.last)


def _write_spool(channel: MemoryChannel, data: bytes) -> str:
    spool = Path(channel.files.spool)
    spool.parent.mkdir(exist_ok=True)
    spool.write_bytes(data)
    return channel.files.spool


async def die(process: WorkerProcess) -> None:
    os.kill(process.pid, signal.SIGKILL)
    await eventually(lambda: processes.state(process.pid) in ("Z", None))
