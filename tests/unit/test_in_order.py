"""In which order a worker carries out what its daemon gives."""

from __future__ import annotations

import asyncio

from pykoclaw_acp.channel.choosing import SetMode
from pykoclaw_acp.channel.frames import Prompt
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.worker.in_order import InOrder, Setting
from tests.waiting import eventually


class Claude:
    """Notes what is carried out; prompts wait for ever, unless they are stopped."""

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.done: list[str] = []
        self.orders = InOrder(self._prompt, self._choose)

    async def _prompt(self, prompt: Prompt | Steer) -> None:
        self.waits.append(prompt.turn_id)
        waiting = asyncio.Event().wait()
        assert not await self.orders.unless_stopped(prompt.turn_id, waiting, False)
        self.done.append(prompt.turn_id)

    def _choose(self, choice: Setting) -> None:
        assert isinstance(choice, SetMode)
        self.done.append(choice.mode)


async def test_frames_behind_prompt_keep_their_order() -> None:
    claude = Claude()
    frames = (
        Prompt(epoch=1, turn_id="first", content=[]),
        SetMode(epoch=1, mode="plan"),
        Steer(epoch=1, turn_id="second", content=[], said=[]),
        SetMode(epoch=1, mode="default"),
    )
    given = [asyncio.create_task(claude.orders.carry_out(one)) for one in frames]
    await eventually(lambda: claude.waits)
    await claude.orders.stop("another")
    assert claude.done == []
    stopping = asyncio.create_task(claude.orders.stop("first"))
    await eventually(lambda: claude.waits == ["first", "second"])
    assert claude.done == ["first", "plan"]
    await claude.orders.stop()
    await asyncio.gather(stopping, *given)
    assert claude.done == ["first", "plan", "second", "default"]
