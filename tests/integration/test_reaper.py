"""What dead workers leave behind is found by its cookie and ended, whatever session it hides in."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pykoclaw_acp.link.places import Places
from pykoclaw_acp.pool.local_unattended import LocalUnattendedWorkers
from pykoclaw_acp.system import lineage, proc, processes, reaper
from tests.waiting import eventually_sync


def stubborn(session: str) -> subprocess.Popen[bytes]:
    """A daemon in a session of its own that ignores SIGTERM, and says so when it does."""
    program = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYKOCLAW_WORKER": f"here:{session}:7"},
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


async def test_stray_ignoring_sigterm_is_killed_and_others_spared() -> None:
    mine, other = str(uuid4()), str(uuid4())
    stray, bystander = stubborn(mine), stubborn(other)
    try:
        ended = await reaper.end(lambda cookie: cookie == f"here:{mine}:7", grace=0.1)
        assert [one.pid for one in ended] == [stray.pid]
        assert stray.wait(10) == -signal.SIGKILL
        assert bystander.poll() is None
    finally:
        for process in (stray, bystander):
            process.kill()
            process.wait()


def test_stray_is_found_once_there_are_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, failures, listed = str(uuid4()), [errno.EMFILE, errno.ENFILE], os.listdir
    stray = stubborn(mine)

    def lacking(path: str) -> Any:
        if failures:
            raise OSError(failures.pop(), "Too many open files")
        return listed(path)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", lacking)
            ended = reaper.end_now(lambda cookie: cookie == f"here:{mine}:7", grace=0.0)
        assert [one.pid for one in ended] == [stray.pid]
    finally:
        stray.kill()
        stray.wait()


def test_stray_is_not_passed_over_without_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which others take and give back from one look at a process to the next."""
    mine, failures, read = str(uuid4()), [errno.EMFILE, errno.ENFILE], proc.read
    stray = stubborn(mine)

    def lacking(path: str) -> bytes:
        if failures and path == f"/proc/{stray.pid}/environ":
            raise OSError(failures.pop(), "Too many open files")
        return read(path)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(proc, "read", lacking)
            ended = reaper.end_now(lambda cookie: cookie == f"here:{mine}:7", grace=0.0)
        assert [one.pid for one in ended] == [stray.pid]
    finally:
        stray.kill()
        stray.wait()


# Starts what hides as well as it can, and ends all that came of it; prints who hid, and who was found.
ANCESTOR = """
import os, subprocess
from pykoclaw_acp.system import processes, reaper
processes.become_subreaper()
hidden = ["env", "-i", "setsid", "-f", "sh", "-c", "trap '' TERM; echo $$; setsid sleep 1000 & wait"]
with subprocess.Popen(hidden, stdout=subprocess.PIPE) as process:
    print(int(process.stdout.readline()))
print(*[one.pid for one in reaper.end_descendants(0.1)])
print(*processes.children(os.getpid()))
"""


# A worker as far as its name goes; its child says so when it is ended before it.
WORKER = """
import os, signal, subprocess, sys
from pykoclaw_acp.system import lineage, processes
processes.set_name(lineage.WORKER_NAME)
child = subprocess.Popen(
    [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"],
    env={"PYKOCLAW_WORKER": sys.argv[1]}, stdout=subprocess.PIPE,
)
child.stdout.readline()
def stop(*_):
    os.write(1, b"stopped\\n" if child.poll() is None else b"too late\\n")  # `print` may be interrupted
    sys.exit()
signal.signal(signal.SIGTERM, stop)
print(flush=True)
child.wait()
stop()
"""


def test_worker_is_stopped_before_its_processes(tmp_path: Path) -> None:
    """It keeps that it was stopped, and not that its Claude died."""
    places = Places(tmp_path / "data", tmp_path / "state", tmp_path / "acp.sock")
    command = [sys.executable, "-c", WORKER, f"{places.hash}:{uuid4()}:7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        assert LocalUnattendedWorkers(places).end(10) == 1
        assert worker.stdout.read() == b"stopped\n"


# Has a child that it may not signal, one that it spares, and a child of that; ends its descendants.
SPARING = """
import os, subprocess, time
from pykoclaw_acp.system import processes, reaper
processes.become_subreaper()
others = subprocess.Popen(["sleep", "1000"])
nested = subprocess.Popen(["sh", "-c", "sleep 1000 & echo; wait"], stdout=subprocess.PIPE)
nested.stdout.readline()
kill = os.kill
def refusing(pid, number):
    if pid == others.pid:
        raise PermissionError
    kill(pid, number)
os.kill = refusing
began = time.monotonic()
print(reaper.end_descendants(0, nested.pid), time.monotonic() - began < reaper.DESCENDANTS)
print(others.poll(), nested.poll(), len(processes.children(nested.pid)))
for pid in (*processes.children(nested.pid), nested.pid, others.pid):
    kill(pid, 9)
others.wait(), nested.wait()
"""


def test_daemon_and_others_processes_are_spared() -> None:
    run = subprocess.run([sys.executable, "-c", SPARING], capture_output=True, check=True)
    assert run.stdout.decode().split("\n")[:2] == ["[] True", "None None 1"]


def test_descendants_of_a_subreaper_end() -> None:
    run = subprocess.run([sys.executable, "-c", ANCESTOR], capture_output=True, check=True)
    hid, found, left = run.stdout.decode().split("\n")[:3]
    assert hid in found.split()
    assert all(processes.state(int(pid)) in ("Z", None) for pid in (*found.split(), *left.split()))


def test_a_recycled_pid_is_not_signalled() -> None:
    process = stubborn(str(uuid4()))
    try:
        started = processes.start_time(process.pid)
        assert started is not None
        reaper.send(process.pid, started - 1, signal.SIGKILL)
        assert process.poll() is None
        reaper.send(process.pid, started, signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_orphans_are_reaped_but_own_children_are_not() -> None:
    orphan = subprocess.Popen(["true"], start_new_session=True)
    child = subprocess.Popen(["true"])
    leader = subprocess.Popen(["true"], process_group=0)
    left = subprocess.Popen(["true"], process_group=leader.pid)  # as what a notify command leaves
    made = (orphan, child, leader, left)
    eventually_sync(lambda: {processes.state(process.pid) for process in made} == {"Z"})
    assert processes.ending(child.pid)
    assert not processes.ending(os.getpid())
    processes.reap_orphans()
    assert processes.state(orphan.pid) is None
    assert processes.state(child.pid) == "Z"
    assert processes.state(left.pid) is None
    assert processes.state(leader.pid) == "Z"
    assert child.wait(10) == leader.wait(10) == 0
    orphan.wait(10)
    left.wait(10)


def test_process_that_begins_its_program_is_known() -> None:
    """In the middle of execve(2) its environment reads as empty; before, as its parent's."""
    ours = os.readlink("/proc/self/exe")
    for _ in range(200):
        process = subprocess.Popen(["sleep", "1000"], env={**os.environ, lineage.WORKER: "cookie"})
        try:
            begun = os.readlink(f"/proc/{process.pid}/exe") != ours
            assert lineage.cookie(process.pid) == "cookie" or not begun
        finally:
            process.kill()
            process.wait()


def test_slow_begin_of_a_program_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    process = stubborn("slow")
    read, looks = proc.read, 0

    def begins(path: str) -> bytes:
        nonlocal looks
        found = read(path)
        if path.endswith("/environ"):
            looks += 1
            return b"" if looks < 50 else found
        if looks < 50:
            head, _, rest = found.rpartition(b")")
            fields = rest.split()
            fields[proc.ENVIRONMENT_END] = b"0"
            return head + b") " + b" ".join(fields)
        return found

    monkeypatch.setattr(proc, "read", begins)
    try:
        assert lineage.cookie(process.pid) == "here:slow:7"
    finally:
        process.kill()
        process.wait()


def ended_execve(pid: int) -> bool:
    return proc.stat(pid)[1][proc.ENVIRONMENT_END] != "0"


def test_process_without_an_environment_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["sleep", "1000"], env={})
    read, looks = proc.read, 0

    def counted(path: str) -> bytes:
        nonlocal looks
        looks += path.endswith("/environ")
        return read(path)

    try:
        eventually_sync(
            lambda: processes.name(process.pid) == "sleep" and ended_execve(process.pid)
        )
        monkeypatch.setattr(proc, "read", counted)
        assert lineage.cookie(process.pid) is None
        assert looks == 2
    finally:
        process.kill()
        process.wait()
