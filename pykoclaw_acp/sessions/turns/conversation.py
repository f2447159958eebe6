"""What a turn needs of its session's conversation, which other programs continue as well."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.sessions.context import SessionContext


class TurnConversation(Protocol):
    """Kept from other programs while a turn runs; OtherPrograms says more."""

    @property
    def context(self) -> SessionContext:
        """Claude's memory of it."""

    async def before_prompt(self, *, patient: bool = False) -> None:
        """Lock it, and take in what others did. `patient`: nobody would send the prompt again, so
        that it waits longer for the lock.
        """

    async def before_early_start(self) -> bool:
        """Whether a worker may be started without a prompt."""

    async def has_prompt(self, turn_id: str) -> bool:
        """Whether Claude's transcript has the prompt of this turn."""

    def unlock(self) -> None:
        """Release it for others."""
