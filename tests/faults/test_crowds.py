"""Too many clients, of the kinds that hurt: nobody is locked out for good, no turn notices,
everybody hears why.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.front import call as front
from pykoclaw_acp.link.places import connect
from tests.e2e.harness import Stack
from tests.e2e.harness.client import RpcError
from tests.waiting import eventually

REPOSITORY: Final = Path(__file__).parents[2]
FEW_FILES: Final = ("prlimit", "--nofile=64:64", sys.executable, "-m", "tests.e2e.memory_daemon")
CROWD: Final = 100


@contextmanager
def crowd(stack: Stack, said: bytes, count: int = CROWD) -> Iterator[list[socket.socket]]:
    """So many connections on which this is said, and nothing more."""
    there: list[socket.socket] = []
    try:
        for _ in range(count):
            one = socket.socket(fileno=connect(stack.places.socket).detach())
            there.append(one)
            try:
                one.sendall(said)
            except OSError:
                continue  # it was turned away already
        yield there
    finally:
        for one in there:
            one.close()


async def answers(stack: Stack) -> bool:
    """The daemon answers a command."""
    try:
        await asyncio.to_thread(
            front.call, stack.places, "_pykoclaw.dev/questions/list", {}, timeout=10
        )
    except front.DaemonAbsent:
        return False
    return True


async def works(stack: Stack) -> bool:
    """A new client gets in, and has an answer to a prompt."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.healthy", stack.places.socket, str(stack.work), cwd=REPOSITORY,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    out, _ = await process.communicate()
    return out.startswith(b"ready\n")


async def until(look: Callable[[Stack], Awaitable[bool]], stack: Stack) -> None:
    def seen() -> bool | Awaitable[bool]:
        return look(stack)

    await eventually(seen)


KINDS: Final = {
    "silent": b"",
    "half a line": b'{"jsonrpc":"2.0","id":1,"method":"initia',
    "half a front": b'front {"front":"x"',
    "half a long front": b'front {"front":"x","environment":{"A":"' + b"x" * (2 << 20),
    "no method": b'{"jsonrpc":"2.0","id":1,"method":"nothing"}\n',
    "clients that stay": b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n',
    "fronts that stay": b'front {"front":"x"}\n',
}


LIKE_OTHERS: Final = (
    "half a line",
    "half a front",
    "half a long front",
    "no method",
    "clients that stay",
)  # what they hold up, silent ones or fronts do as well


@pytest.mark.parametrize(
    "kind",
    [pytest.param(one, marks=pytest.mark.long if one in LIKE_OTHERS else ()) for one in KINDS],
)
async def test_a_crowd_takes_no_descriptor_that_others_need(stack: Stack, kind: str) -> None:
    await stack.daemon(program=FEW_FILES, PYTHONPATH=str(REPOSITORY), PYKOCLAW_MAX_WORKERS="4")
    client = await stack.front()
    session = await client.new(stack.work)
    turn = client.prompting(session, "pace 100 10 10")
    await client.until(lambda: len(client.of(session)) > 3)
    with crowd(stack, KINDS[kind]):
        await until(answers, stack)
        await until(works, stack)  # the crowd is one process: it has its share, and not more
        assert (await client.answer(turn))["stopReason"] == "end_turn"
        assert (await client.prompt(session, "say 3"))["stopReason"] == "end_turn"
    await until(works, stack)
    log = (stack.root / "daemon.log").read_text()
    assert "accept_failed" not in log
    assert "Traceback" not in log


async def test_who_is_turned_away_hears_why(stack: Stack) -> None:
    await stack.daemon(program=FEW_FILES, PYTHONPATH=str(REPOSITORY), PYKOCLAW_MAX_WORKERS="4")
    heard: list[dict[str, Any]] = []
    with ExitStack() as there:
        while not heard or "error" not in heard[-1]:
            (one,) = there.enter_context(crowd(stack, KINDS["clients that stay"], 1))
            one.settimeout(30)
            heard.append(
                json.loads(await asyncio.to_thread(there.enter_context(one.makefile()).readline))
            )
    assert len(heard) > 4
    error = heard[-1]["error"]
    assert error["code"] == -32012
    assert error["data"] == {"errorKind": "too_many_clients", "retryable": True}
    assert "PYKOCLAW_MAX_CLIENTS" in error["message"]


@pytest.mark.long
async def test_front_refused_for_max_clients_repeats_reason(stack: Stack) -> None:
    await stack.daemon(
        program=FEW_FILES,
        PYTHONPATH=str(REPOSITORY),
        PYKOCLAW_MAX_WORKERS="4",
        PYKOCLAW_MAX_CLIENTS="4",
    )
    with crowd(stack, KINDS["fronts that stay"], 4) as there:
        for one in there:
            assert await asyncio.to_thread(one.recv, 8) == b"welcome "
        waiting = await stack.spawn_front(PYKOCLAW_DAEMON_TIMEOUT="2")
        with pytest.raises(RpcError, match="PYKOCLAW_MAX_CLIENTS"):
            await waiting.call("session/new", cwd="/", mcpServers=[])
        assert await waiting.process.wait() == 75
    await until(works, stack)
