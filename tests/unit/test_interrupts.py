"""Interrupts of the CLI: what follows one waits until it was carried out."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.worker import interrupts
from pykoclaw_acp.worker.interrupts import Interrupts


class Claude:
    """The SDK's client of a CLI that answers when a test says so."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def interrupt(self) -> None:
        await self.answers.wait()


async def test_prompt_waits_until_interrupts_are_answered() -> None:
    made, claude = Interrupts(), Claude()
    await made.answered()
    sending = [asyncio.create_task(made.send(cast("ClaudeSDKClient", claude))) for _ in range(2)]
    await asyncio.sleep(0)
    waiting = asyncio.create_task(made.answered())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    claude.answers.set()
    await waiting
    await asyncio.gather(*sending)


async def test_silent_cli_holds_up_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "LIMIT", 0.01)
    made = Interrupts()
    sending = asyncio.create_task(made.send(cast("ClaudeSDKClient", Claude())))
    await asyncio.sleep(0)
    await made.answered()
    assert not sending.done()
    sending.cancel()
