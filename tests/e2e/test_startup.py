"""Starting beside another server, or on a database that cannot be used: a clear error, and nothing
is touched.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pykoclaw_acp.front.dial import MAX_REFUSED_STARTS
from pykoclaw_acp.link.places import LOCK_NAME, serves
from tests.e2e.harness import Client, RpcError, Stack, text
from tests.waiting import eventually


def contents(directory: Path) -> dict[str, bytes]:
    """Files by path, without the memory that processes with the database open share."""
    return {
        str(path): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.suffix != ".db-shm"
    }


async def refused(client: Client) -> str:
    """The server's words on stderr; it says nothing to its client."""
    client.send(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    )
    await client.gone()
    assert client.received == []
    return client.log.read_text()


@pytest.mark.long
async def test_second_server_on_the_same_data(stack: Stack) -> None:
    first = await stack.start()
    session = await first.new(stack.work)
    await first.prompt(session, text("First."))
    # What the client has seen is written a moment later.
    await eventually(
        lambda: stack.rows(
            "SELECT 1 FROM acp_cursors c JOIN acp_sessions s USING (acp_session_id), acp_turns t"
            " WHERE c.seq = (SELECT MAX(seq) FROM acp_log WHERE acp_log.log_key = s.log_key)"
            " AND t.answered_at IS NOT NULL"
        )
    )
    await eventually(
        lambda: not (stack.data / "pykoclaw.db-wal").stat().st_size
    )  # brought in when it is quiet
    before = contents(stack.data)
    second = await stack.spawn()
    said = await refused(second)
    assert second.process.returncode == 75
    assert str(first.process.pid) in said
    assert str(stack.data) in said
    assert contents(stack.data) == before
    stack.clients.remove(second)
    await first.prompt(session, text("Second."))
    assert first.text(session) == "First.Second."


@pytest.mark.long
async def test_two_servers_with_data_of_their_own(stack: Stack) -> None:
    first, second = await stack.start(), await stack.start(PYKOCLAW_DATA=str(stack.root / "other"))
    for client, answer in ((first, "One."), (second, "Two.")):
        session = await client.new(stack.work)
        await client.prompt(session, text(answer))
        assert client.text(session) == answer
    await second.kill()
    third = await stack.start(PYKOCLAW_DATA=str(stack.root / "other"))
    assert await third.close() == 0
    await first.prompt(session := await first.new(stack.work), text("One still."))
    assert first.text(session) == "One still."


@pytest.mark.parametrize(
    "damage",
    [
        "garbage",
        pytest.param("truncated", marks=pytest.mark.long),
        pytest.param("empty pages", marks=pytest.mark.long),
    ],
)
async def test_damaged_database_is_named_at_start(stack: Stack, damage: str) -> None:
    path = stack.data / "pykoclaw.db"
    if damage == "garbage":
        stack.data.mkdir(parents=True)
        path.write_bytes(b"this is no database at all\n" * 500)
    else:
        client = await stack.start()
        await client.prompt(await client.new(stack.work), text("First."))
        await client.close()
        whole = path.read_bytes()
        path.write_bytes(
            whole[: len(whole) // 2]
            if damage == "truncated"
            else whole[:4096] + bytes(len(whole) - 4096)
        )
    before = contents(stack.data)
    client = await stack.spawn()
    said = await refused(client)
    assert client.process.returncode == 78
    assert str(path) in said
    after = contents(stack.data)
    assert after[str(path)] == before[str(path)]
    assert {name for name in after if "pykoclaw.db" in name} == {
        name for name in before if "pykoclaw.db" in name
    }


async def test_setting_that_cannot_be_used(stack: Stack) -> None:
    client = await stack.spawn(PYKOCLAW_IDLE_TIMEOUT="soon")
    said = await refused(client)
    assert client.process.returncode == 78
    assert "PYKOCLAW_IDLE_TIMEOUT" in said
    assert not stack.data.exists()


@pytest.mark.long
async def test_client_connects_after_socket_file_was_removed(stack: Stack) -> None:
    """As at a logout, or by a cleaner of temporary files."""
    client = await stack.front()
    session = await client.new(stack.work)
    daemon = stack.daemon_pid()
    assert serves(stack.places.data), "so nobody takes it for one that recovers"
    os.unlink(stack.places.socket)
    other = await stack.front()
    await other.load(session, stack.work)
    await client.prompt(session, text("Both are there."))
    await other.until(lambda: "Both are there." in other.text(session))
    assert stack.daemon_pid() == daemon


@pytest.mark.long
async def test_client_hears_soon_of_server_out_of_sight(stack: Stack, tmp_path: Path) -> None:
    """Its lock file was removed; the client looks for its socket elsewhere."""
    daemon = await stack.daemon()
    elsewhere = tmp_path / "elsewhere"
    (stack.data / LOCK_NAME).unlink()
    begun = time.monotonic()
    client = await stack.spawn_front(PYKOCLAW_STATE=os.fspath(elsewhere))
    await client.initialize()
    with pytest.raises(RpcError, match="its lock file there was removed") as caught:
        await client.new(stack.work)
    assert caught.value.kind == "data_in_use"
    assert time.monotonic() - begun < 30  # 60 s is the patience with what may pass
    (log,) = elsewhere.glob("*/daemon.log")
    assert log.read_text().count("daemon_not_started") == MAX_REFUSED_STARTS
    await client.gone()
    stack.clients.remove(client)
    daemon.terminate()
    await daemon.wait()
