"""The turns of a session: one runs, the others wait, in the order of their prompts."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import structlog

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import Overloaded
from pykoclaw_acp.logging import share
from pykoclaw_acp.model.turns import STARTED, Turn

MOST_WAITING: Final = 100  # prompts of a session
MOST_TEXT: Final = 32 * 1024 * 1024  # characters of them together
MOST_WAITING_ALL: Final = 2000  # prompts of all sessions
MOST_TEXT_ALL: Final = 128 * 1024 * 1024  # characters of those


class AllWaiting:
    """Counts the prompts that wait in all sessions together."""

    def __init__(self) -> None:
        self._lengths: dict[Turn, int] = {}
        self._length = 0

    def require_room(self, turn: Turn) -> None:
        """Raises Overloaded if there is no room for this prompt."""
        if len(self._lengths) >= MOST_WAITING_ALL or self._length + turn.length > MOST_TEXT_ALL:
            raise Overloaded(
                f"{len(self._lengths):,} prompts of all sessions wait already, with {self._length:,} characters. Wait "
                "until some of them have ended, or stop them with session/cancel; then send it again.",
                ErrorKind.TOO_MANY_PROMPTS,
            )

    def add(self, turn: Turn) -> None:
        """Count a prompt that waits."""
        self._lengths[turn] = turn.length
        self._length += self._lengths[turn]

    def remove(self, turn: Turn) -> None:
        """Count off a prompt that waits no more."""
        self._length -= self._lengths.pop(turn)


class TurnQueue:
    """Calls `run` for one turn after the other, and `rest` when none is left."""

    def __init__(
        self,
        session_id: str,
        run: Callable[[Turn], Awaitable[None]],
        rest: Callable[[], None],
        all_waiting: AllWaiting,
        follow: Callable[[Turn], object] = lambda _: None,
    ) -> None:
        """`follow`: called with a turn with which the worker goes on by itself."""
        self.current: Turn | None = None
        self.steered: list[Turn] = []
        """Those that were given to the turn that runs, or to one that has ended since."""
        self._follow = follow
        self._session_id = session_id
        self._run = run
        self._rest = rest
        self._holds = 0
        self._unheld = asyncio.Event()
        self._unheld.set()
        self._waiting: deque[Turn] = deque()
        self._all_waiting = all_waiting
        self._runner: asyncio.Task[None] | None = None
        self._suspended = False

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits."""
        return self._runner is not None

    @property
    def turns(self) -> list[Turn]:
        """Those that run or wait."""
        given = [*self.steered, *([self.current] if self.current else [])]
        return [*dict.fromkeys(given), *self._waiting]

    @property
    def given(self) -> list[Turn]:
        """Those that a worker has, or may have, in order."""
        given = [*([self.current] if self.current else []), *self.steered]
        return [turn for turn in dict.fromkeys(given) if turn.state in STARTED]

    def require_room(self, turn: Turn) -> None:
        """Raises Overloaded if there is no room for this prompt."""
        if len(self._waiting) >= MOST_WAITING:
            raise Overloaded(
                f"{MOST_WAITING} prompts of this session wait already. Wait until one of them has ended, or stop them "
                "with session/cancel; then send it again.",
                ErrorKind.TOO_MANY_PROMPTS,
            )
        if sum(one.length for one in self._waiting) + turn.length > MOST_TEXT:
            raise Overloaded(
                f"The prompts of this session that wait have {MOST_TEXT:,} characters. Wait until one of them has "
                "ended, or stop them with session/cancel; then send it again.",
                ErrorKind.TOO_MANY_PROMPTS,
            )
        self._all_waiting.require_room(turn)

    def running(self, turn_id: str) -> Turn | None:
        """The turn of this id, if it is the one that runs, or was given to that."""
        for turn in (self.current, *self.steered):
            if turn is not None and turn.turn_id == turn_id:
                return turn
        return None

    def add(self, turn: Turn) -> None:
        """Run a turn when those before it have ended."""
        self._waiting.append(turn)
        self._all_waiting.add(turn)
        if self._runner is None and not self._suspended:
            self._start(None)

    def go_on(self, turn: Turn, steered: Sequence[Turn] = ()) -> None:
        """Take over a turn that runs already, from another daemon, and those that were given to it."""
        self.current = turn
        self.steered.extend(steered)
        self._start(turn)

    def remove(self, turn: Turn) -> bool:
        """Remove a turn that waits; returns whether it did."""
        if turn not in self._waiting:
            return False
        self._waiting.remove(turn)
        self._all_waiting.remove(turn)
        return True

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Begin no turn meanwhile; the one that runs goes on."""
        self._holds += 1
        self._unheld.clear()
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds:
                self._unheld.set()

    async def idle(self) -> None:
        """Wait until no turn runs or waits."""
        while self._runner is not None:
            await asyncio.wait([self._runner])

    async def suspend(self) -> None:
        """Leave the turns as they are, for the next daemon, and begin none any more."""
        self._suspended = True
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait([self._runner])

    def _start(self, running: Turn | None) -> None:
        self._runner = asyncio.get_running_loop().create_task(
            self._run_all(running), name="run-turns"
        )

    async def _run_all(self, running: Turn | None) -> None:
        share.current.set(None)  # what a turn says is not its client's share of the log
        try:
            if running is not None:
                await running.over()
                await self._go_on()
            while await self._wait_to_begin():
                turn = self.current = self._waiting.popleft()
                self._all_waiting.remove(turn)
                with structlog.contextvars.bound_contextvars(
                    session=self._session_id, turn=turn.turn_id
                ):
                    await self._run(turn)
                await self._go_on()
        finally:
            self.current = None
            self._runner = None
        self._rest()

    async def _go_on(self) -> None:
        """Wait for the turns that were given to the one that has ended: the worker runs those that
        it had not taken up.
        """
        while self.steered:
            turn = self.current = self.steered[0]
            if not turn.ended.done():
                self._follow(turn)
                await turn.over()
            self.steered.remove(turn)
        self.current = None

    async def _wait_to_begin(self) -> bool:
        """Wait until a turn may begin; returns whether one waits."""
        await self._unheld.wait()
        return bool(self._waiting)
