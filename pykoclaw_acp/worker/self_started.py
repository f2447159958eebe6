"""Turns that Claude starts by itself, as after the end of a background task: set off from what comes
before and after, with a line that says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from claude_agent_sdk import AssistantMessage, Message, StreamEvent, UserMessage

from pykoclaw_acp.model.events import Event, Text
from pykoclaw_acp.translation import reasons

MOST_ENDED: Final = 20  # tasks that a line names


class SelfStarted:
    """What has ended that Claude has not heard of, and which turn was explained."""

    def __init__(self) -> None:
        # Calls of tasks, and what is said of their ends: those of which Claude has not heard, and
        # those of which it hears with the request that runs
        self._ended: dict[str, str] = {}
        self._heard: dict[str, str] = {}
        self._repeated: str | None = None  # the prompt that the CLI took up last
        self._begun: str | None = None  # the turn in which Claude spoke last
        self._explained: str | None = None
        self._said: str | None = None  # the message that Claude said last

    def task_ended(self, call: str, words: str) -> None:
        """The task of this call has ended, of which Claude will hear with its next request."""
        self._ended.pop(call, None)
        self._ended[call] = words
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def requested(self) -> None:
        """The CLI sends a request, in whatever turn: Claude hears of what has ended."""
        self._heard |= self._ended
        self._ended.clear()

    def begin(
        self, message: Message, turn: str | None, prompted: str | None, watched: Sequence[str] = ()
    ) -> list[Event]:
        """What is said before the first message of a turn that Claude has started by itself. One
        may run before a prompt that it has been given, under the name of that prompt's turn.
        `watched`: of which it may have had news.
        """
        if isinstance(message, UserMessage) and message.uuid == prompted:
            self._repeated = prompted
        if turn is None or not _speaks(message):
            return []
        ended, self._heard = self._heard, {}
        first, self._begun = self._begun != turn, turn
        before = first and bool(ended) and self._repeated != prompted
        if not (turn != prompted or before) or self._explained == turn:
            return []
        self._explained, self._said = turn, None
        return reasons.line(turn, ended, watched)

    def follow(self, event: Event) -> None:
        """The next event of the conversation."""
        if isinstance(event, Text) and not event.note:
            self._said = event.message_id

    def end(self, turn: str) -> list[Event]:
        """What separates the text of a turn from what follows, if Claude had started it."""
        if self._explained != turn or self._said is None:
            return []
        self._explained = None
        return [Text(self._said, "\n\n")]


def _speaks(message: Message) -> bool:
    """Whether it begins a message of the main agent."""
    if isinstance(message, StreamEvent):
        return message.parent_tool_use_id is None and message.event.get("type") == "message_start"
    return isinstance(message, AssistantMessage) and message.parent_tool_use_id is None
