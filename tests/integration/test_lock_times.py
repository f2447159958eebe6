"""How long our transactions hold the lock, for which other programs wait 5 s and no longer.

The limit is 0.5 s. What counts in most tests is the time of the processor: on a machine with other
work, a transaction takes longer, and so does everything else. For how long another program waits,
COMMIT included, is examined apart, and there the best of some tries counts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from pykoclaw_acp.model.events import Text, encode
from pykoclaw_acp.store import migrate
from pykoclaw_acp.store.conversion import Conversion
from pykoclaw_acp.store.sqlite import sqlite3
from tests.databases import on_writer
from tests.double import files
from tests.double.roles import Role
from tests.integration.rig import rig
from tests.waiting import eventually

LIMIT: Final = 0.5  # s
EVENTS: Final = 200_000
TURNS: Final = 20_000
SESSIONS: Final = 10_000
PAYLOAD: Final = encode(Text("m", "some words of an answer "))
MOST_ROWS: Final = 10_000  # changed in one transaction of a conversion
MIGRATIONS_OF_LARGE_TABLES: Final = (3, 4, 19)
TRIES: Final = 3


@dataclass
class Held:
    """Transactions of one connection: seconds of the processor, and rows that were changed."""

    connection: sqlite3.Connection
    transactions: list[tuple[float, int]] = field(default_factory=list)
    _begun: tuple[float, int] | None = None

    def traced(self, sql: str) -> None:
        if sql.startswith("BEGIN"):
            self._begun = time.thread_time(), self.connection.total_changes
        elif sql.startswith("COMMIT") and self._begun is not None:
            began, changes = self._begun
            self.transactions.append(
                (time.thread_time() - began, self.connection.total_changes - changes)
            )


def watch(connection: sqlite3.Connection) -> Held:
    """Look at the transactions of this connection from now on."""
    held = Held(connection)
    connection.set_trace_callback(held.traced)
    return held


def old(path: Path) -> sqlite3.Connection:
    """A large database of the version that had the first two migrations."""
    connection = sqlite3.connect(path, isolation_level=None)
    migrate.apply(connection, [one for one in migrate.load() if one.version <= 2], path)
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO conversations (name, session_id, cwd, created_at) VALUES (?, 'claude', '/w', ?)",
        ((f"acp-{n:08x}", files.LONG_AGO) for n in range(SESSIONS)),
    )
    connection.executemany(
        "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, created_at, updated_at)"
        " VALUES (?, ?, '/w', 1, 1)",
        ((f"session-{n}", f"acp-{n:08x}") for n in range(SESSIONS)),
    )
    connection.executemany(
        "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, stop_reason, created_at, ended_at)"
        " VALUES (?, ?, 'client', '[]', 'done', 'end_turn', ?, ?)",
        ((f"turn-{n}", f"session-{n % SESSIONS}", n, n) for n in range(TURNS)),
    )
    connection.executemany(
        "INSERT INTO acp_events (acp_session_id, seq, turn_id, kind, payload, created_at)"
        " VALUES (?, ?, ?, 'text', ?, 1)",
        ((f"session-{n % 3}", n, f"turn-{n % TURNS}", PAYLOAD) for n in range(EVENTS)),
    )
    connection.execute("COMMIT")
    return connection


@pytest.mark.long
def test_no_migration_of_large_database_holds_lock(tmp_path: Path) -> None:
    path = files.current(tmp_path)
    every = migrate.load()
    with closing(old(path)) as connection:
        for migration in every[2:]:
            held = watch(connection)
            migrate.apply(
                connection, [one for one in every if one.version <= migration.version], path
            )
            ((seconds, changed),) = held.transactions
            assert seconds < LIMIT, migration.name
            assert changed < SESSIONS + TURNS, migration.name  # never the events
            if migration.version in MIGRATIONS_OF_LARGE_TABLES:
                assert seconds > 0
        ((events,),) = connection.execute("SELECT COUNT(*) FROM acp_events")
        assert events == EVENTS


@pytest.mark.long
def test_no_migration_of_pykoclaws_tables_holds_lock(tmp_path: Path) -> None:
    """Of a database that other programs have filled, and that we see for the first time."""
    path = files.large(tmp_path)
    every = migrate.load()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for migration in every:
            held = watch(connection)
            migrate.apply(
                connection, [one for one in every if one.version <= migration.version], path
            )
            assert held.transactions, migration.name
            assert max(seconds for seconds, _ in held.transactions) < LIMIT, migration.name


async def test_no_piece_of_a_conversion_holds_the_lock(tmp_path: Path) -> None:
    events = EVENTS // 10
    async with rig(tmp_path) as r:
        session = await r.session()
        await on_writer(r.database, _log_of(session.id, events))
        held = await on_writer(r.database, watch)
        await asyncio.wait_for(Conversion(r.database, lambda: True).run(), 120)
        await on_writer(r.database, lambda connection: connection.set_trace_callback(None))
        assert await r.database.read("SELECT 1 FROM acp_events LIMIT 1") == []
    assert max(seconds for seconds, _ in held.transactions) < LIMIT
    assert max(changed for _, changed in held.transactions) <= MOST_ROWS
    assert sum(changed for _, changed in held.transactions) >= events
    assert len(held.transactions) >= events / MOST_ROWS


async def longest_wait(path: Path, work: Callable[[], Awaitable[object]]) -> float:
    """For how long (s) another program has waited for the lock meanwhile, at most."""
    async with Role.started(path.parent, os.environ, "probe") as probe:
        await probe.until("ready")
        await work()
        # It sees our lock now: then it has seen, and noted, all that came before.
        await eventually(partial(_is_free, probe))
        seen = len(probe.entries("waits"))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            await eventually(lambda: len(probe.entries("waits")) > seen)
        await eventually(partial(_is_free, probe))
    return max((float(one["seconds"]) for one in probe.entries("waited")[:seen]), default=0.0)


def _is_free(probe: Role) -> bool:
    return len(probe.entries("waits")) == len(probe.entries("waited"))


def migrated(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate.apply(connection, migrate.load(), path)


@pytest.mark.long
@pytest.mark.parametrize("large", [files.large, lambda data: old(files.current(data)).close()])
async def test_others_hardly_wait_for_migrations(
    tmp_path: Path, large: Callable[[Path], object]
) -> None:
    large(tmp_path / "made")
    waits = []
    for number in range(TRIES):
        data = tmp_path / str(number)
        shutil.copytree(tmp_path / "made", data)
        work = partial(asyncio.to_thread, migrated, data / "pykoclaw.db")
        waits.append(await longest_wait(data / "pykoclaw.db", work))
    assert min(waits) < LIMIT, waits


@pytest.mark.long
async def test_others_hardly_wait_for_a_conversion(tmp_path: Path) -> None:
    waits = []
    for number in range(TRIES):
        (tmp_path / str(number)).mkdir()
        async with rig(tmp_path / str(number)) as r:
            session = await r.session()
            await on_writer(r.database, _log_of(session.id, EVENTS // 4))
            waits.append(
                await longest_wait(r.database.path, Conversion(r.database, lambda: True).run)
            )
    assert min(waits) < LIMIT, waits


def _log_of(session: str, events: int) -> Callable[[sqlite3.Connection], object]:
    def write(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO acp_events (acp_session_id, seq, turn_id, kind, payload, created_at)"
            " VALUES (?, ?, ?, 'text', ?, 1)",
            ((session, n, f"turn-{n // 100}", PAYLOAD) for n in range(1, events + 1)),
        )
        connection.execute("COMMIT")

    return write
