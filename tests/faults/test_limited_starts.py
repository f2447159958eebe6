"""A daemon that starts where its database cannot be written: what clients see, and that the start goes
on by itself.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from typing import Final

import pytest

from tests.databases import with_old_log
from tests.e2e.harness import Client, RpcError, Stack, text
from tests.e2e.harness.stack import PROGRAM
from tests.faults.limits import FullDisk, Limit, Locked, limited_daemon
from tests.faults.patience import ANSWER, until
from tests.waiting import eventually

OLD: Final = "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
WORDS: Final = [f"word {number}, " for number in range(200)]
SMALL: Final = 60_000  # bytes: below a new database's size, above that of SQLite's files beside it


@pytest.fixture
def locked(stack: Stack) -> Iterator[Limit]:
    made = Locked(stack)
    yield made
    made.off()


async def with_history(stack: Stack) -> str:
    """A session that a daemon has left behind."""
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("It was so."))
    await client.close()
    await stack.end_daemon()
    return session


async def is_refused(client: Client, session: str, *reason: str, words: str = "Never.") -> None:
    with pytest.raises(RpcError) as caught:
        await asyncio.wait_for(client.prompting(session, text(words)), ANSWER)
    assert caught.value.data["retryable"] is True
    for one in reason:
        assert one in caught.value.data["reason"]


async def test_file_size_limit_below_database_shows_history(stack: Stack) -> None:
    """It starts, says what the limit is, and goes on once that is lifted."""
    session = await with_history(stack)
    assert (stack.data / "pykoclaw.db").stat().st_size > SMALL
    client = await stack.front(program=("prlimit", f"--fsize={SMALL}:", *PROGRAM))
    await client.load(session, stack.work)
    assert client.text(session) == "It was so."
    limit = (f"Files may have {SMALL:,} bytes here at most", "`ulimit -f`")
    await is_refused(client, session, *limit, words="x" * SMALL)
    assert len(stack.asked()) == 1
    daemon = stack.daemon_pid()
    assert daemon is not None
    for process in stack.processes():
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (-1, -1))
    await until(stack, "writable")
    assert (await client.prompt(session, text("And on.")))["stopReason"] == "end_turn"
    assert stack.daemon_pid() == daemon


@pytest.mark.parametrize("seconds", [0.5, pytest.param(90.0, marks=pytest.mark.long)])
async def test_start_on_locked_database_serves_and_goes_on(
    stack: Stack, locked: Limit, seconds: float
) -> None:
    """For as long as the other program keeps the lock; it starts no other daemon meanwhile."""
    session = await with_history(stack)
    locked.on()
    daemon = await limited_daemon(stack)
    client = await stack.front()
    await asyncio.wait_for(client.load(session, stack.work), ANSWER)
    assert client.text(session) == "It was so."
    await is_refused(client, session, "keeps the database locked")
    ended = asyncio.ensure_future(daemon.wait())
    await asyncio.wait([ended], timeout=seconds)
    await is_refused(client, session, "keeps the database locked")
    assert not ended.done()
    locked.off()
    await until(stack, "writable")
    assert (await client.prompt(session, text("And on.")))["stopReason"] == "end_turn"
    assert stack.daemon_pid() == daemon.pid
    assert len(stack.asked()) == 2


@pytest.mark.long
@pytest.mark.parametrize("patience", ["60", "30"])
async def test_locked_old_database_is_converted_later(
    stack: Stack, locked: Limit, patience: str
) -> None:
    """It cannot be read before. A client waits, or is told why, and then asks again."""
    with_old_log(stack.data, OLD, str(stack.work), WORDS)
    locked.on()
    client = await stack.front(PYKOCLAW_DAEMON_TIMEOUT=patience)
    loading = asyncio.ensure_future(client.load(OLD, stack.work))
    if patience == "30":
        with pytest.raises(RpcError, match="keeps the database") as caught:
            await loading
        assert caught.value.kind == "database_busy"
    else:
        await asyncio.wait([loading], timeout=15)  # the first daemon gives up after 10 s
        assert not loading.done()
    locked.off()
    if patience == "30":
        client = await stack.front()
        await client.load(OLD, stack.work)
    else:
        await loading
    assert client.text(OLD) == "".join(WORDS)


@pytest.mark.long
async def test_old_database_on_full_disk_is_converted_later(unmounted: None, stack: Stack) -> None:
    """Its history is shown meanwhile; what was there is not changed."""
    full = FullDisk(stack)
    path = with_old_log(stack.data, OLD, str(stack.work), WORDS)
    before = path.read_bytes()
    full.on()
    try:
        daemon = await limited_daemon(stack)
        client = await stack.front()
        await asyncio.wait_for(client.load(OLD, stack.work), ANSWER)
        assert client.text(OLD) == "".join(WORDS)
        await is_refused(client, OLD, "full")
        assert path.read_bytes() == before
    finally:
        full.off()
    await eventually(lambda: stack.rows("SELECT 1 FROM acp_migrations WHERE version > 40"), 60)
    await until(stack, "writable")
    after = await stack.front()
    await after.load(OLD, stack.work)
    assert after.text(OLD) == "".join(WORDS)
    assert (await after.prompt(OLD, text("And on.")))["stopReason"] == "end_turn"
    await eventually(lambda: not stack.rows("SELECT 1 FROM acp_events LIMIT 1"), 60)
    assert daemon.returncode is None
