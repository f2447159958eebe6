"""What subagents have said and done, from the files of their own that the CLI keeps beside a
transcript: `<session>/subagents/agent-<id>.jsonl`, with a `.meta.json` that names the call.

A file is read when its call ends, and becomes events before that end: the calls of the subagent, as
calls under its own, and its text and thoughts as part of what its call shows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from pykoclaw_acp.model.events import Event
from pykoclaw_acp.system.regular_files import opened
from pykoclaw_acp.transcripts import entries, lines
from pykoclaw_acp.transcripts.entries import Entry
from pykoclaw_acp.translation import tasks
from pykoclaw_acp.translation.call_ids import CallIds
from pykoclaw_acp.translation.tasks import TaskEnd
from pykoclaw_acp.translation.translator import AGENT_ENDED, ToolResult, Translation

MOST: Final = 4 * 1024 * 1024  # bytes of lines of one subagent that become events
MOST_FILES: Final = 1000  # subagents of a session that are looked for
MOST_META: Final = 64 * 1024  # bytes
DEPTH: Final = 4  # of subagents that call subagents
LEFT_OUT: Final = "(What it did after this is not shown: it is too much.)"
_META: Final = ".meta.json"


class _Meta(msgspec.Struct, rename="camel"):
    tool_use_id: str
    agent_type: str = "agent"
    description: str = ""


class _Found(msgspec.Struct):
    path: str
    meta: _Meta


class Subagents:
    """Subagents of the transcript at `path`; `translation` is the state of its calls, `ids` by
    which they are shown.
    """

    def __init__(self, path: str, translation: Translation, ids: CallIds) -> None:
        self._ids = ids
        self._folder = os.path.join(path.removesuffix(".jsonl"), "subagents")
        self._translation = translation
        self._found: dict[str, _Found] = {}

    def end_tools(self, results: Sequence[ToolResult], details: object) -> list[Event]:
        """Events of results, with what subagents have done whose calls they end."""
        results = [replace(one, tool_use_id=self._ids.of(one.tool_use_id)) for one in results]
        return self._end_tools(results, details, DEPTH)

    def end_task(self, call: str | None, end: TaskEnd) -> list[Event]:
        """The end of a call that went on in the background."""
        call = call and self._ids.of(call)
        done = self._done(call, DEPTH) if call in self._translation.background else []
        return [*done, *self._translation.end_task(call, end)]

    def _end_tools(self, results: Sequence[ToolResult], details: object, left: int) -> list[Event]:
        events: list[Event] = []
        if tasks.goes_on(details) is None:
            for one in results:
                if one.tool_use_id not in self._translation.background:
                    events += self._done(one.tool_use_id, left)
        return [*events, *self._translation.end_tools(results, details)]

    def _done(self, call: str | None, left: int) -> list[Event]:
        """What the subagent of this call has done; nothing if it is no such call."""
        translation = self._translation
        name = translation.names.get(call or "")
        if call not in translation.running or name not in tasks.AGENTS or not left:
            return []
        found = self._find(call)
        if found is None:
            return []
        translation.long.known.named_agent(call, found.meta.agent_type, found.meta.description)
        events: list[Event] = []
        with contextlib.suppress(OSError):
            for entry in self._entries(call, found.path):
                events += self._taken(call, entry, left)
        inner = [one for one, parent in translation.running.items() if parent == call]
        return [*events, *translation.end_these(inner, AGENT_ENDED)]

    def _entries(self, call: str, path: str) -> Iterator[Entry]:
        weight = 0
        with opened(path) as descriptor:
            for line in lines.read(descriptor, 0, os.fstat(descriptor).st_size):
                entry = entries.decode(line.text)
                if entry is None or entry.type not in ("assistant", "user"):
                    continue
                weight += min(line.end - line.begin, lines.WHOLE)
                if weight > MOST:
                    self._translation.long.say(call, "text", LEFT_OUT)
                    return
                yield entry

    def _taken(self, call: str, entry: Entry, left: int) -> list[Event]:
        if entry.type == "user":
            results = tool_results(entry)
            return self._end_tools(results, entries.details(entry), left - 1) if results else []
        message = entries.message(entry)
        if message is None or entry.is_api_error_message or message.model == "<synthetic>":
            return []
        events: list[Event] = []
        for block in message.blocks:
            kind = block.get("type")
            text = block.get(str(kind))
            if entries.is_call(block):
                name, arguments = entries.called(block)
                events += self._translation.start_tool(block["id"], name, arguments, call)
            elif kind in ("text", "thinking") and isinstance(text, str):
                self._translation.long.say(call, str(kind), text)
        return events

    def _find(self, call: str) -> _Found | None:
        if call not in self._found:
            with contextlib.suppress(OSError), os.scandir(self._folder) as files:
                names = [one.name for one in files if one.name.endswith(_META)]
                for name in names[:MOST_FILES]:
                    self._note(os.path.join(self._folder, name))
        return self._found.get(call)

    def _note(self, path: str) -> None:
        unreadable = (OSError, msgspec.MsgspecError, UnicodeError, RecursionError)
        with contextlib.suppress(*unreadable), opened(path) as descriptor:
            meta = msgspec.json.decode(os.read(descriptor, MOST_META), type=_Meta)
            self._found[self._ids.of(meta.tool_use_id)] = _Found(
                f"{path.removesuffix(_META)}.jsonl", meta
            )


def tool_results(entry: Entry) -> list[ToolResult]:
    """Results of tools that a user's entry holds."""
    found = entries.message(entry)
    return [
        ToolResult(one["tool_use_id"], one.get("content"), one.get("is_error") is True)
        for one in (() if found is None else found.blocks)
        if one.get("type") == "tool_result" and isinstance(one.get("tool_use_id"), str)
    ]
