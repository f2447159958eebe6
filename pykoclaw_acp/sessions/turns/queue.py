"""The turns of a session: one runs, the others wait, in the order of their prompts."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import InvalidParams, Overloaded
from pykoclaw_acp.model.turns import STARTED, Turn

MOST_WAITING: Final = 100  # prompts of a session
MOST_TEXT: Final = 32 * 1024 * 1024  # characters of them together
MOST_WAITING_ALL: Final = 2000  # prompts of all sessions
MOST_TEXT_ALL: Final = 128 * 1024 * 1024  # characters of those
STOP: Final = (
    "in your editor, or with `pykoclaw-acp workers stop SESSION`, which ends the running turn, too."
    " Then send it again."
)


def require_possible(turn: Turn) -> None:
    """Raises InvalidParams for a prompt that no session has room for, however little waits."""
    if turn.length > MOST_TEXT:
        raise InvalidParams(
            f"The prompt has {turn.length:,} characters, and none may have more than {MOST_TEXT:,}. Claude was not "
            "given it. Shorten it, or put the text into a file and name that file in the prompt."
        )


class AllWaiting:
    """Counts the prompts that wait in all sessions together, with those that go into running turns."""

    def __init__(self) -> None:
        self._lengths: dict[Turn, int] = {}
        self._length = 0

    def require_room(self, turn: Turn) -> None:
        """Raises Overloaded if there is no room for this prompt."""
        if len(self._lengths) >= MOST_WAITING_ALL or self._length + turn.length > MOST_TEXT_ALL:
            raise Overloaded(
                f"{len(self._lengths):,} prompts of all sessions wait already, with {self._length:,} characters. Wait "
                "until some of them have ended, or stop them: in your editor, or all turns of all"
                " sessions with `pykoclaw-acp workers stop`. Then send it again.",
                ErrorKind.TOO_MANY_PROMPTS,
            )

    def add(self, turn: Turn) -> None:
        """Count a prompt that waits."""
        self._lengths[turn] = turn.length
        self._length += self._lengths[turn]

    def remove(self, turn: Turn) -> None:
        """Count off a prompt that waits no more; does nothing if that was done."""
        self._length -= self._lengths.pop(turn, 0)


class TurnQueue:
    """The turns of one session, in order."""

    def __init__(self, all_waiting: AllWaiting) -> None:
        self.current: Turn | None = None
        self.steered: list[Turn] = []
        """Prompts that were given to the turn that runs, or to one that has ended since."""
        self.ending: dict[str, Turn] = {}
        """Turns whose end waits for its commit, by id."""
        self._holds = 0
        self._unheld = asyncio.Event()
        self._unheld.set()
        self._waiting: deque[Turn] = deque()
        self._all_waiting = all_waiting

    @property
    def turns(self) -> list[Turn]:
        """Turns that run, wait, or have ended without the journal knowing it yet."""
        given = [*self.steered, *self._running()]
        return list(dict.fromkeys([*given, *self._waiting, *self.ending.values()]))

    @property
    def given(self) -> list[Turn]:
        """Turns that a worker has, or may have, in order."""
        given = [*self._running(), *self.steered]
        return [turn for turn in dict.fromkeys(given) if turn.state in STARTED]

    @property
    def uses_worker(self) -> bool:
        """Whether a worker has a turn that has not ended, or is about to be given one."""
        return any(one and not one.ended.done() for one in (self.current, *self.steered))

    def require_room(self, turn: Turn) -> None:
        """Raises Overloaded if there is no room for this prompt now, InvalidParams if there never is."""
        require_possible(turn)
        waiting = [*self._waiting, *(one for one in self.steered if not one.ended.done())]
        if len(waiting) >= MOST_WAITING:
            raise Overloaded(
                f"{MOST_WAITING} prompts of this session wait already. Wait until one of them has"
                f" ended, or stop them: {STOP}",
                ErrorKind.TOO_MANY_PROMPTS,
            )
        if sum(one.length for one in waiting) + turn.length > MOST_TEXT:
            raise Overloaded(
                f"The waiting prompts of this session, with this one, have more than {MOST_TEXT:,} characters. Wait "
                f"until one of them has ended, or stop them: {STOP}",
                ErrorKind.TOO_MANY_PROMPTS,
            )
        self._all_waiting.require_room(turn)

    def running(self, turn_id: str) -> Turn | None:
        """The turn of this id, if it is the one that runs, or was given to that."""
        for turn in (self.current, *self.steered):
            if turn is not None and turn.turn_id == turn_id:
                return turn
        return None

    def is_untaken(self, turn: Turn) -> bool:
        """Whether the prompt was given to another turn, which runs and has not taken it up."""
        return turn is not self.current and turn in self.steered and turn.taken_by is None

    def add(self, turn: Turn) -> None:
        """Let a turn wait until those before it have ended."""
        if turn.steers:  # the last response that comes before its end
            self._answer_with(turn, reversed([*self._running(), *self._waiting]))
        self._waiting.append(turn)
        self._all_waiting.add(turn)

    def go_on(self, turn: Turn, steered: Sequence[Turn] = ()) -> None:
        """Take over a turn that runs already, from another daemon, and those that were given to it."""
        self.current = turn
        for one in steered:
            self.steer(one)

    def steer(self, turn: Turn) -> None:
        """Let the turn that runs take this prompt up."""
        self.steered.append(turn)
        self._answer_with(turn, self._running())
        self._all_waiting.add(turn)
        turn.ended.add_done_callback(lambda _: self._all_waiting.remove(turn))

    def take_back(self, turn: Turn) -> None:
        """Undo `steer`, as the prompt could not be given to the turn that runs."""
        self.steered.remove(turn)
        self._all_waiting.remove(turn)
        for one in self.turns:
            if turn in one.answered_with:
                one.answered_with.remove(turn)
                turn.hosted = False

    def _running(self) -> list[Turn]:
        return [self.current] if self.current else []

    def _answer_with(self, turn: Turn, hosts: Iterable[Turn]) -> None:
        """Nobody waits for the end of an unattended prompt that steers, but its client for that of the
        first host of its own that has a response.
        """
        mine = (one for one in hosts if one.client_process == turn.client_process)
        host = next((one for one in mine if one.hosted or not one.unattended), None)
        if turn.unattended and host is not None:
            host.answered_with.append(turn)
            turn.hosted = True

    def remove(self, turn: Turn) -> bool:
        """Remove a turn that waits; returns whether it did."""
        if turn not in self._waiting:
            return False
        self._waiting.remove(turn)
        self._all_waiting.remove(turn)
        return True

    @property
    def held(self) -> bool:
        """Whether no turn may begin."""
        return self._holds > 0

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

    async def next(self) -> Turn | None:
        """The turn that follows the current one, which has ended: the next of those in `steered`,
        which the worker runs by itself, else one that waits, as soon as one may begin; None if none
        waits then.
        """
        if self.current in self.steered:
            self.steered.remove(self.current)
        self.current = None
        if self.steered:
            self.current = self.steered[0]
            return self.current
        while self._holds:  # another hold may have begun before this is woken
            await self._unheld.wait()
        if self._waiting:
            self.current = self._waiting.popleft()
            self._all_waiting.remove(self.current)
        return self.current
