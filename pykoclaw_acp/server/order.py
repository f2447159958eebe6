"""Calls on one session begin one after the other, in the order in which they came."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Line:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


class SessionOrder:
    """A fair lock per session, for as long as anybody holds it or waits for it."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    @contextlib.asynccontextmanager
    async def turn(self, session_id: str) -> AsyncIterator[None]:
        """Wait until those who came before have left."""
        line = self._lines.setdefault(session_id, _Line())
        line.length += 1
        try:
            async with line.lock:
                yield
        finally:
            line.length -= 1
            if line.length == 0:
                del self._lines[session_id]
