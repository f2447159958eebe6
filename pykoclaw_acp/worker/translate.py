"""Translation of SDK messages to neutral events.

The CLI streams deltas, then sends each content block complete: what was streamed is not repeated. A
stream that breaks off is completed by the CLI in one message, of which only the missing rest
becomes an event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from claude_agent_sdk import (
    AssistantMessage,
    ConversationResetMessage,
    Message,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TaskNotificationMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from pykoclaw_acp.model.events import Event, Text
from pykoclaw_acp.model.markdown import Blocks
from pykoclaw_acp.model.plain import PlainPieces
from pykoclaw_acp.translation import local_commands
from pykoclaw_acp.translation.translator import CANCELLED, UNANSWERED, ToolResult, Translation
from pykoclaw_acp.worker.announcing import Announcing
from pykoclaw_acp.worker.raw_frames import NO_FRAME, RawFrame
from pykoclaw_acp.worker.results import ABORTED
from pykoclaw_acp.worker.side_events import SideEvents
from pykoclaw_acp.worker.status_lines import line

CUT: Final = "**Cut off here.** Claude begins this message anew."


@dataclass(slots=True)
class _Block:
    """A streamed content block: its kind, and what was streamed so far."""

    kind: str
    message_id: str
    # Pieces: a text that grows by deltas would be copied for each
    said: list[str] = field(default_factory=list)
    shown: PlainPieces = field(default_factory=PlainPieces)


@dataclass(slots=True)
class Translator(Translation):
    """The state of one Claude session's stream. `instead`: what is shown in place of the output of
    the CLI's own command that runs next.
    """

    _api_id: str = ""
    _count: int = 0
    _blocks: list[_Block] = field(default_factory=list)
    _open: dict[int, _Block] = field(default_factory=dict)
    _cut_off: bool = False  # the stream broke off in what `_blocks` has
    _after_command: bool = (
        False  # the CLI's own words, which stand apart from Claude's, were said last
    )
    spoke: bool = False
    instead: str | None = None
    side_events: SideEvents = field(default_factory=SideEvents)
    announcing: Announcing = field(init=False)

    def __post_init__(self) -> None:
        self.announcing = Announcing(self.cwd, self.plans)

    def events(self, message: Message, frame: RawFrame = NO_FRAME) -> list[Event]:
        """Events of this message, in order; `frame`: what the CLI sent as it."""
        return [*self.side_events.follow(message, frame), *self._said(message, frame)]

    def _said(self, message: Message, frame: RawFrame) -> list[Event]:
        if isinstance(message, StreamEvent):
            return self._stream(message, cut="abandoned_blocks" in frame)
        if isinstance(message, AssistantMessage):
            return self._assistant(message, frame)
        if isinstance(message, UserMessage):
            return self._tool_results(message)
        if isinstance(message, ConversationResetMessage):
            return [*self.tasks.cleared()]
        if is_turn_start(message):
            self.mcp.connected(message.data.get("mcp_servers"))
        self.spoke = self.spoke or self.side_events.answered
        if isinstance(message, TaskNotificationMessage):
            said = message.status, message.summary, message.usage, message.task_id
            return self.end_task(message.tool_use_id, self.task_end(*said))
        return []

    def begin_turn(self) -> None:
        """Begin a turn."""
        self.spoke = self._after_command = False

    def end_turn(self, result: ResultMessage) -> list[Event]:
        """Events that close a turn: text that only the result holds, ends of unfinished calls,
        usage of the context.
        """
        events = self._held_back(*self._blocks)
        if not self.spoke and result.result and not result.is_error:
            events.extend(self.say("text", result.uuid or result.session_id, result.result))
        cancelled = result.terminal_reason in ABORTED
        reason = CANCELLED if cancelled else UNANSWERED
        events.extend(self.end_unanswered(reason))
        events.extend(self.announcing.over(self.knows, reason))
        self._blocks.clear()
        self._open.clear()
        self._cut_off = False
        return [*events, *self.side_events.ended(result)]

    # --- streamed

    def _stream(self, message: StreamEvent, *, cut: bool) -> list[Event]:
        if message.parent_tool_use_id is not None:
            return []
        event = message.event
        kind = event.get("type")
        if kind == "message_start":
            begun = event["message"]
            before = self._anew(*self._blocks)
            before.extend(self.announcing.over(self.knows, UNANSWERED))
            self._begin_message(str(begun.get("id", message.uuid)))
            usage = self.side_events.usage.requested(
                str(begun.get("model") or ""), begun.get("usage")
            )
            return [*before, *usage]
        if kind == "content_block_start":
            block = _Block(
                str(event["content_block"].get("type")), f"{self._api_id}-{event['index']}"
            )
            self._open[event["index"]] = block
            self.announcing.begin(event["index"], event["content_block"])
            self._blocks.append(block)
        elif kind == "content_block_delta":
            return self._delta(event)  # a report here would divide the message in the log
        elif kind == "message_delta":
            return self.side_events.usage.answered(event.get("usage"))
        elif kind == "message_stop":
            self._cut_off = cut
        return []

    def _anew(self, *cut: _Block) -> list[Event]:
        """Claude says otherwise what these streamed blocks have begun, which broke off."""
        events = self._held_back(*cut)
        for block in cut if self._cut_off and not self.side_events.quiet else ():
            if block.kind == "text" and block.said:
                ending = Blocks("".join(block.said)).ending
                closed = [Text(block.message_id, ending)] if ending else []
                events = [*events, *closed, *line(CUT)]
        self._cut_off = False
        return events

    def _held_back(self, *blocks: _Block) -> list[Event]:
        """What waited in these streamed blocks for more that does not come."""
        events: list[Event] = []
        for block in blocks:
            events += self._say(block.kind, block.message_id, block.shown.rest())
        return events

    def _begin_message(self, api_id: str) -> None:
        self._api_id, self._count = api_id, 0
        self._open.clear()
        self._blocks.clear()  # what a broken stream left

    def _delta(self, event: dict[str, Any]) -> list[Event]:
        block = self._open.get(event["index"])
        delta = event["delta"]
        if delta.get("type") == "input_json_delta" and not self.side_events.quiet:
            return [*self.announcing.more(event["index"], str(delta.get("partial_json") or ""))]
        text = delta.get("text") if delta.get("type") == "text_delta" else delta.get("thinking")
        if block is None or not isinstance(text, str) or not text:
            return []
        block.said.append(text)
        return self._say(block.kind, block.message_id, block.shown.feed(text))

    def _say(self, kind: str, message_id: str, text: str) -> list[Event]:
        if not text:
            return []
        if kind != "thinking":
            self.spoke = True
            text = f"\n\n{text}" if self._after_command else text
            self._after_command = False
        return self.say(kind, message_id, text)

    # --- whole

    def _assistant(self, message: AssistantMessage, frame: RawFrame) -> list[Event]:
        if message.error is not None or self.side_events.is_repeated(message):
            return []  # the result says it, as the turn's error; or it was said before
        self.mcp.tools.update(mcp_labels(frame))
        events: list[Event] = []
        top = message.parent_tool_use_id is None
        for block in message.content:
            if isinstance(block, ToolUseBlock):
                if top:
                    self._after_command = False  # the call stands between
                    self._take("tool_use")
                events.extend(
                    self.start_tool(block.id, block.name, block.input, message.parent_tool_use_id)
                )
            elif isinstance(block, TextBlock | ThinkingBlock):
                kind, text = (
                    ("text", block.text)
                    if isinstance(block, TextBlock)
                    else ("thinking", block.thinking)
                )
                if message.model == local_commands.SYNTHETIC:
                    if self.side_events.says_again(text):
                        self.spoke = True
                        continue
                    text, self.instead = self.instead or local_commands.markdown(text), None
                if message.parent_tool_use_id is None:
                    events.extend(self._whole(kind, text, message))
                    self._after_command = message.model == local_commands.SYNTHETIC
                else:
                    self.long.say(message.parent_tool_use_id, kind, text)
        return events

    def _whole(self, kind: str, text: str, message: AssistantMessage) -> list[Event]:
        streamed = self._take(kind)
        said = "" if streamed is None else "".join(streamed.said)
        if streamed is not None and text.startswith(said):
            self._cut_off = False
            rest = streamed.shown.feed(text[len(said) :]) + streamed.shown.rest()
            return self._say(kind, streamed.message_id, rest)
        self._count += 1
        message_id = f"{message.message_id or message.uuid}-whole-{self._count}"
        before = [] if streamed is None else self._anew(streamed)
        return [*before, *self._say(kind, message_id, text)]

    def _take(self, kind: str) -> _Block | None:
        for block in self._blocks:
            if block.kind == kind:
                self._blocks.remove(block)
                return block
        return None

    def _tool_results(self, message: UserMessage) -> list[Event]:
        results = [
            ToolResult(block.tool_use_id, block.content, block.is_error)
            for block in (message.content if isinstance(message.content, list) else ())
            if isinstance(block, ToolResultBlock)
        ]
        return self.end_tools(results, message.tool_use_result)


def mcp_labels(frame: RawFrame) -> dict[str, str]:
    """Names for people of the MCP tools that an assistant's frame calls, by call."""
    labels: dict[str, str] = {}
    told = frame.get("tool_use_meta")
    for one in told if isinstance(told, list) else ():
        if isinstance(one, dict):
            tool = one.get("display_name")
            if isinstance(tool, str) and tool.strip():
                labels[str(one.get("id"))] = tool
    return labels


def is_turn_start(message: Message) -> TypeGuard[SystemMessage]:
    """Whether a turn begins; the CLI sends `init` for each, including those that it starts by
    itself.
    """
    return isinstance(message, SystemMessage) and message.subtype == "init"
