"""Lines to one client that leave together."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pykoclaw_acp.server.gathering import MOST
from pykoclaw_acp.server.sockets import SocketTransport
from pykoclaw_acp.server.stdio import StdioTransport
from tests.waiting import eventually


@asynccontextmanager
async def connected(stall: float = 60) -> AsyncIterator[tuple[SocketTransport, socket.socket]]:
    """A transport, and the client's end, which waits for nothing."""
    ours, theirs = socket.socketpair()
    for end in ours, theirs:
        end.setblocking(False)
    transport = await SocketTransport.of(ours, stall)
    try:
        yield transport, theirs
    finally:
        await transport.close()
        theirs.close()


async def test_gathered_lines_leave_together_and_in_order() -> None:
    async with connected() as (transport, client):
        await transport.write(b"before\n")
        transport.gather()
        await transport.write(b"one\n")
        transport.gather()
        await transport.write(b"two\n")
        assert client.recv(100) == b"before\n"
        with pytest.raises(BlockingIOError):
            client.recv(100)
        await asyncio.sleep(0)
        assert client.recv(100) == b"one\ntwo\n"
        await transport.write(b"after\n")
        assert client.recv(100) == b"after\n"


async def test_gathered_lines_leave_when_they_are_many() -> None:
    async with connected() as (transport, client):
        transport.gather()
        await transport.write(b"x" * (MOST - 1))
        with pytest.raises(BlockingIOError):
            client.recv(1)
        await transport.write(b"xx")
        await transport.write(b"after")
        assert client.recv(2 * MOST).endswith(b"xafter")


async def test_gathered_lines_leave_before_the_end() -> None:
    async with connected() as (transport, client):
        transport.gather()
        await transport.write(b"last\n")
        await transport.close()
        assert client.recv(100) == b"last\n"
        with pytest.raises(ConnectionError):
            await transport.write(b"later\n")


async def test_slow_client_is_waited_for_while_lines_gather() -> None:
    async with connected() as (transport, client):
        size = 0

        async def replay() -> None:
            nonlocal size
            while True:
                transport.gather()
                await transport.write(b"x" * 1000)
                size += 1000

        replaying = asyncio.create_task(replay())
        await eventually(lambda: transport.unread > MOST)
        before = size
        await asyncio.sleep(0)
        assert size == before, "it goes on"
        assert transport.unread < 3 * MOST
        client.recv(10_000_000)
        await eventually(lambda: size > before)
        replaying.cancel()


async def test_unreading_client_is_cut_off_while_gathering() -> None:
    async with connected(stall=0.01) as (transport, _):

        async def replay() -> None:
            while True:
                transport.gather()
                await transport.write(b"x" * 1000)

        with pytest.raises(ConnectionError, match="does not read"):
            await replay()


async def test_lines_to_standard_output_leave_together() -> None:
    source, sink = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    transport = await StdioTransport.open(nothing, sink)
    os.set_blocking(source, False)
    transport.gather()
    await transport.write(b"one\n")
    await transport.write(b"two\n")
    with pytest.raises(BlockingIOError):
        os.read(source, 100)
    await asyncio.sleep(0)
    assert os.read(source, 100) == b"one\ntwo\n"
    transport.gather()
    await transport.write(b"last\n")
    transport.abort()
    assert os.read(source, 100) == b"last\n"
    os.close(source)
    os.close(nothing)
