"""Turns that Claude began by itself, when background work ended."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator


class BackgroundTurns:
    """Ids of those that run."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._none = asyncio.Event()
        self._none.set()

    def __bool__(self) -> bool:
        return bool(self._ids)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._ids))

    def __contains__(self, turn_id: str) -> bool:
        return turn_id in self._ids

    def begin(self, turn_ids: Collection[str]) -> None:
        """Note that these run."""
        self._ids.update(turn_ids)
        if self._ids:
            self._none.clear()

    def end(self, turn_id: str) -> None:
        """Note that this one does not run, or never did."""
        self._ids.discard(turn_id)
        if not self._ids:
            self._none.set()

    async def over(self) -> None:
        """Wait until none runs."""
        await self._none.wait()
