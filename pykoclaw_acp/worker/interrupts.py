"""Interrupts that the CLI has not answered: one stops whatever runs when it is carried out, so no prompt
may follow it until then.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from claude_agent_sdk import ClaudeSDKClient

LIMIT: Final = 5.0  # s that a prompt waits at most; the CLI takes some 30 ms


class Interrupts:
    """Interrupts of one CLI."""

    def __init__(self) -> None:
        self._open = 0
        self._none = asyncio.Event()
        self._none.set()

    async def send(self, client: ClaudeSDKClient) -> bool:
        """Interrupt what runs; whether the CLI has answered."""
        self._open += 1
        self._none.clear()
        try:
            await client.interrupt()
            return True
        except Exception:  # noqa: BLE001  the SDK's own time-out is a bare one
            return False
        finally:
            self._open -= 1
            if not self._open:
                self._none.set()

    async def answered(self) -> None:
        """Wait until the CLI has answered each, or does not."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMIT):
                await self._none.wait()
