"""The text of an answer, from the updates of its turn, for commands and other programs."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.link.meta_keys import NOTE

BETWEEN: Final = "\n\n"  # two messages of Claude in one turn


class WordsOfClaude:
    """What Claude says, piece by piece, with an empty line between messages."""

    def __init__(self) -> None:
        self._message: str | None = None

    def piece(self, update: dict[str, Any]) -> str:
        """The next piece; empty for an update that has none, and for a note of the daemon."""
        if update.get("sessionUpdate") != "agent_message_chunk" or note(update) is not None:
            return ""
        text: str = update["content"].get("text", "")
        if not text:
            return ""
        known, self._message = self._message, update.get("messageId")
        return text if known in (None, self._message) else BETWEEN + text


def note(update: dict[str, Any]) -> str | None:
    """Whether an update is a message of the daemon: `note`, or `failure` of the turn."""
    found: str | None = (update.get("_meta") or {}).get(NOTE)
    return found
