"""A Claude process that hangs over a prompt is told from one that waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from msgspec.structs import replace

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.worker import death, hanging
from pykoclaw_acp.worker.claude import ClaudeSession
from pykoclaw_acp.worker.current_turns import CurrentTurns
from pykoclaw_acp.worker.silence import Silence
from tests.workers import OPTIONS

MANY = 40
SILENT = 5  # questions without an answer, after which Claude is given up


class Claude:
    """Answers the questions of these numbers, and has a prompt to take up from this look on."""

    def __init__(self, answers: Callable[[int], bool], *, prompted_at: int = 0) -> None:
        self.asked = self.looks = 0
        self._answers = answers
        self._prompted_at = prompted_at

    def waits(self) -> bool:
        self.looks += 1
        return self.looks > self._prompted_at

    async def ask(self) -> None:
        self.asked += 1
        if not self._answers(self.asked):
            await asyncio.Event().wait()

    async def given_up(self, *servers: str) -> TurnFailure:
        given = tuple(McpServer(name=one) for one in servers)
        options = replace(OPTIONS, mcp_servers=given)
        return await asyncio.wait_for(hanging.wait(self.waits, self.ask, options), 60)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hanging, "PAUSE", 1 / 512)
    monkeypatch.setattr(hanging, "ANSWER_WAIT", 1 / 512)
    monkeypatch.setattr(hanging, "PATIENCE", SILENT / 256)


async def test_hanging_claude_is_abandoned_and_servers_named() -> None:
    claude = Claude(lambda number: False)
    failure = await claude.given_up("spam", "other")
    assert failure.kind == "worker_lost"
    assert "did not answer for" in failure.message
    assert failure.message.endswith("the client gave `spam`, `other`.")
    assert claude.asked == SILENT
    assert "MCP" not in (await Claude(lambda number: False).given_up()).message


async def test_claude_that_answers_may_wait_for_long() -> None:
    claude = Claude(lambda number: number <= MANY)
    await claude.given_up()
    assert claude.asked >= MANY + SILENT


async def test_claude_that_answers_now_and_then_goes_on() -> None:
    claude = Claude(lambda number: number <= MANY and number % (SILENT - 1) == 0)
    await claude.given_up()
    assert claude.asked >= MANY + SILENT


async def test_refusal_is_an_answer() -> None:
    def refuses(number: int) -> bool:
        if number <= MANY:
            raise ValueError("not now")
        return False

    claude = Claude(refuses)
    await claude.given_up()
    assert claude.asked == MANY + SILENT


async def test_without_a_prompt_nothing_is_asked() -> None:
    claude = Claude(lambda number: False, prompted_at=MANY)
    await claude.given_up()
    assert (claude.looks, claude.asked) == (MANY + SILENT, SILENT)


async def test_turn_is_not_awaited_whose_claude_hangs() -> None:
    class Session(Claude):
        turns = CurrentTurns()
        silence = Silence(lambda: None, lambda _: None)

        async def run(self) -> None:
            await asyncio.Event().wait()

    session = Session(lambda number: False)
    session.turns.expect("turn")
    async with asyncio.timeout(60):
        failure = await death.wait(cast("ClaudeSession", session), OPTIONS)
    assert failure.kind == "worker_lost"
    assert "hung" in failure.message
    assert session.asked == SILENT
