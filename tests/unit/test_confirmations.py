"""Confirmed places are written behind, in whatever order they and the database's troubles come."""

from __future__ import annotations

from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.cursors import Cursor, CursorChange, Reader
from pykoclaw_acp.sessions.confirmations import Confirmations
from tests.twins.cursors import MemoryCursorStore

READER = Reader("Zed", "instance", "front")


async def test_a_confirmed_place_never_moves_back() -> None:
    store = MemoryCursorStore()
    old = Cursor("instance", "front", 3)
    await store.change_cursors([CursorChange("s", "Zed", "instance", "front", old, whole=True)])
    confirmations = Confirmations(store)
    confirmations.note("s", READER, 9)
    confirmations.note("s", READER, 5)
    assert await confirmations.claim("s", 20, READER, ()) == 9, "not written yet"
    store.database.condition.failed(DatabaseState.LOCKED, "Another program keeps it locked.")
    await confirmations.written(0.01)
    assert await store.cursors("s", "Zed") == [old]
    confirmations.note("s", READER, 4)
    assert await confirmations.claim("s", 20, READER, ()) == 9, "while it is written"
    store.database.condition.recovered()
    await confirmations.flush()
    assert await store.cursors("s", "Zed") == [Cursor("instance", "front", 9)]


async def test_cursor_beyond_log_end_counts_as_none() -> None:
    store = MemoryCursorStore()
    confirmations = Confirmations(store)
    confirmations.note("s", READER, 9)
    await confirmations.flush()
    assert await confirmations.claim("s", 8, READER, ()) is None, (
        "the database was restored from a copy"
    )
    await confirmations.flush()
    assert await store.cursors("s", "Zed") == []
