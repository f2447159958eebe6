"""Descriptors, memory or processes run out beside a running daemon: one clear error, and afterwards all goes on."""

from __future__ import annotations

import os
import resource
from typing import Any

import pytest

from tests.e2e.harness import Stack, text
from tests.e2e.harness.client import RpcError


async def failure(client: Any, session: str) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await client.prompt(session, text("Not now."))
    return caught.value


def size(pid: int) -> int:
    """Bytes of address space."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")


def limit(stack: Stack, which: int, soft: int) -> None:
    pid = stack.daemon_pid()
    assert pid is not None
    resource.prlimit(pid, which, (soft, resource.prlimit(pid, which)[1]))


async def test_a_daemon_without_descriptors_starts_no_worker_and_says_so(stack: Stack) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(await client.new(stack.work), text("Before."))
    pid = stack.daemon_pid()
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    limit(stack, resource.RLIMIT_NOFILE, descriptors)
    error = await failure(client, session)
    assert (error.code, error.kind, "`ulimit -n`" in error.message) == (-32010, "out_of_descriptors", True)
    assert stack.daemon_pid() == pid
    limit(stack, resource.RLIMIT_NOFILE, 1024)
    await client.prompt(session, text("After."))
    assert client.text(session).endswith("After.")


async def test_a_claude_without_memory_is_an_error_that_says_so(stack: Stack) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(await client.new(stack.work), text("Before."))
    server = next(one for one in stack.find("pool.forkserver") if one.parent == stack.daemon_pid())
    before = resource.prlimit(server.pid, resource.RLIMIT_AS)
    resource.prlimit(server.pid, resource.RLIMIT_AS, (size(server.pid) + 64 * 1024 * 1024, before[1]))
    error = await failure(client, session)
    assert (error.code, error.kind, "`ulimit -v`" in error.message) == (-32010, "out_of_memory", True), error.message
    resource.prlimit(server.pid, resource.RLIMIT_AS, before)
    await client.prompt(session, text("After."))
    assert client.text(session).endswith("After.")


async def test_a_claude_that_cannot_start_a_process_says_so(stack: Stack) -> None:
    claude = stack.root / "claude"
    claude.write_text("#!/bin/sh\necho 'claude: Cannot fork' >&2\nexit 2\n")
    claude.chmod(0o755)
    client = await stack.front(PYKOCLAW_CLI_PATH=str(claude))
    error = await failure(client, await client.new(stack.work))
    assert (error.code, error.kind, "`ulimit -u`" in error.message) == (-32010, "out_of_processes", True)
