"""Who counts as inside of a session, by what /proc says; on real processes in
tests/e2e/test_nested.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pykoclaw_acp.front import spawn
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.server import origin
from pykoclaw_acp.server.origin import Inside, Origins
from pykoclaw_acp.system import lineage, proc
from pykoclaw_acp.system.unix_socket import peer_pid
from tests.waiting import eventually


async def no_workers() -> dict[tuple[int, int], str]:
    return {}


@contextmanager
def peer(**environment: str) -> Iterator[socket.socket]:
    """Our end of a connection that another process has made, with this in its environment."""
    listener = socket.socket(socket.AF_UNIX)
    name = f"\0pykoclaw-test-{os.getpid()}"
    listener.bind(name)
    listener.listen(1)
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect('\\0' + sys.argv[1]); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, name[1:]],
        stdin=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    connection, _ = listener.accept()
    try:
        yield connection
    finally:
        process.communicate()
        connection.close()
        listener.close()


def groups(monkeypatch: pytest.MonkeyPatch, own: str, theirs: str) -> None:
    """The control groups of this process, and of all others."""

    real = proc.read

    def read(path: str) -> bytes:
        if not path.endswith("/cgroup"):
            return real(path)
        return os.fsencode(f"0::{own if path == f'/proc/{os.getpid()}/cgroup' else theirs}\n")

    monkeypatch.setattr(proc, "read", read)


async def looked(
    own: str,
    connection: socket.socket,
    workers: origin.WorkerSessions = no_workers,
    name: str = "hash",
) -> Inside | None:
    """What is said of a process below this one: not to be taken for a child of the daemon."""
    made = Origins(lambda cookie: cookie.startswith(f"{own}:"), workers, name)
    ancestors = lineage.ancestry(peer_pid(connection))
    assert [one.pid for one in ancestors[:2]][1] == os.getpid()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lineage, "ancestry", lambda _: ancestors[:1])
        return await made.of(connection)


async def test_only_cookie_of_own_workers_counts() -> None:
    with peer(PYKOCLAW_WORKER="ours:session-1:3") as connection:
        assert await looked("ours", connection) == Inside("session-1")
        assert await looked("theirs", connection) is None
    with peer() as connection:
        assert await looked("ours", connection) is None


async def test_a_child_of_the_daemon_is_inside() -> None:
    with peer() as connection:
        assert await Origins(lambda _: False, no_workers, "hash").of(connection) == Inside()


async def test_worker_differs_from_other_process_with_its_pid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with peer() as connection:
        (process, *_) = lineage.ancestry(peer_pid(connection))
        monkeypatch.setattr(origin, "WORKER_NAME", process.name)

        async def live() -> dict[tuple[int, int], str]:
            return {(process.pid, process.start): "session-1"}

        async def ended() -> dict[tuple[int, int], str]:
            return {(process.pid, process.start - 1): "session-1"}

        assert await looked("ours", connection, live) == Inside("session-1")
        assert await looked("ours", connection, ended) is None


@pytest.mark.parametrize(
    ("own", "theirs", "by_systemd", "inside"),
    [
        ("/user.slice/pykoclaw-acp.service", "/user.slice/pykoclaw-acp.service", False, True),
        ("/user.slice/pykoclaw-acp.service", "/user.slice/pykoclaw-acp.service/tools", False, True),
        ("/user.slice/pykoclaw-acp.service", "/user.slice/pykoclaw-acp.service", True, False),
        ("/user.slice/pykoclaw-acp.service", "/user.slice/pykoclaw-acp.service-2", False, False),
        ("/user.slice/pykoclaw-acp.service", "/user.slice/terminal.scope", False, False),
        ("/user.slice/pykoclaw-acp.service", "/user.slice/\udcff\r.scope", False, False),
        ("/", "/", False, False),
    ],
)
async def test_the_control_group_of_the_service_tells(
    monkeypatch: pytest.MonkeyPatch, own: str, theirs: str, by_systemd: bool, inside: bool
) -> None:
    """Also of an orphan that nothing else leads to; what systemd starts there by itself, as
    ExecStartPost=, is not.
    """
    monkeypatch.setenv("SYSTEMD_EXEC_PID", str(os.getpid()))
    groups(monkeypatch, own, theirs)
    monkeypatch.setattr(lineage, "variable", lambda pid, name: str(pid) if by_systemd else None)
    with peer() as connection:
        assert (await looked("ours", connection) == Inside()) is inside


@pytest.mark.parametrize(
    ("group", "main", "dedicated"),
    [
        ("/a/pykoclaw-acp-hash-12.scope", False, True),
        ("/a/pykoclaw-acp-other-12.scope", False, False),
        ("/a/mitto.service", False, False),
        ("/a/mitto.service", True, True),
    ],
)
async def test_a_group_that_others_share_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, group: str, main: bool, dedicated: bool
) -> None:
    """A daemon that a client has started is in the group of the client's service."""
    monkeypatch.setenv("SYSTEMD_EXEC_PID", str(os.getpid() if main else os.getppid()))
    groups(monkeypatch, group, group)
    with peer() as connection:
        assert (await looked("ours", connection) == Inside()) is dedicated


async def test_each_daemon_of_front_has_own_scope(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The workers of the first keep its scope in use; systemd refuses a name that is."""
    run = tmp_path / "systemd-run"
    run.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    places = Places(str(tmp_path / "data"), str(tmp_path / "state"))
    units = set()
    for _ in range(2):
        (unit,) = (
            word for word in spawn.command_line(places, scope=True) if word.startswith("--unit=")
        )
        units.add(unit.removeprefix("--unit="))
    assert len(units) == 2
    for unit in units:
        groups(monkeypatch, f"/a/{unit}.scope", f"/a/{unit}.scope")
        with peer() as connection:
            assert await looked("ours", connection, name=places.hash) == Inside()


async def test_without_descriptors_nobody_is_taken_for_somebody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing can be looked at then: neither who is inside passes, nor is anybody else refused."""
    tried = 0

    def exhausted(pid: int) -> list[lineage.Process]:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return []

    monkeypatch.setattr(lineage, "ancestry", exhausted)
    monkeypatch.setattr(origin, "PAUSE", 0)
    with peer() as connection:
        assert await Origins(lambda _: False, no_workers, "hash").of(connection) is None
    assert tried == 3


async def test_a_crowd_is_looked_at_with_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    begun = threading.Semaphore(0)

    def slow(pid: int) -> list[lineage.Process]:
        begun.release()
        go_on.wait(30)
        return []

    monkeypatch.setattr(lineage, "ancestry", slow)
    made = Origins(lambda _: False, no_workers, "hash")
    with peer() as connection:
        before = len(os.listdir("/proc/self/fd"))
        looking = [asyncio.create_task(made.of(connection)) for _ in range(50)]
        for _ in range(origin.LOOKS):
            assert await asyncio.to_thread(begun.acquire, True, 30)
        held = len(os.listdir("/proc/self/fd")) - before
        go_on.set()
        assert await asyncio.gather(*looking) == [None] * 50
    assert held <= origin.LOOKS


async def test_slow_answer_about_workers_delays_no_other_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = asyncio.Event()
    asked = 0

    async def slow() -> dict[tuple[int, int], str]:
        nonlocal asked
        asked += 1
        await answered.wait()
        return {}

    with peer() as connection:
        (process, *_) = lineage.ancestry(peer_pid(connection))
        monkeypatch.setattr(origin, "WORKER_NAME", process.name)
        monkeypatch.setattr(lineage, "ancestry", lambda _: [process])
        made = Origins(lambda _: False, slow, "hash")
        looking = [asyncio.create_task(made.of(connection)) for _ in range(origin.LOOKS)]
        await eventually(lambda: asked == origin.LOOKS)
        monkeypatch.setattr(lineage, "ancestry", lambda _: [])
        assert await asyncio.wait_for(made.of(connection), 10) is None
        answered.set()
        assert await asyncio.gather(*looking) == [None] * origin.LOOKS
