"""A message of very many pieces is folded in parts, so that no transaction is long."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.model.events import Text
from pykoclaw_acp.store import events, folding, logs
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.sqlite import sqlite3

SESSION = "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa"


async def test_long_message_folds_in_parts_and_reads_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "PIECES", 5)
    real, folded = folding.fold_range, list[int]()

    def counting(connection: sqlite3.Connection, log_key: int, begin: int, end: int) -> None:
        folded.append(end - begin + 1)
        real(connection, log_key, begin, end)

    monkeypatch.setattr(folding, "fold_range", counting)
    made = Statement(
        "INSERT INTO acp_sessions (acp_session_id, conversation_name, created_at, updated_at) VALUES (?, 'x', 1, 1)",
        (SESSION,),
    )
    path = tmp_path / "pykoclaw.db"
    for begin in (0, 12, 24):  # under a daemon each
        database = await Database.open(path)
        if begin == 0:
            await database.commit(Unit(statements=(made,)))
        for at in range(begin, begin + 12):
            await database.commit(Unit(events=events.rows(SESSION, None, [Text("m", f"{at} ")])))
        await database.close()
    database = await Database.open(path)
    try:
        for after in range(36):
            said = await events.read(database, SESSION, after, 100)
            text = "".join(one.event.text for one in said if isinstance(one.event, Text))
            assert text == "".join(f"{at} " for at in range(after, 36))
    finally:
        await database.close()
    assert len(folded) >= 6
    assert max(folded) == 5
