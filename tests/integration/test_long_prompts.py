"""Long prompts of a client: one at a time is in memory, and what is not long passes it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.events import Event, ModeChanged
from pykoclaw_acp.server import reading
from pykoclaw_acp.store.hinting_journal import HintingJournal
from tests.integration.linked import front, new, prompts, words
from tests.integration.rig import rig
from tests.waiting import eventually

LONG = "say 1" + " " * reading.MAX_OTHER


@pytest.fixture
def goes_on(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Until it is set, the choice of a mode waits for the database."""
    event, append = asyncio.Event(), HintingJournal.append

    async def slowly(
        journal: HintingJournal, session_id: str, events: Sequence[Event], **more: Any
    ) -> list[int]:
        if any(isinstance(one, ModeChanged) for one in events):
            await event.wait()
        return await append(journal, session_id, events, **more)

    monkeypatch.setattr(HintingJournal, "append", slowly)
    return event


async def test_waiting_long_prompt_holds_up_no_session(
    tmp_path: Path, goes_on: asyncio.Event
) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        busy, other = await new(one, 1), await new(one, 2)
        one.call(3, "session/set_config_option", sessionId=busy, configId="mode", value="plan")
        one.call(4, "session/prompt", **words(busy, LONG))
        try:
            await one.result(5, "session/prompt", **words(other, "say 1"))
            assert prompts(r) == ["say 1"]
        finally:
            goes_on.set()
        assert "result" in await one.answer(4)
        assert prompts(r) == ["say 1", LONG]


async def test_second_long_prompt_is_read_later(
    tmp_path: Path, goes_on: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, lengths = reading.read, list[int]()

    async def counted(line: bytearray, *more: object) -> reading.ReadMessage:
        lengths.append(len(line))
        return await read(line, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "read", counted)
    async with rig(tmp_path) as r, front(r) as one, front(r, "front-2") as other:
        busy, second = await new(one, 1), await new(one, 2)
        one.call(3, "session/set_config_option", sessionId=busy, configId="mode", value="plan")
        one.call(4, "session/prompt", **words(busy, LONG))
        one.call(5, "session/prompt", **words(second, LONG))
        try:
            await eventually(one.incoming.empty)
            await new(other)  # enough turns of the loop to read it
            assert sum(length > reading.MAX_OTHER for length in lengths) == 1
        finally:
            goes_on.set()
        assert "result" in await one.answer(4)
        assert "result" in await one.answer(5)
