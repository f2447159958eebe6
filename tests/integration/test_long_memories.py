"""What a rewind or a fork of a session with thousands of turns reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.model.branches import Branch, Memory
from pykoclaw_acp.model.imports import chain
from pykoclaw_acp.store import notes, remembered
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.readers import Rows
from pykoclaw_acp.store.session_journal import SessionJournal

TURNS: Final = 3000
NUMBERS: Final = (
    f"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {TURNS})"
)
ROWS: Final = (
    (
        "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, created_at, updated_at, last_seq)"
        f" VALUES ('one', 'acp-one', '/', 1, 1, {2 * TURNS})"
    ),
    (
        "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at, position, first_seq,"
        f" last_seq, claude_session_id, last_uuid) {NUMBERS} SELECT 'turn-' || n, 'one', 'client', '[]', 'done', n,"
        " n, 2 * n - 1, 2 * n, 'claude', 'end-' || n FROM c"
    ),
    (
        "INSERT INTO acp_transcript_turns (acp_session_id, prompt_uuid, claude_session_id, position, parent, own,"
        f" told) {NUMBERS} SELECT 'one', 'turn-' || n, 'claude', n, 'turn-' || (n - 1), 1, 1 FROM c"
    ),
)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(tmp_path / "pykoclaw.db")
    await opened.commit(Unit(tuple(Statement(sql) for sql in ROWS)))
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    ("head", "memory", "read"),
    [
        (TURNS, Memory(Branch("claude", f"end-{TURNS}")), [100]),
        (10, Memory(Branch("claude", "end-10"), lacks=20), [100, TURNS - 100]),
    ],
)
async def test_few_turns_are_read_to_find_memory(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    head: int,
    memory: Memory,
    read: list[int],
) -> None:
    """All if Claude has left the newest ones, each of which is looked at once."""
    begin = (
        "INSERT INTO acp_transcripts (acp_session_id, claude_session_id, path, size, mtime, inode, read_upto, state,"
        " head, related) VALUES ('one', 'claude', '/t', 1, '1', '1', 1, '{}', ?, 1)"
    )
    await database.commit(Unit((Statement(begin, (f"turn-{head}",)),)))
    counts, plans, chains = list[int](), list[str](), list[object]()
    read_with: Callable[..., Any] = database.read_with

    def watched(work: Callable[[Rows], Any], rows: Rows) -> Any:
        def query(sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
            found = rows(sql, parameters)
            plan = [str(one[3]) for one in rows(f"EXPLAIN QUERY PLAN {sql}", parameters)]
            if "told_by" in sql:
                plans.extend(plan)
            if "ORDER BY position" in sql:
                counts.append(len(found))
                assert any("acp_turns_position" in step for step in plan)
            return found

        return work(query)

    def followed(parents: Mapping[str, str | None], last: str | None) -> set[str]:
        chains.append(last)
        return chain(parents, last)

    monkeypatch.setattr(database, "read_with", lambda work: read_with(partial(watched, work)))
    monkeypatch.setattr(remembered, "chain", followed)
    record = await SessionJournal(database).find("one")
    assert record is not None
    record = replace(record, claude_session_id="claude")
    end, first = record.last_seq, f"turn-{TURNS}"
    assert await remembered.at(database, record, end, at_end=False, rewinding=first) == memory
    assert counts == read
    assert len(chains) == 1
    assert ("acp_transcript_turns_told_by" in " ".join(plans)) == (head == 10)


async def test_note_finds_its_turns_by_index(database: Database) -> None:
    """To withdraw it with them."""
    asked = notes.withdraw_rewound("one")
    plan = await database.read(f"EXPLAIN QUERY PLAN {asked.sql}", asked.parameters)
    assert any("acp_transcript_turns_told_by" in step for *_, step in plan), plan
