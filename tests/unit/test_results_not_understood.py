"""Turns whose result the SDK, or the worker, does not understand: they end, and the session goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykoclaw_acp.channel.frames import EventFrame, TurnEnded
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.worker.claude import ClaudeSession
from pykoclaw_acp.worker.database_calls import DatabaseCalls
from pykoclaw_acp.worker.outbox import Outbox
from pykoclaw_acp.worker.translate import Translator
from tests.waiting import eventually
from tests.workers import spec

INIT = {"type": "system", "subtype": "init", "session_id": "s", "uuid": "u", "model": "m"}
RESULT = {
    "type": "result", "subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False,
    "num_turns": 1, "session_id": "s", "uuid": "r", "result": "Fine.",
}  # fmt: skip


class RawCli:
    """What the CLI writes, and what the worker says of it."""

    def __init__(self, directory: Path) -> None:
        self.frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.told: list[Any] = []
        calls = cast("DatabaseCalls", None)
        self.claude = ClaudeSession(spec(directory), str(directory), cast("Outbox", self), calls)
        self.claude.client = cast("Any", SimpleNamespace(_query=self))

    def put(self, frame: object) -> None:
        self.told.append(frame)

    async def receive_messages(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            yield await self.frames.get()

    async def run(self, turn_id: str, *frames: dict[str, Any]) -> TurnEnded:
        """The end of a turn in which the CLI writes this."""
        self.claude.turns.expect(turn_id)
        for frame in (INIT, *frames):
            self.frames.put_nowait(dict(frame))
        return cast("TurnEnded", await eventually(lambda: self._end(turn_id), 10))

    def _end(self, turn_id: str) -> TurnEnded | None:
        ends = [one for one in self.told if isinstance(one, TurnEnded) and one.turn_id == turn_id]
        assert len(ends) < 2
        return ends[0] if ends else None

    @property
    def text(self) -> str:
        events = [one.event for one in self.told if isinstance(one, EventFrame)]
        return "".join(one.text for one in events if isinstance(one, Text))


@pytest.fixture
async def cli(tmp_path: Path) -> AsyncIterator[RawCli]:
    made = RawCli(tmp_path)
    reading = asyncio.ensure_future(made.claude.run())
    yield made
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled(), "it read until the end"


async def test_result_sdk_cannot_parse_fails_turn(cli: RawCli) -> None:
    broken = {name: value for name, value in RESULT.items() if name != "duration_api_ms"}
    ended = await cli.run("first", {**broken, "user_message_uuids": ["first"]})
    assert ended.error is not None
    assert "does not understand" in ended.error.message
    assert ended.claude_session_id == "s"
    assert not cli.claude.turns
    assert (await cli.run("second", RESULT)).stop_reason == "end_turn"
    assert cli.text == "Fine."


async def test_result_worker_cannot_use_fails_turn(
    cli: RawCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Translator, "end_turn", lambda *_: 1 / 0)
        ended = await cli.run("first", RESULT)
    assert ended.error is not None
    assert not cli.claude.turns
    assert (await cli.run("second", RESULT)).stop_reason == "end_turn"
