"""A text in a log that is no UTF-8 any more, as after a flipped bit: the log goes on, and what is
damaged stays as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.events import Event, Text, ToolStarted, Usage, encode
from pykoclaw_acp.store import events
from pykoclaw_acp.store.conversion import Conversion
from pykoclaw_acp.store.database import Database, Unit
from pykoclaw_acp.store.sqlite import sqlite3
from tests.databases import on_writer, open_new, opened
from tests.integration.rows import NEW_SESSION, SESSION

CALL = ToolStarted("call", "Bash", "ls", "execute")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = await open_new(tmp_path / "pykoclaw.db")
    await made.commit(NEW_SESSION)
    yield made
    await made.close()


async def log(database: Database, *said: Event) -> None:
    await database.commit(Unit(events=events.rows(SESSION, None, said)), patient=True)


async def damage(
    database: Database, seq: int, column: str = "payload", table: str = "acp_log"
) -> bytes:
    """Put a byte into a row's text that UTF-8 does not have; returns what is there then."""

    def write(connection: sqlite3.Connection) -> bytes:
        connection.execute(
            f"UPDATE {table} SET {column} = CAST(x'ff' || CAST({column} AS BLOB) AS TEXT) WHERE seq = ?",
            (seq,),
        )
        return bytes(
            *rows(connection, f"SELECT CAST({column} AS BLOB) FROM {table} WHERE seq = {seq}")
        )

    return await on_writer(database, write)


def rows(connection: sqlite3.Connection, sql: str) -> list[Any]:
    return [one for (one,) in connection.execute(sql)]


async def payloads(database: Database) -> list[bytes]:
    sql = "SELECT CAST(payload AS BLOB) FROM acp_log ORDER BY seq"
    return [one for (one,) in await database.read(sql)]


async def shown(database: Database) -> list[tuple[int, int, Event | None]]:
    return [(one.first, one.seq, one.event) for one in await events.read(database, SESSION, 0, 99)]


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_the_next_daemon_continues_the_log(tmp_path: Path, at: int) -> None:
    first = await open_new(tmp_path / "pykoclaw.db")
    await first.commit(NEW_SESSION)
    await log(first, *[Text("m", f"w{number} ") for number in range(3)])
    bad = await damage(first, at)
    await first.close()
    second = await opened(tmp_path / "pykoclaw.db")
    await log(second, Text("m", "w3 "), CALL)
    assert bad in await payloads(second)
    found = await shown(second)
    assert [seq for begin, end, _ in found for seq in range(begin, end + 1)] == [1, 2, 3, 4, 5]
    assert [event for begin, end, event in found if begin <= at <= end] == [None]
    assert "".join(event.text for _, _, event in found if isinstance(event, Text)) == "".join(
        f"w{number} " for number in range(4) if number != at - 1
    )
    await second.close()


@pytest.mark.parametrize("said", [[Text("m", "a"), Text("m", "b"), CALL], [Usage(2, 9)]])
async def test_damage_while_it_runs_stops_nothing(database: Database, said: list[Event]) -> None:
    """The first are folded into one row; the second replaces the one before the damaged row."""
    await log(database, Usage(1, 9), Text("m", "w "))
    bad = await damage(database, 2)
    await log(database, *said)
    assert bad in await payloads(database)
    found = await shown(database)
    assert [event for _, _, event in found][-1] == said[-1]
    assert None in [event for _, _, event in found]


async def test_damaged_places_of_pieces_lose_no_words(database: Database) -> None:
    await log(database, Text("m", "a "), Text("m", "b "), CALL)
    await damage(database, 2, "cuts")
    for after in (0, 1):  # the second is within the folded row
        ((_, _, event), *_) = [
            (one.first, one.seq, one.event)
            for one in await events.read(database, SESSION, after, 9)
        ]
        assert event == Text("m", "a b ")
    await log(database, Text("n", "c "))
    assert [event for _, _, event in await shown(database)] == [
        Text("m", "a b "),
        CALL,
        Text("n", "c "),
    ]


@pytest.mark.parametrize("column", ["payload", "kind", "source_uuid"])
async def test_conversion_keeps_what_is_damaged(database: Database, column: str) -> None:
    def write(connection: sqlite3.Connection) -> None:
        connection.executemany(
            "INSERT INTO acp_events (acp_session_id, seq, kind, payload, source_uuid, created_at)"
            " VALUES (?, ?, 'text', ?, ?, 1)",
            [(SESSION, seq, encode(Text("m", f"w{seq} ")), f"source-{seq}") for seq in (1, 2, 3)],
        )

    await on_writer(database, write)
    bad = await damage(database, 2, column, "acp_events")
    while await Conversion(database, lambda: True).step(SESSION):
        pass
    assert await database.read("SELECT COUNT(*) FROM acp_events") == [(0,)]
    sql = f"SELECT CAST({column} AS BLOB) FROM acp_log WHERE seq = 2"
    assert await database.read(sql) == [(bad,)]
    assert [event for _, _, event in await shown(database)][::2] == [
        Text("m", "w1 "),
        Text("m", "w3 "),
    ]
