"""A session's history as the items of a document: messages whole, tool calls with what they showed
in the end, plans as they were at the end of a turn or before they were emptied, options that have
changed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pykoclaw_acp.commands.show import one_line, stamp
from pykoclaw_acp.link.meta_keys import NOTE, ORIGIN
from pykoclaw_acp.model.choices import OF_SERVER
from pykoclaw_acp.model.events import MAX_TEXT
from pykoclaw_acp.translation.tools import ASKING

YOU: Final = "You"
OURS: Final = "pykoclaw-acp"
CLAUDE: Final = "Claude"
THINKING: Final = "Claude, thinking"
TASKS: Final = "Claude's tasks"
TOOL: Final = "Tool"
_USER: Final = "user_message_chunk"
_SAID: Final = {
    _USER: YOU,
    "agent_message_chunk": CLAUDE,
    "agent_thought_chunk": THINKING,
}
_ORIGINS: Final = {
    "scheduler": "Scheduled task",
    "terminal": "Terminal",
    "whatsapp": "WhatsApp",
    "telegram": "Telegram",
}
SPEAKERS: Final = (*_SAID.values(), OURS, *_ORIGINS.values())
RESULTS: Final = {"completed": "✓", "failed": "✗"}
_LONG: Final = ("text", "data", "blob", "oldText", "newText")
EDIT: Final = "edit"  # ACP's kind of tool
SPLIT: Final = MAX_TEXT // 2  # characters; a piece of so many is a part of a longer text
_OPENING: Final = frozenset("([{“‘«„")
_CLOSING: Final = frozenset(".,;:!?)]}”’»…")
HELD: Final = 8 * 1024 * 1024  # characters that wait for the end of a tool call before them


@dataclass(slots=True)
class ShownMessage:
    """A message of one speaker, of content blocks; pieces of its text are joined. `at`: when it came,
    in ms since 1970, where that is known.
    """

    speaker: str
    blocks: list[dict[str, Any]]
    key: tuple[str, ...] = ()
    at: int | None = None


@dataclass(slots=True)
class ShownCall:
    """A tool call; `status` as in ACP. `content`: what it showed in the end, or so far."""

    title: str
    status: str
    content: list[dict[str, Any]]
    input: dict[str, Any] | None = None
    name: str = ""  # of the tool, where it is known
    kind: str = ""  # of the tool, as in ACP

    def take(self, update: dict[str, Any]) -> None:
        """Follow an update of the call, which has what changed."""
        self.title = one_line(str(update.get("title") or self.title), self.title)
        self.name = str(update.get("name") or self.name)
        self.kind = str(update.get("kind") or self.kind)
        self.status = str(update.get("status") or self.status)
        self.input = fields(update.get("rawInput")) or self.input
        self.content = objects(update.get("content")) or self.content

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The content blocks in what it showed."""
        return [fields(one.get("content")) for one in self.content if one.get("type") == "content"]

    @property
    def asked(self) -> str:
        """What it was called with, where neither its title nor its content says it: the arguments of
        an MCP tool, what another model is asked.
        """
        given = self.input or {}
        if self.name.startswith(OF_SERVER):
            return json.dumps(given, indent=2, ensure_ascii=False) if given else ""
        asked = str(given.get(ASKING.get(self.name, ""), ""))
        return "" if asked in (block.get("text") for block in self.blocks) else asked


@dataclass(slots=True)
class ShownPlan:
    """The plan at the end of a turn."""

    entries: list[dict[str, Any]]


Item = ShownMessage | ShownCall | ShownPlan


def fields(value: object) -> dict[str, Any]:
    """An object of an update; empty if it is none, as in a history that is damaged."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list; what is none is left out."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def speaker(update: dict[str, Any]) -> str | None:
    """Who speaks in an update, which may be this program; None if nobody does."""
    known = _SAID.get(str(update.get("sessionUpdate")))
    meta = fields(update.get("_meta"))
    origin = meta.get(ORIGIN)
    if known is not None and meta.get(NOTE):
        return OURS
    if known is None or not isinstance(origin, str) or not origin:
        return known
    return _ORIGINS.get(origin, one_line(origin))


def about(summary: dict[str, Any]) -> str:
    """Which session it is, where and from when."""
    return (
        f"Session {summary['id']}, in {one_line(summary['cwd'], 'an unknown directory')}; created"
        f" {stamp(summary['createdAt'])}, last used {stamp(summary['updatedAt'])}"
    )


def between(before: str, after: str) -> str:
    """What is missing between the texts of two blocks of one prompt: nothing inside of a sentence, as
    where a space stands between them; else an empty line.
    """
    if not before or not after or before.endswith("\n\n") or after.startswith("\n\n"):
        return ""
    if before.endswith("\n") or after.startswith("\n"):
        return "\n"
    left, right = before[-1], after[0]
    inline = left.isspace() or right.isspace() or left in _OPENING or right in _CLOSING
    return "" if inline else "\n\n"


def headed(found: Iterable[Item]) -> Iterator[tuple[str | None, Item]]:
    """Items, each with a heading if another speaker begins with it. Tool calls and plans are Claude's;
    what this program says stands under whoever spoke before. A message with a time has a heading.
    """
    under, noted = "", False
    for item in found:
        who = item.speaker if isinstance(item, ShownMessage) else CLAUDE
        heading = CLAUDE if who == THINKING else who
        again = noted and heading == YOU  # the next prompt, not more of the one before the note
        at = item.at if isinstance(item, ShownMessage) else None
        begins = heading != OURS and (heading != under or again or at is not None)
        under, noted = heading if begins else under, heading == OURS
        timed = heading if at is None else f"{heading}, {stamp(at)}"
        yield timed if begins else None, item


def items(updates: Iterable[dict[str, Any]]) -> Iterator[Item]:
    """The items, in the order in which they began. `at` of an update is the time of its message, in
    ms since 1970.
    """
    folding = _Folding()
    for update in updates:
        folding.take(update)
        yield from folding.ready()
    yield from folding.rest()


@dataclass(slots=True)
class _Folding:
    _queue: deque[Item] = field(default_factory=deque)
    _notes: list[Item] = field(default_factory=list)  # for behind the message, which may go on
    _running: dict[str, ShownCall] = field(default_factory=dict)
    _titles: dict[str, str] = field(default_factory=dict)  # of calls that had to leave the queue
    _plan: list[dict[str, Any]] = field(default_factory=list)
    _chosen: dict[str, str] = field(default_factory=dict)  # values of options, by name
    _size: int = 0
    _piece: int = 0  # characters of the text that came last

    def take(self, update: dict[str, Any]) -> None:
        kind = str(update.get("sessionUpdate"))
        if (who := speaker(update)) is not None:
            if kind == _USER:
                self._end_plan()
            key = (kind, who, str(update.get("messageId")))
            at = update.get("at")
            content = fields(update.get("content"))
            self._say(who, key, content, at if isinstance(at, int) else None)
        elif kind in ("tool_call", "tool_call_update"):
            self._call(str(update.get("toolCallId")), update)
        elif kind == "plan":
            entries = objects(update.get("entries"))
            if not entries:  # as after a rewind: the log keeps the list that is emptied, too
                self._end_plan()
            self._plan = entries
        elif kind == "config_option_update":
            self._choose(objects(update.get("configOptions")))

    def ready(self) -> Iterator[Item]:
        """Items that do not change any more; the first one that does holds back the others, up to
        a limit.
        """
        running = {id(tool) for tool in self._running.values()}
        while len(self._queue) > 1 and (id(self._queue[0]) not in running or self._size > HELD):
            yield self._leave()

    def rest(self) -> Iterator[Item]:
        self._end_plan()
        self._queue.extend(self._notes)
        while self._queue:
            yield self._leave()

    def _append(self, item: Item) -> None:
        self._queue.extend((*self._notes, item))
        self._notes.clear()

    def _leave(self) -> Item:
        item = self._queue.popleft()
        self._size -= _size(item)
        for call, tool in list(self._running.items()):
            if tool is item:
                self._titles[call] = tool.title
                del self._running[call]
        return item

    def _end_plan(self) -> None:
        if self._plan:
            self._append(ShownPlan(self._plan))
            self._plan = []

    def _choose(self, options: list[dict[str, Any]]) -> None:
        """Note the options that have changed; at first all, since those before are not known."""
        before, self._chosen = self._chosen, dict(map(_choice, options))
        changed = [
            f"{name}: {value}." for name, value in self._chosen.items() if before.get(name) != value
        ]
        if changed:
            note = {"type": "text", "text": " ".join(changed)}
            self._notes.append(ShownMessage(OURS, [note], (OURS,)))

    def _say(self, who: str, key: tuple[str, ...], content: dict[str, Any], at: int | None) -> None:
        last = self._queue[-1] if self._queue else None
        if not isinstance(last, ShownMessage) or last.key != key:
            last = ShownMessage(who, [], key, at)
            self._append(last)
        text = content.get("text")
        before = last.blocks[-1] if last.blocks else {}
        texts = content.get("type") == "text" == before.get("type")
        gap = between(_edges(before), _edges(content))
        if gap and (not texts or (key[0] == _USER and self._piece < SPLIT)):
            self._add(last, {"type": "text", "text": gap})
        self._add(last, content)
        self._piece = len(text) if isinstance(text, str) else 0
        self._size += _length(content)

    def _add(self, message: ShownMessage, content: dict[str, Any]) -> None:
        before = message.blocks[-1] if message.blocks else {}
        if content.get("type") == "text" == before.get("type"):
            text = f"{before.get('text', '')}{content.get('text') or ''}"
            message.blocks[-1] = {**before, "text": text}
        else:
            message.blocks.append(content)

    def _call(self, call: str, update: dict[str, Any]) -> None:
        tool = self._running.get(call)
        if tool is None:
            is_first = update["sessionUpdate"] == "tool_call"
            if not is_first and not objects(update.get("content")):
                return  # of a call that is over, or that was never seen
            named = update.get("title") or self._titles.get(call) or "a tool"
            tool = ShownCall(one_line(str(named), "a tool"), "in_progress", [])
            self._running[call] = tool
            self._append(tool)
        self._size -= _size(tool)
        tool.take(update)
        self._size += _size(tool)
        if tool.status in RESULTS:
            self._titles[call] = tool.title
            del self._running[call]


def _choice(option: dict[str, Any]) -> tuple[str, str]:
    """The name of an option, and that of its value."""
    value = option.get("currentValue")
    names = [one.get("name") for one in objects(option.get("options")) if one.get("value") == value]
    return one_line(str(option.get("name"))), one_line(str(names[0] if names else value))


def _edges(block: dict[str, Any]) -> str:
    """How a block begins and ends that stands in a line; empty for others."""
    if block.get("type") == "resource_link":
        return "[)"
    return str(block.get("text") or "") if block.get("type") == "text" else ""


def _size(item: Item) -> int:
    if isinstance(item, ShownMessage):
        return sum(map(_length, item.blocks))
    if isinstance(item, ShownCall):
        return sum(_length(part) + _length(fields(part.get("content"))) for part in item.content)
    return 0


def _length(block: dict[str, Any]) -> int:
    inside = block.get("resource")
    more = _length(inside) if isinstance(inside, dict) else 0
    return more + sum(len(value) for name in _LONG if isinstance(value := block.get(name), str))
