"""Prompts in the order in which the daemon gives them: each is sent after those before it, while other
frames go on being read.

A prompt may wait for MCP servers, up to 30 s for each that `/mcp reconnect` names, until its turn is
interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import structlog
from claude_agent_sdk import ClaudeSDKError

from pykoclaw_acp.channel.frames import Prompt
from pykoclaw_acp.channel.steering import Steer

T = TypeVar("T")

log: Final = structlog.get_logger()


class InOrder:
    """Prompts that are to be sent, by `prompt`."""

    def __init__(self, prompt: Callable[[Prompt | Steer], Awaitable[None]]) -> None:
        self._prompt = prompt
        self._order = asyncio.Lock()  # first come, first served
        self._stops: dict[str, asyncio.Event] = {}
        self._frames: dict[str, Prompt | Steer] = {}

    def __bool__(self) -> bool:
        """Whether a prompt is to be sent."""
        return bool(self._frames)

    @property
    def prompts(self) -> list[str]:
        """Turns whose prompts are to be sent, in their order."""
        return [one.turn_id for one in self._frames.values() if isinstance(one, Prompt)]

    @property
    def steers(self) -> list[str]:
        """Turns of the steering prompts that are to be sent."""
        return [one.turn_id for one in self._frames.values() if isinstance(one, Steer)]

    async def carry_out(self, frame: Prompt | Steer) -> None:
        """Send the prompt, after those before it."""
        self._stops[frame.turn_id] = asyncio.Event()
        self._frames[frame.turn_id] = frame
        try:
            async with self._order:
                await self._prompt(frame)
        except ClaudeSDKError as error:
            log.warning(
                "The prompt did not reach Claude", action="prompt_not_sent", error=str(error)
            )
        finally:
            self._stops.pop(frame.turn_id, None)
            self._frames.pop(frame.turn_id, None)

    async def unless_stopped(self, turn_id: str, wait: Coroutine[Any, Any, T], otherwise: T) -> T:
        """What the turn's prompt waits for; `otherwise` as soon as the turn is interrupted."""
        stop = self._stops.get(turn_id, asyncio.Event())
        waiting = asyncio.create_task(wait, name="prepare-prompt")
        stopping = asyncio.create_task(stop.wait(), name="prompt-stopped")
        try:
            await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else otherwise
        finally:
            waiting.cancel()
            stopping.cancel()

    async def stop(self, turn_id: str | None = None) -> None:
        """Let the prompt of this turn, or each prompt, wait no more; return when it was sent."""
        if found := [one for name, one in self._stops.items() if turn_id in (None, name)]:
            for one in found:
                one.set()
            async with self._order:
                pass
