"""Prompts that the CLI ignores end, and others do not."""

from __future__ import annotations

import asyncio

import pytest
from claude_agent_sdk import UserMessage

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.worker import ignored
from pykoclaw_acp.worker.ignored import IgnoredPrompts
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignored, "PATIENCE", 0.01)


async def test_prompt_that_is_repeated_and_begins_nothing_ends() -> None:
    ended: list[str] = []
    prompts = IgnoredPrompts(lambda turn_id: turn_id == "given", ended.append)
    prompts.follow(UserMessage("other", uuid="other"))
    prompts.follow(UserMessage("hello", uuid="given"))
    await eventually(lambda: ended)
    assert ended == ["given"]


async def test_prompt_that_something_comes_of_goes_on() -> None:
    ended: list[str] = []
    waiting = {"given"}
    prompts = IgnoredPrompts(waiting.__contains__, ended.append)
    prompts.follow(UserMessage("hello", uuid="given"))
    waiting.clear()
    loop = asyncio.get_running_loop()
    later = loop.create_future()
    loop.call_later(2 * ignored.PATIENCE, later.set_result, None)
    await later
    assert ended == []


def test_its_end_says_why() -> None:
    end = ignored.ended(3, "given", "claude")
    assert end.error is not None
    assert (end.epoch, end.turn_id, end.stop_reason) == (3, "given", None)
    assert end.error.kind == ErrorKind.RESTORED
    assert "send it again" in end.error.message
