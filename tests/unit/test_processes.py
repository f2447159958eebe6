"""What is known of processes that end, have strange names, or are looked at without descriptors."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp.channel.processes import WorkerHandle, WorkerProcess, WorkerRecord
from pykoclaw_acp.channel.spec import WorkerIdentity
from pykoclaw_acp.pool import local_whereabouts
from pykoclaw_acp.pool.local_whereabouts import LocalWhereabouts
from pykoclaw_acp.server import client_processes
from pykoclaw_acp.system import processes, reaper
from pykoclaw_acp.worker import sdk_private
from tests.waiting import eventually_sync


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
        try:
            yield process.pid
        finally:
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


def test_name_cut_inside_a_character_is_read(tmp_path: Path) -> None:
    """By the kernel, after 15 bytes; anybody's process may have one, and all are looked at."""
    program = tmp_path / "резервное-копирование"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "1000"]) as process:
        try:
            eventually_sync(lambda: processes.name(process.pid) == "резервн\ufffd")
            assert not local_whereabouts.is_held(str(tmp_path))
        finally:
            process.kill()


def test_process_that_is_gone_has_no_children(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = os.listdir

    def last(path: str) -> list[str]:
        found = listed(path)
        os.kill(sleeper, 9)
        os.waitpid(sleeper, 0)
        return found

    monkeypatch.setattr(os, "listdir", last)
    assert processes.children(sleeper) == []
    monkeypatch.undo()
    assert processes.children(sleeper) == []
