"""Calls on one session start in the order of their arrival."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class SessionOrder:
    """A fair lock for each session in use."""

    def __init__(self) -> None:
        self._lines: dict[str, _Queue] = {}

    @contextlib.asynccontextmanager
    async def turn(self, session_id: str) -> AsyncIterator[None]:
        """Hold the session's lock."""
        line = self._lines.setdefault(session_id, _Queue())
        line.length += 1
        try:
            async with line.lock:
                yield
        finally:
            line.length -= 1
            if line.length == 0:
                del self._lines[session_id]
