"""Descriptors, memory or processes run out beside a running daemon: one clear error, and afterwards
all goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.system import processes
from tests.e2e.commands import run
from tests.e2e.harness import Stack, script, text
from tests.e2e.harness.client import RpcError
from tests.waiting import eventually, eventually_sync

BROKEN: Final = (sys.executable, "-m", "tests.e2e.broken_writer_daemon")


async def refusal(client: Any, session: str) -> RpcError | None:
    """How a prompt is refused; None if it is answered."""
    try:
        await client.prompt(session, text("There is room."))
    except RpcError as error:
        return error
    return None


async def failure(client: Any, session: str) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await client.prompt(session, text("Not now."))
    return caught.value


def size(pid: int) -> int:
    """Bytes of address space."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")


def first_free_descriptor(pid: int | None) -> int:
    """Limited to it, the process can open nothing: it has all of those below, and gaps above."""
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return next(number for number in itertools.count() if number not in used)


def limit(stack: Stack, which: int, soft: int) -> None:
    pid = stack.daemon_pid()
    assert pid is not None
    resource.prlimit(pid, which, (soft, resource.prlimit(pid, which)[1]))


async def test_daemon_without_descriptors_reports_and_starts_no_worker(stack: Stack) -> None:
    client = await stack.front()
    sessions = [await client.new(stack.work) for _ in range(4)]
    await client.prompt(await client.new(stack.work), text("Before."))
    pid = stack.daemon_pid()
    # What it closes just then leaves room for another worker: it is tried again.
    for session in sessions:
        limit(stack, resource.RLIMIT_NOFILE, first_free_descriptor(pid))
        if (error := await refusal(client, session)) is not None:
            break
    assert error is not None
    assert (error.code, error.kind, "`ulimit -n`" in error.message) == (
        -32010,
        "out_of_descriptors",
        True,
    )
    assert stack.daemon_pid() == pid
    limit(stack, resource.RLIMIT_NOFILE, 1024)
    await client.prompt(session, text("After."))
    assert client.text(session).endswith("After.")


@pytest.mark.long
async def test_claude_out_of_memory_reports_clear_error(stack: Stack) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(await client.new(stack.work), text("Before."))
    server = next(
        one for one in stack.find("worker.forkserver") if one.parent == stack.daemon_pid()
    )
    before = resource.prlimit(server.pid, resource.RLIMIT_AS)
    resource.prlimit(
        server.pid, resource.RLIMIT_AS, (size(server.pid) + 64 * 1024 * 1024, before[1])
    )
    error = await failure(client, session)
    assert (error.code, error.kind, "`ulimit -v`" in error.message) == (
        -32010,
        "out_of_memory",
        True,
    ), error.message
    resource.prlimit(server.pid, resource.RLIMIT_AS, before)
    await client.prompt(session, text("After."))
    assert client.text(session).endswith("After.")


async def test_claude_unable_to_start_process_reports_it(stack: Stack) -> None:
    claude = stack.root / "claude"
    claude.write_text("#!/bin/sh\necho 'claude: Cannot fork' >&2\nexit 2\n")
    claude.chmod(0o755)
    client = await stack.front(PYKOCLAW_CLI_PATH=str(claude))
    error = await failure(client, await client.new(stack.work))
    assert (error.code, error.kind, "`ulimit -u`" in error.message) == (
        -32010,
        "out_of_processes",
        True,
    )


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group whose processes get next to no further memory; skips where none
    can be made.
    """
    cgroups = Path("/sys/fs/cgroup")
    group = _group(cgroups / "memory", "memory.limit_in_bytes") or _group(cgroups, "memory.max")
    if group is None:
        pytest.skip("no control group with a limit of memory can be made here")
    yield group
    eventually_sync(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def _group(root: Path, limit: str) -> Path | None:
    group = root / f"pykoclaw-acp-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        (group / limit).write_text(str(1024 * 1024))
    except OSError:
        group.rmdir()
        return None
    return group


@pytest.mark.long
async def test_claude_killed_by_oom_killer_is_reported_so(stack: Stack, memory_group: Path) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    answer = client.prompting(session, script("repeat 2000x10ms word{n}"))
    await eventually(lambda: "word" in client.text(session))
    claude = stack.claude(session)
    assert claude is not None
    (memory_group / "cgroup.procs").write_text(str(claude.pid))
    with pytest.raises(RpcError) as caught:
        await client.answer(answer)
    assert caught.value.kind == "out_of_memory"
    assert "MemoryMax" in caught.value.message
    await client.prompt(session, text("After."))
    assert client.text(session).endswith("After.")


async def test_daemon_needs_no_thread_under_memory_limit(stack: Stack) -> None:
    """A thread that cannot start would hold up, or fail, whatever needs it."""
    skill = stack.root / "heavy/.claude/skills/heavy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nallowed-tools: Bash\n---\n")
    for at in range(250):
        (skill / f"{at}.bin").write_bytes(os.urandom(100 * 1024))
    client = await stack.front()
    await client.new(stack.work)
    pid = stack.daemon_pid()
    assert pid is not None
    limit(stack, resource.RLIMIT_AS, size(pid) + 7 * 1024 * 1024)  # less than a thread's stack
    threads = len(os.listdir(f"/proc/{pid}/task"))
    heavy = str(stack.root / "heavy")
    for look in await asyncio.gather(*(run(stack, "trust", "show", heavy) for _ in range(8))):
        assert "allowed-tools: Bash" in look.out, look.error
    assert len(os.listdir(f"/proc/{pid}/task")) == threads
    assert stack.daemon_pid() == pid


@pytest.mark.long
async def test_front_without_memory_says_so_and_turn_continues(stack: Stack) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    answer = client.prompting(session, script("repeat 200x10ms word{n} ", "text Done."))
    await eventually(lambda: "word" in client.text(session))
    pid = client.process.pid
    resource.prlimit(
        pid, resource.RLIMIT_AS, (size(pid), resource.prlimit(pid, resource.RLIMIT_AS)[1])
    )
    with contextlib.suppress(OSError):
        client.begin(
            "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "x" * (24 << 20)}]
        )
    with pytest.raises(RpcError) as caught:
        await client.answer(answer)
    assert (caught.value.kind, "`ulimit -v`" in caught.value.message) == ("out_of_memory", True)
    assert "Running turns continue in the daemon." in caught.value.message
    assert await client.gone() == 1
    later = await stack.front()
    await later.load(session, stack.work)
    await later.until(lambda: later.text(session).endswith("Done."))
    await eventually(lambda: stack.rows("SELECT state FROM acp_turns") == [{"state": "done"}])


USER = 54321  # nobody's: the limit of processes does not hold for root
AS_OTHER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
STARTS_ITSELF = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import pykoclaw_acp.worker.main"], check=True)
"""


def other(home: Path) -> dict[str, str]:
    path = f"{Path(__file__).parents[2]}:{sysconfig.get_path('purelib')}"
    kept = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    return {**kept, "HOME": str(home), "PYTHONPATH": path}


@pytest.fixture
def elsewhere() -> Iterator[tuple[Path, str]]:
    """A home of another user, and a Python that this one may use; skips where there is none."""
    home = Path(tempfile.mkdtemp(dir="/tmp", prefix="pykoclaw-acp-other-"))
    try:
        pythons = [sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"]
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            pythons.clear()
        os.chown(home, USER if pythons else -1, -1)
        found = (
            one
            for one in pythons
            if os.path.exists(one)
            and not subprocess.run(
                [*AS_OTHER, one, "-c", STARTS_ITSELF],
                cwd=home, env=other(home), stderr=subprocess.DEVNULL, check=False,
            ).returncode
        )  # fmt: skip
        if (python := next(found, None)) is None:
            pytest.skip("no other user can run the program here")
        yield home, python
    finally:
        shutil.rmtree(home)


def processes_of(pid: int) -> str:
    """The soft limit of processes, from /proc/<pid>/limits."""
    with open(f"/proc/{pid}/limits") as file:
        (line,) = [one for one in file if one.startswith("Max processes")]
    return line.split()[2]


def most_processes(soft: str, *pids: int) -> None:
    """By the other user: root of a container may not."""
    for pid in pids:
        command = [*AS_OTHER, "prlimit", f"--nproc={soft}:", "--pid", str(pid)]
        subprocess.run(command, check=True)


@pytest.mark.long
async def test_process_limit_is_reported_and_turns_continue_anyway(
    elsewhere: tuple[Path, str],
) -> None:
    home, python = elsewhere
    server = await asyncio.create_subprocess_exec(
        *AS_OTHER, python, "-m", "pykoclaw_acp", "serve", "--stdio",
        cwd=home, env=other(home), stdin=-1, stdout=-1, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    stdin, stdout = server.stdin, server.stdout
    count = 0

    async def call(method: str, **params: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        request = {"jsonrpc": "2.0", "id": count, "method": method, "params": params}
        stdin.write(json.dumps(request).encode() + b"\n")
        while True:
            answer: dict[str, Any] = json.loads(await asyncio.wait_for(stdout.readline(), 120))
            if answer.get("id") == count and "method" not in answer:
                return answer

    try:
        await call("initialize", protocolVersion=1)
        opened = await call("session/new", cwd=str(home), mcpServers=[])
        session = opened["result"]["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "Hello"}]}
        (forks,) = await eventually(lambda: processes.children(server.pid))
        before = processes_of(forks)
        most_processes("1", server.pid, forks)
        error = (await call("session/prompt", **prompt))["error"]
        assert (error["code"], error["data"]["errorKind"]) == (-32010, "out_of_processes")
        assert "`ulimit -u`" in error["message"]
        most_processes(before, server.pid, forks)
        answer = await call("session/prompt", **prompt)
        kind = answer.get("error", {}).get("data", {}).get("errorKind")
        assert kind not in ("out_of_processes", None), "Claude was started, and has no account"
    finally:
        stdin.close()
        await server.wait()


@pytest.mark.long
@pytest.mark.parametrize("how", ["dies", "hangs"])
async def test_daemon_whose_writer_is_gone_makes_room(stack: Stack, how: str) -> None:
    """A hang is noticed after 12 s, and the files cannot be closed then."""
    broken = stack.root / "broken"
    first = await stack.daemon(program=(*BROKEN, how, os.fspath(broken)))
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("Before."))
    broken.touch()
    running = client.prompting(session, text("After."))
    await asyncio.wait_for(first.wait(), 120)
    assert first.returncode == os.EX_TEMPFAIL
    await client.answer(running)
    assert client.text(session) == "Before.After."
    assert len(stack.rows("SELECT 1 FROM acp_turns WHERE state = 'done'")) == 2
