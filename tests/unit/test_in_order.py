"""In which order a worker sends the prompts that its daemon gives."""

from __future__ import annotations

import asyncio

from pykoclaw_acp.channel.frames import Prompt
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.worker.in_order import InOrder
from tests.waiting import eventually


class Claude:
    """Notes what is sent; prompts wait for ever, unless they are stopped."""

    def __init__(self) -> None:
        self.waits: list[str] = []
        self.sent: list[str] = []
        self.orders = InOrder(self._prompt)

    async def _prompt(self, prompt: Prompt | Steer) -> None:
        self.waits.append(prompt.turn_id)
        waiting = asyncio.Event().wait()
        assert not await self.orders.unless_stopped(prompt.turn_id, waiting, False)
        self.sent.append(prompt.turn_id)


async def test_prompts_behind_one_that_waits_keep_order() -> None:
    claude = Claude()
    prompts = (
        Prompt(epoch=1, turn_id="first", content=[]),
        Steer(epoch=1, turn_id="second", content=[], said=[]),
    )
    given = [asyncio.create_task(claude.orders.carry_out(one)) for one in prompts]
    await eventually(lambda: claude.waits)
    await claude.orders.stop("another")
    assert claude.sent == []
    stopping = asyncio.create_task(claude.orders.stop("first"))
    await eventually(lambda: claude.waits == ["first", "second"])
    assert claude.sent == ["first"]
    await claude.orders.stop()
    await asyncio.gather(stopping, *given)
    assert claude.sent == ["first", "second"]
