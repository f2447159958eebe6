"""A SQLite connection in a thread of its own: calls run in order, to their end, and their errors
reach the caller.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykoclaw_acp.store.connection import Connection
from pykoclaw_acp.store.sqlite import sqlite3
from tests.waiting import eventually


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    opened = await Connection.open(tmp_path / "file.db")
    yield opened
    await opened.close()


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "sqlite"}


async def test_calls_run_in_their_order(connection: Connection) -> None:
    done: list[int] = []
    connection.post(lambda _: 1, done.append)
    running = [asyncio.ensure_future(connection.run(lambda _, n=n: done.append(n))) for n in (2, 3)]  # type: ignore[misc]
    await asyncio.gather(*running)
    assert sorted(done) == [1, 2, 3]
    assert done.index(2) < done.index(3)


async def test_call_of_cancelled_caller_runs_to_completion(connection: Connection) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(_: sqlite3.Connection) -> None:
        begun.set()
        go_on.wait(60)
        ended.set()

    calling = asyncio.ensure_future(connection.run(slow))
    await eventually(begun.is_set)
    calling.cancel()
    await asyncio.wait([calling])
    go_on.set()
    assert await connection.run(lambda _: ended.is_set())


async def test_errors_reach_the_caller_and_end_nothing(connection: Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await connection.run(lambda c: c.execute("SELECT * FROM nowhere"))
    assert await connection.run(lambda c: c.execute("SELECT 1").fetchone()) == (1,)


async def test_closing_waits_for_calls_and_ends_the_thread(tmp_path: Path) -> None:
    before = threads()
    connection = await Connection.open(tmp_path / "file.db")
    assert len(threads() - before) == 1
    made = asyncio.ensure_future(connection.run(lambda c: c.execute("CREATE TABLE made (x)")))
    await asyncio.sleep(0)
    await connection.close()
    await made
    await connection.close()
    await eventually(lambda: not threads() - before)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        await connection.run(lambda c: c.execute("SELECT 1"))


async def test_unopenable_file_leaves_no_thread(tmp_path: Path) -> None:
    before = threads()
    with pytest.raises(sqlite3.OperationalError):
        await Connection.open(tmp_path / "missing" / "file.db")
    await eventually(lambda: not threads() - before)


async def test_unclosed_connection_causes_a_warning(tmp_path: Path) -> None:
    before = threads()
    held = [await Connection.open(tmp_path / "file.db")]
    with pytest.warns(ResourceWarning, match="was not closed"):
        held.clear()
    await eventually(lambda: not threads() - before)
