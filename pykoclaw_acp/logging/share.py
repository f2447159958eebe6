"""Rate limit of log lines that one client causes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import structlog
from structlog.typing import EventDict, WrappedLogger

BURST: Final = 100  # lines of one client at once
RATE: Final = 5.0  # lines of one client per second, after those
BURST_OF_ALL: Final = 1000
RATE_OF_ALL: Final = 50.0
ERRORS: Final = frozenset({"error", "exception", "critical"})

log: Final = structlog.get_logger()


class Bucket:
    """Token bucket: `burst` at once, then `rate` per second."""

    def __init__(
        self, burst: int, rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = burst
        self._rate = rate
        self._clock = clock
        self._left = float(burst)
        self._since = clock()

    def take(self) -> bool:
        """Take a token, if there is one."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._since) * self._rate)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class LogShare:
    """Rate limits of one client. Errors have their own, so that other lines cannot
    suppress them.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, everybody: Bucket | None = None
    ) -> None:
        self.left_out = 0
        self._lines = Bucket(BURST, RATE, clock)
        self._errors = Bucket(BURST, RATE, clock)
        self._everybody = everybody or _everybody

    def take(self, level: str) -> bool:
        """Whether a line of this level may be written; the next one that is says how many were
        dropped.
        """
        taken = (
            self._errors.take()
            if level in ERRORS
            else self._lines.take() and self._everybody.take()
        )
        if not taken:
            self.left_out += 1
        elif self.left_out:
            self.tell()
        return taken

    def tell(self) -> None:
        """Log how many lines were dropped, if any."""
        count, self.left_out = self.left_out, 0
        if count:
            token = current.set(None)
            log.warning(
                "Log lines that a client has caused were left out",
                action="log_lines_left_out",
                lines=count,
            )
            current.reset(token)


def ration(_logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """structlog processor: drop the line if its client has used up its rate limit."""
    share = current.get()
    if share is not None and not share.take(method):
        raise structlog.DropEvent
    return event


_everybody: Final = Bucket(BURST_OF_ALL, RATE_OF_ALL)
current: Final[ContextVar[LogShare | None]] = ContextVar("log_share", default=None)
"""The share of the client for which this task works; None: for none."""
