"""Prompts that the CLI ignores, since its transcript has their uuid.

It repeats such a prompt at once (`--replay-user-messages`), and says no more of it. Of one that it
takes up it says `init` first, whatever kind of prompt it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from claude_agent_sdk import Message, UserMessage

from pykoclaw_acp.channel.frames import TurnEnded
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.failures import TurnFailure

PATIENCE: Final = 5.0  # s in which anything may come of a prompt that was repeated
FAILURE: Final = TurnFailure(
    ErrorKind.RESTORED,
    "Claude did nothing: its transcript already has this prompt. This happens after the database was put back to an "
    "earlier state. To have the prompt carried out once more, send it again.",
)


def ended(epoch: int, turn_id: str, claude_session_id: str) -> TurnEnded:
    """The end of a turn whose prompt is ignored."""
    return TurnEnded(
        epoch=epoch,
        turn_id=turn_id,
        stop_reason=None,
        claude_session_id=claude_session_id,
        error=FAILURE,
    )


class IgnoredPrompts:
    """Notices prompts that are ignored. `waits`: whether a prompt was given to Claude and nothing has
    come of it; `end` is called when that stays so.
    """

    def __init__(self, waits: Callable[[str], bool], end: Callable[[str], None]) -> None:
        self._waits = waits
        self._end = end

    def follow(self, message: Message) -> None:
        """Look at the next message of the CLI."""
        if isinstance(message, UserMessage) and message.uuid and self._waits(message.uuid):
            asyncio.get_running_loop().call_later(PATIENCE, self._judge, message.uuid)

    def _judge(self, turn_id: str) -> None:
        if self._waits(turn_id):
            self._end(turn_id)
