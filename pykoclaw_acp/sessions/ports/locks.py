"""The lock around a turn, which other programs may take as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class TurnLocks(Protocol):
    """The locks of all conversations."""

    async def acquire(
        self,
        conversation: str,
        waits: Callable[[str], None] = lambda _: None,
        *,
        patience: float = 0,
    ) -> None:
        """Take the lock, for which another program is waited for. The lock of a conversation is
        taken by one turn at a time. If this is cancelled, the lock is not held.

        `waits` is called with who has it, once, if it is not free after a moment.

        Raises WorkerFailed if that program does not release it in time: that of the settings, or
        `patience` (s) if it is longer.
        """

    def release(self, conversation: str) -> None:
        """Release the lock, if it is held."""

    def close(self) -> None:
        """Release all locks, and take none any more."""
