"""What is known of processes while no file descriptor is left: that they live, or nothing."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp.channel.processes import WorkerHandle, WorkerProcess, WorkerRecord
from pykoclaw_acp.channel.spec import WorkerIdentity
from pykoclaw_acp.pool.local_whereabouts import LocalWhereabouts
from pykoclaw_acp.server import client_processes
from pykoclaw_acp.system import processes, reaper
from pykoclaw_acp.worker import sdk_private


@contextmanager
def no_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        process.kill()


def test_live_worker_is_not_dead_without_descriptors(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, boot = processes.start_time(sleeper), processes.boot_id()
    assert started is not None
    handle = WorkerHandle(WorkerProcess(sleeper, started, boot), "/no/socket")
    identity = WorkerIdentity(instance="i", session_id="s", epoch=1)
    worker = WorkerRecord(identity, handle, 0)
    monkeypatch.setattr(processes, "boot_id", lambda: boot)
    assert LocalWhereabouts().lives(worker)
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        LocalWhereabouts().lives(worker)


def test_who_cannot_know_takes_process_for_alive(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = SimpleNamespace(_transport=SimpleNamespace(_process=SimpleNamespace(pid=sleeper)))
    words = client_processes.of(os.getpid())
    assert words is not None
    assert client_processes.alive(words)
    with no_descriptors():
        cli, client_lives = sdk_private.cli_lives(client), client_processes.alive(words)
        parent = client_processes.parent_of(os.getpid())
        processes.reap_orphans()
    assert (cli, client_lives, parent) == (True, None, None)


def test_process_is_ended_once_descriptors_are_left(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = processes.start_time(sleeper)
    assert started is not None
    lacking = no_descriptors()
    lacking.__enter__()
    monkeypatch.setattr(time, "sleep", lambda _: lacking.__exit__(None, None, None))
    try:
        reaper.end_these([reaper.Stray(sleeper, started)], 0.0)
    finally:
        lacking.__exit__(None, None, None)
    assert processes.state(sleeper) in ("Z", None)
