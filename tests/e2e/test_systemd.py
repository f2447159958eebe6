"""The units of deploy/ in a real `systemd --user`: installed by the installer, restarted under
load, hung, killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Stack, script, text
from tests.e2e.harness.systemd import CannotRun, UserManager
from tests.waiting import eventually

INSTALL = Path(__file__).parents[2] / "deploy/install.sh"
SERVICE = "pykoclaw-acp.service"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {}},
}


@pytest.fixture
async def bare(stack: Stack) -> AsyncIterator[UserManager]:
    """A manager without our units."""
    runtime = Path(tempfile.mkdtemp(prefix="run-"))
    try:
        manager = await UserManager.start(runtime, stack.environment)
    except CannotRun as reason:
        shutil.rmtree(runtime)
        pytest.skip(f"no systemd --user here: {reason}")
    try:
        yield manager
    finally:
        for client in stack.clients:
            if client.process.returncode is None:
                await client.close()
        await manager.close()
        await stack.kill_everything()
        await manager.remove_groups()
        shutil.rmtree(runtime)


@pytest.fixture
async def systemd(bare: UserManager, stack: Stack) -> UserManager:
    """A manager with our units, installed, stopped, and with a watchdog that waits for 4 s only."""
    await install(bare, stack)
    await bare.control("stop", SERVICE)
    settings = stack.home / f".config/systemd/user/{SERVICE}.d/test.conf"
    settings.write_text("[Service]\nWatchdogSec=4\nTimeoutAbortSec=500ms\n")
    await bare.control("daemon-reload")
    return bare


async def install(manager: UserManager, stack: Stack) -> str:
    program = stack.root / "pykoclaw-acp"
    log = stack.root / "daemon.log"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m pykoclaw_acp "$@" 2>>{log}\n')
    program.chmod(0o755)
    try:
        return await manager.run(str(INSTALL), "--program", str(program))
    except AssertionError as error:
        error.add_note(log.read_text()[-2000:] if log.exists() else "the daemon wrote no log")
        raise


async def initialize(manager: UserManager) -> dict[str, Any]:
    """The answer of whoever serves at the socket; raises OSError as connect(2) does,
    and EOFError.
    """
    reader, writer = await asyncio.open_unix_connection(manager.socket)
    try:
        writer.write(json.dumps(HELLO).encode() + b"\n")
        line = await asyncio.wait_for(reader.readline(), 30)
    finally:
        writer.close()
    if not line:
        raise EOFError
    answer: dict[str, Any] = json.loads(line)
    return answer


async def served(manager: UserManager) -> dict[str, Any]:
    """The answer to a client that comes again when it is hung up on, as a front does."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(EOFError, OSError):
                return await initialize(manager)


async def fed(manager: UserManager) -> int:
    """When the watchdog was last fed, in µs."""
    return int(await manager.show(SERVICE, "WatchdogTimestampMonotonic"))


@pytest.mark.long
async def test_dialling_starts_the_daemon(systemd: UserManager) -> None:
    assert await systemd.show(SERVICE, "ActiveState") == "inactive"
    assert (await initialize(systemd))["result"]["protocolVersion"] == 1
    assert await systemd.show(SERVICE, "ActiveState") == "active"
    assert (await systemd.show(SERVICE, "StatusText")).startswith("pykoclaw-acp ")
    assert systemd.socket.stat().st_mode & 0o777 == 0o600
    assert systemd.socket.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.long
async def test_the_daemon_is_well_for_the_watchdog(systemd: UserManager) -> None:
    """It is fed: after twice the time that it waits, the same process serves."""
    await initialize(systemd)
    pid = await systemd.main_pid()

    begun = await fed(systemd)
    while await fed(systemd) < begun + 8_000_000:
        assert await systemd.main_pid() == pid
    assert await systemd.main_pid() == pid
    assert await systemd.show(SERVICE, "NRestarts") == "0"


@pytest.mark.long
async def test_a_daemon_that_hangs_is_replaced(systemd: UserManager) -> None:
    await initialize(systemd)
    pid = await systemd.main_pid()
    os.kill(pid, signal.SIGSTOP)
    assert (await served(systemd))["result"]["protocolVersion"] == 1
    assert await systemd.main_pid() not in (0, pid)
    assert int(await systemd.show(SERVICE, "NRestarts")) >= 1


async def test_a_restart_refuses_nobody_and_keeps_the_turn(
    systemd: UserManager, stack: Stack
) -> None:
    client = await stack.front(PYKOCLAW_SOCKET=str(systemd.socket))
    session = await client.new(stack.work)
    turn = client.prompting(session, script("repeat 400x10ms word{n} "))
    await client.until(lambda: "word20 " in client.text(session))
    worker = stack.worker(session)
    pid = await systemd.main_pid()
    served, dropped, refused, done = 0, 0, 0, asyncio.Event()

    async def load() -> None:
        nonlocal served, dropped, refused
        while not done.is_set():
            try:
                await initialize(systemd)
                served += 1
            except (EOFError, ConnectionResetError, BrokenPipeError):
                dropped += 1  # accepted by the daemon that ends: its client connects again
            except OSError:
                refused += 1

    loading = [asyncio.create_task(load()) for _ in range(4)]
    await systemd.control("restart", SERVICE)
    before = served
    await eventually(lambda: served >= before + 20)
    done.set()
    await asyncio.gather(*loading)
    assert refused == 0
    assert dropped <= len(loading)
    assert await systemd.main_pid() not in (0, pid)
    assert worker.alive
    assert (await client.answer(turn))["stopReason"] == "end_turn"
    assert client.text(session) == " ".join(f"word{number}" for number in range(1, 401))
    assert len(stack.asked()) == 1


@pytest.mark.long
async def test_workers_outlive_the_service_and_its_crash(
    systemd: UserManager, stack: Stack
) -> None:
    client = await stack.front(PYKOCLAW_SOCKET=str(systemd.socket))
    session = await client.new(stack.work)
    turn = client.prompting(session, script("repeat 300x10ms word{n} "))
    await client.until(lambda: "word20 " in client.text(session))
    worker = stack.worker(session)
    os.kill(await systemd.main_pid(), signal.SIGKILL)
    assert (await client.answer(turn))["stopReason"] == "end_turn"
    assert client.text(session) == " ".join(f"word{number}" for number in range(1, 301))
    assert worker.alive
    assert await systemd.show(SERVICE, "NRestarts") == "1"


@pytest.mark.long
async def test_installer_takes_over_from_client_started_daemon(
    bare: UserManager, stack: Stack
) -> None:
    client = await stack.front(PYKOCLAW_SOCKET=str(bare.socket))
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    earlier = stack.daemon_pid()
    said = await install(bare, stack)
    assert f"(pid {earlier}) hands over" in said
    assert stack.daemon_pid() == await bare.main_pid() != earlier
    await client.prompt(session, text("Second."))
    assert client.text(session) == "First.Second."
    assert "wrote" not in await install(bare, stack)
    await bare.run(str(INSTALL), "--uninstall")
    assert not bare.socket.exists()
    assert await bare.show(SERVICE, "LoadState") == "not-found"
