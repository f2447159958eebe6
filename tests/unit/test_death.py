"""What the death of Claude's process is put down to."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from pykoclaw_acp.system import memory
from pykoclaw_acp.worker import death
from pykoclaw_acp.worker.claude import ClaudeSession
from pykoclaw_acp.worker.current_turns import CurrentTurns
from pykoclaw_acp.worker.silence import Silence
from tests.waiting import eventually
from tests.workers import OPTIONS


class DyingClaude:
    stderr = ()
    turns = CurrentTurns()
    silence = Silence(lambda: None, lambda _: None)

    def __init__(self) -> None:
        self.dies = asyncio.Event()

    async def run(self) -> None:
        await self.dies.wait()

    async def ask(self) -> None:
        pass


@pytest.mark.parametrize(("looks", "kind"), [(0, "out_of_memory"), (3, "worker_lost")])
async def test_only_recent_lack_of_memory_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, looks: int, kind: str
) -> None:
    counted, seen = 5, 0

    def kills() -> int:
        nonlocal seen
        seen += counted == 6
        return counted

    monkeypatch.setattr(memory, "kills", kills)
    monkeypatch.setattr(death, "RENEW", 0.001 if looks else 1000.0)
    claude = DyingClaude()
    waiting = asyncio.ensure_future(death.wait(cast("ClaudeSession", claude), OPTIONS))
    await asyncio.sleep(0)  # it has begun
    counted = 6
    await eventually(lambda: seen >= looks)
    claude.dies.set()
    assert (await waiting).kind == kind
