"""Messages that are too large for the memory of a running daemon."""

from __future__ import annotations

import os
import resource
import sys
from typing import Final

import pytest

from tests.e2e.harness import RpcError, Stack

IN_MEMORY: Final = (sys.executable, "-m", "tests.e2e.memory_daemon")
MIB: Final = 1024 * 1024


def address_space(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")


async def test_message_too_large_for_daemons_memory_is_refused(stack: Stack) -> None:
    """It alone: other clients, and the same one, go on with the same daemon."""
    daemon = await stack.daemon(program=IN_MEMORY)
    client, other = await stack.front(), await stack.front()
    session, beside = await client.new(stack.work), await other.new(stack.work)
    await client.prompt(session, "say 1")
    room = address_space(daemon.pid) + 8 * MIB
    resource.prlimit(daemon.pid, resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
    with pytest.raises(RpcError) as caught:
        await client.prompt(session, "x" * (40 * MIB))
    assert caught.value.kind == "out_of_memory"
    assert caught.value.data["retryable"] is True
    for one, where in ((other, beside), (client, session)):
        assert (await one.prompt(where, "say 1"))["stopReason"] == "end_turn"
    assert stack.daemon_pid() == daemon.pid
