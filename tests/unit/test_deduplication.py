"""Prompts that are sent again, on a stand-in for the journal."""

from __future__ import annotations

from unittest.mock import AsyncMock, Mock

import pytest

from pykoclaw_acp.model.turns import PromptKeys, Turn
from pykoclaw_acp.sessions.turns.deduplication import Deduplication

KEYS = PromptKeys(fingerprint="print")


async def test_turn_is_answered_during_search() -> None:
    journal = AsyncMock()
    deduplication = Deduplication(Mock(), journal, Mock(turns=[]), window=60.0)
    deduplication.note_prompt()
    rewound, other = Turn("a", "one", [], KEYS), Turn("b", "one", [], KEYS)
    deduplication.expect(rewound)
    deduplication.expect(other)

    async def is_rewound(turn_id: str) -> bool:
        deduplication.add_call(other)
        await deduplication.mark_answered(other)
        return turn_id == "a"

    journal.is_rewound = is_rewound
    assert await deduplication.find(KEYS, "") is None


@pytest.mark.parametrize("request_key", [None, "limit:x"])
async def test_task_run_joins_no_other_turn(request_key: str | None) -> None:
    """Of the daemon before: the answer to a parked question, or going on after a usage limit."""
    journal = AsyncMock()
    journal.ended_turns.return_value = []
    journal.is_rewound.return_value = False
    deduplication = Deduplication(Mock(), journal, Mock(turns=[]), window=60.0)
    deduplication.expect(Turn("a", "one", [], PromptKeys(request=request_key), unattended=True))
    assert await deduplication.find(PromptKeys(request="task:run"), "") is None
