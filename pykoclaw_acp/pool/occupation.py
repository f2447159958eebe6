"""What keeps a worker from being stopped to make room for another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykoclaw_acp.model.work import SETTLED


class Occupation:
    """A turn that one worker was given, work in the background, and the time after the end of both
    in which Claude may begin a turn about that work. `changed` is called when one of them ends.

    `busy`: it was given a turn, or is about to be.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.busy = True
        self.background = 0  # tasks, and turns that Claude has begun by itself
        self._changed = changed
        self._work_ended = False
        self._settling: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return self.busy or self.background > 0 or self._settling is not None

    def release(self) -> None:
        """Note that the worker has no turn that it was given."""
        self.busy = False
        self._settle()

    def note_background(self, running: int) -> None:
        """Note how much goes on in the background from now on."""
        self.background, self._work_ended = running, not running
        self._settle()

    def _settle(self) -> None:
        if self._work_ended and not self.busy:
            self._work_ended = False
            self.close()
            loop = asyncio.get_running_loop()
            self._settling = loop.call_later(SETTLED, self._settled)
        self._changed()

    def _settled(self) -> None:
        self._settling = None
        self._changed()

    def close(self) -> None:
        """Leave Claude no more time to begin a turn about work that has ended."""
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
