"""Turns that Claude began by itself, when background work ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pykoclaw_acp.channel.frames import Interrupt
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.state import SessionState


@dataclass(slots=True)
class _Running:
    adopted: int | None = None  # when it began under an earlier daemon (ms, own clock)
    stopped: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class BackgroundTurns:
    """Ids of those that run in one session."""

    def __init__(self, state: SessionState, workers: Workers) -> None:
        self._state = state
        self._workers = workers
        self._running: dict[str, _Running] = {}
        self._none = asyncio.Event()
        self._none.set()

    def __bool__(self) -> bool:
        return bool(self._running)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._running))

    def __contains__(self, turn_id: str) -> bool:
        return turn_id in self._running

    def begun(self, until: int | None) -> list[str]:
        """Turns that run; with `until` (ms, own clock) those that had begun by then, under an
        earlier daemon.
        """
        if until is None:
            return list(self._running)
        adopted = ((turn_id, one.adopted) for turn_id, one in self._running.items())
        return [turn_id for turn_id, at in adopted if at is not None and at <= until]

    @property
    def stopped(self) -> list[str]:
        """Turns that are to end, and have not yet."""
        return [turn_id for turn_id, one in self._running.items() if one.stopped]

    def begin(self, turn_id: str) -> None:
        """Note that this one runs."""
        self._running.setdefault(turn_id, _Running())
        self._none.clear()

    def adopt(self, turns: Mapping[str, int]) -> None:
        """Note that these run, and when they began under an earlier daemon (ms, own clock)."""
        for turn_id, began in turns.items():
            self._running.setdefault(turn_id, _Running(began))
        if self._running:
            self._none.clear()

    def end(self, turn_id: str) -> None:
        """Note that this one does not run, or never did."""
        if (one := self._running.pop(turn_id, None)) is not None:
            one.ended.set()
        if not self._running:
            self._none.set()

    async def over(self) -> None:
        """Wait until none runs."""
        await self._none.wait()

    async def stop(self, turn_id: str, why: str = "") -> None:
        """Ask the worker to stop one. Returns when the worker was told, or the turn has ended. `why`: as in
        the frame.
        """
        if (one := self._running.get(turn_id)) is None:
            return
        one.stopped = True
        frame = Interrupt(epoch=self._state.epoch, turn_id=turn_id, why=why)
        try:
            await self._workers.send(self._state.id, frame)
        except ConnectionError:
            await one.ended.wait()
