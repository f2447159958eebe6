"""What happens beside Claude's answer, as events: waits, compactions, limits, hooks, how full the
context is.
"""

from __future__ import annotations

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeSDKClient,
    ConversationResetMessage,
    Message,
    RateLimitEvent,
    ResultMessage,
    SystemMessage,
    TextBlock,
    UserMessage,
)
from msgspec.structs import replace

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.events import Event, Text, TitleChanged
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.tasks import Tasks
from pykoclaw_acp.translation.compaction import Compaction
from pykoclaw_acp.translation.local_commands import SYNTHETIC
from pykoclaw_acp.translation.texts import one_line
from pykoclaw_acp.worker.context_usage import ContextUsage, learn_window
from pykoclaw_acp.worker.failures import foreign
from pykoclaw_acp.worker.limits import Limits
from pykoclaw_acp.worker.raw_frames import NO_FRAME, RawFrame
from pykoclaw_acp.worker.results import ABORTED
from pykoclaw_acp.worker.retries import Retries
from pykoclaw_acp.worker.status_lines import StatusLines, blocks_prompt, line

CLEARED = (
    "**Claude's memory of this conversation is cleared.** What was said before stays here; Claude"
    " does not know it any more."
)


class SideEvents:
    """Follows the messages of one CLI.

    `answered`: the message before was the answer to the prompt, in place of Claude's. `quiet`: a
    program reads the answer, in which no line of ours may be; None: lines wait until that is known.
    `blocked`: in what ended last, a hook had taken a prompt away, be it one that came into it.
    """

    def __init__(self) -> None:
        self.usage = ContextUsage()
        self.limits = Limits()
        self.retries = Retries()
        self.answered = False
        self.blocked = self._blocked = False
        self.quiet: bool | None = False
        self._held: list[Event] = []
        self._tasks = Tasks()
        self._compaction = Compaction(foreign)
        self._lines = StatusLines()
        self._title: str | None = None

    def connected(self, client: ClaudeSDKClient) -> None:
        """The CLI can be asked."""
        self.quiet = None
        self.usage.ask = lambda: self._tasks.start(learn_window(client, self.usage))

    def explain(self, failure: TurnFailure) -> TurnFailure:
        """Add to the failure of a turn what the CLI has said before of limits and waits; a wait is
        told once.
        """
        found = self.limits.explained(failure)
        pause, self.retries.pause = self.retries.pause, None
        if found.kind == ErrorKind.RATE_LIMIT and found.retry_after is None and pause is not None:
            return replace(found, retry_after=pause)
        return found

    def follow(self, message: Message, frame: RawFrame = NO_FRAME) -> list[Event]:
        """Events that come before those of the message's own content."""
        events = [*self._held, *self._follow(message, frame)]
        self._held.clear()
        if self.quiet is False:
            return events
        if self.quiet is None:
            self._held = [one for one in events if isinstance(one, Text)]
        return [one for one in events if not isinstance(one, Text)]

    def _follow(self, message: Message, frame: RawFrame) -> list[Event]:
        events = self.retries.follow(message)
        if isinstance(message, SystemMessage):
            self.answered = blocks_prompt(message.subtype, message.data)
            self._blocked = self._blocked or self.answered
            events += self._system(message)
        elif isinstance(message, UserMessage) and frame.get("isSynthetic") is True:
            if not message.parent_tool_use_id:
                events += self._lines.take_feedback(_text(message))
        elif isinstance(message, RateLimitEvent):
            events += self.limits.follow(message)
        elif isinstance(message, ConversationResetMessage):
            events += [*line(CLEARED), *self.usage.cleared()]
        elif isinstance(message, AssistantMessage) and message.model == SYNTHETIC:
            events += self._renamed(message)
        return events

    def ended(self, result: ResultMessage) -> list[Event]:
        """The turn has ended: what went on has ended with it."""
        stopped = result.terminal_reason in ABORTED
        self._lines.ended()
        self.blocked, self._blocked = self._blocked, False
        return [
            *self.retries.end(answered=not result.is_error, stopped=stopped),
            *self._compaction.end(),
            *self.usage.ended(result.model_usage, result.total_cost_usd),
        ]

    def is_repeated(self, message: AssistantMessage) -> bool:
        """Whether the CLI has sent the message before, and sends it again after a compaction."""
        return message.uuid in self._compaction.repeated

    def says_again(self, text: str) -> bool:
        """Whether the CLI says as its answer why nothing was compacted, which the call has said."""
        return self._compaction.says_again(text)

    def _system(self, message: SystemMessage) -> list[Event]:
        events = self._compaction.follow(message.subtype, message.data)
        if message.subtype == "compact_boundary" and self._compaction.tokens:
            events += self.usage.set(self._compaction.tokens)
        if message.subtype == "session_title_changed":
            self._title = str(message.data.get("title") or "")
        return events + self._lines.follow(message.subtype, message.data)

    def _renamed(self, message: AssistantMessage) -> list[Event]:
        """The title that `/rename` has set: the CLI tells of titles at other times, too."""
        title, self._title = self._title, None
        return [TitleChanged(one_line(title))] if title and title in _text(message) else []


def _text(message: AssistantMessage | UserMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))
