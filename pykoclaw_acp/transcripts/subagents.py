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
from pykoclaw_acp.transcripts import entries, lines, task_notices
from pykoclaw_acp.transcripts.entries import Entry
from pykoclaw_acp.translation import kept_outputs, tasks
from pykoclaw_acp.translation.call_ids import CallIds, given
from pykoclaw_acp.translation.tasks import TaskEnd
from pykoclaw_acp.translation.translator import AGENT_ENDED, ToolResult, Translation

MOST: Final = 4 * 1024 * 1024  # bytes of lines of one subagent that become events
MOST_FILES: Final = 1000  # subagents of a session that are looked for
MOST_META: Final = 64 * 1024  # bytes
MOST_TIME: Final = 40  # characters
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
    first: str | None = None

    @property
    def begun(self) -> str:
        """The time of its first entry; empty if it has none."""
        if self.first is None:
            self.first = ""
            with contextlib.suppress(OSError), opened(self.path) as descriptor:
                for line in lines.read(descriptor, 0, os.fstat(descriptor).st_size):
                    if (entry := entries.decode(line.text)) is not None:
                        self.first = (entry.timestamp or "")[:MOST_TIME]
                        break
        return self.first


class Subagents:
    """Subagents of the transcript at `path`; `translation` is the state of its calls, `ids` by
    which they are shown.
    """

    def __init__(self, path: str, translation: Translation, ids: CallIds) -> None:
        self._ids = ids
        self._folder = os.path.join(path.removesuffix(".jsonl"), "subagents")
        self._projects = os.path.dirname(os.path.dirname(path))
        self._translation = translation
        self._found: dict[str, _Found] = {}  # by their ids
        self.since: dict[str, str] = {}  # when calls began subagents, or sent them messages

    def begun(self, call: str, name: str, entry: Entry) -> None:
        """A call was made: one of a subagent is about what that does from now on."""
        if name in (*tasks.AGENTS, tasks.MESSAGE) and entry.timestamp is not None:
            self.since[call] = entry.timestamp[:MOST_TIME]

    def end_tools(self, results: Sequence[ToolResult], entry: Entry) -> list[Event]:
        """Events of an entry's results, with what subagents have done whose calls they end."""
        return self._end_tools(_renamed(results, self._ids), entry, DEPTH)

    def end_task(self, call: str | None, end: TaskEnd, entry: Entry) -> list[Event]:
        """The end of a call that went on in the background, as this entry tells it."""
        return self._end_task(call and self._ids.of(call), end, entry, DEPTH)

    def _end_task(self, call: str | None, end: TaskEnd, entry: Entry, left: int) -> list[Event]:
        call = self._translation.ended_call(call, end)
        ends = call in self._translation.background and not end.interim
        done = self._done(call, entry, left) if ends else []
        return [*done, *self._translation.end_task(call, end)]

    def _end_tools(self, results: Sequence[ToolResult], entry: Entry, left: int) -> list[Event]:
        events: list[Event] = []
        details = entries.details(entry)
        if tasks.goes_on(details) is None:
            for one in results:
                if one.tool_use_id not in self._translation.background:
                    events += self._done(one.tool_use_id, entry, left)
        whole: list[ToolResult] = []
        for one in results:
            content = one.content
            name = self._translation.names.get(one.tool_use_id, "")
            if isinstance(content, str) and kept_outputs.is_kept(name, content):
                content, details = kept_outputs.complete(content, details, self._projects)
            whole.append(replace(one, content=content))
        return [*events, *self._translation.end_tools(whole, details)]

    def _done(self, call: str | None, end: Entry, left: int) -> list[Event]:
        """What the subagent of this call has done until this entry; nothing if it is no such call.
        Nothing else tells of its commands in the background that were stopped with it.
        """
        translation = self._translation
        name = translation.names.get(call or "", "")
        agents = (*tasks.AGENTS, tasks.MESSAGE)
        if call not in translation.running or name not in agents or not left:
            return []
        found = self._find(call, name, end)
        if found is None:
            return []
        translation.long.known.named_agent(call, found.meta.agent_type, found.meta.description)
        events: list[Event] = []
        ids = CallIds(inside=call)
        with contextlib.suppress(OSError):
            for entry in self._entries(call, found.path, end.timestamp):
                events += self._taken(call, entry, left, ids)
        inner = [one for one, parent in translation.running.items() if parent == call]
        return [*events, *translation.end_these(inner, AGENT_ENDED)]

    def _entries(self, call: str, path: str, until: str | None) -> Iterator[Entry]:
        weight, since = 0, self.since.get(call, "")
        with opened(path) as descriptor:
            for line in lines.read(descriptor, 0, os.fstat(descriptor).st_size):
                entry = entries.decode(line.text)
                if entry is None or entry.type not in ("assistant", "user"):
                    continue
                if entry.timestamp and not since <= entry.timestamp <= (until or entry.timestamp):
                    continue  # done before or after, under another call
                weight += min(line.end - line.begin, lines.WHOLE)
                if weight > MOST:
                    self._translation.long.say(call, "text", LEFT_OUT)
                    return
                yield entry

    def _taken(self, call: str, entry: Entry, left: int, ids: CallIds) -> list[Event]:
        if entry.type == "user":
            if results := tool_results(entry):
                return self._end_tools(_renamed(results, ids), entry, left - 1)
            return self._told(entry, left - 1, ids) if entries.by_claude_itself(entry) else []
        message = entries.message(entry)
        if message is None or entry.is_api_error_message or message.model == "<synthetic>":
            return []
        events: list[Event] = []
        for block in message.blocks:
            kind = block.get("type")
            text = block.get(str(kind))
            if entries.is_call(block):
                shown, (name, arguments) = ids.begun(block["id"]), entries.called(block)
                self.begun(shown, name, entry)
                events += self._translation.start_tool(shown, name, arguments, call)
            elif kind in ("text", "thinking") and isinstance(text, str):
                self._translation.long.say(call, str(kind), text)
        return events

    def _told(self, entry: Entry, left: int, ids: CallIds) -> list[Event]:
        """What a subagent is told of its own background work."""
        text = (entries.message(entry) or entries.Message()).text
        events: list[Event] = []
        for notice in task_notices.each(text):
            ended, how = task_notices.read(notice)
            events += self._end_task(ended and ids.of(ended), how, entry, left)
        return events

    def _find(self, call: str, name: str, end: Entry) -> _Found | None:
        """The subagent of this call, which ends with this entry: the one that its result names, or
        the first that has begun meanwhile.
        """
        if not self._found:
            with contextlib.suppress(OSError), os.scandir(self._folder) as files:
                names = [one.name for one in files if one.name.endswith(_META)]
                for one in names[:MOST_FILES]:
                    self._note(os.path.join(self._folder, one))
        task = self._translation.long.known.calls.get(call)
        told = entries.details(end)
        agent = told.get("agentId") if isinstance(told, dict) else None
        found = self._found.get(str(task.id if task is not None and task.id else agent))
        if name == tasks.MESSAGE:
            return found
        those = [one for one in self._found.values() if one.meta.tool_use_id in (call, given(call))]
        if found in those:
            return found
        if len(those) > 1:  # of one id, which is used again
            since, until = self.since.get(call, ""), end.timestamp
            those = [one for one in those if since <= one.begun <= (until or one.begun)]
        return min(those, key=lambda one: one.begun, default=None)

    def _note(self, path: str) -> None:
        unreadable = (OSError, msgspec.MsgspecError, UnicodeError, RecursionError)
        with contextlib.suppress(*unreadable), opened(path) as descriptor:
            meta = msgspec.json.decode(os.read(descriptor, MOST_META), type=_Meta)
            path = path.removesuffix(_META)
            agent = os.path.basename(path).removeprefix("agent-")
            self._found[agent] = _Found(f"{path}.jsonl", meta)


def _renamed(results: Sequence[ToolResult], ids: CallIds) -> list[ToolResult]:
    """Results of calls by the ids by which these are shown; they are over."""
    shown = [replace(one, tool_use_id=ids.of(one.tool_use_id)) for one in results]
    for one in results:
        ids.ended(one.tool_use_id)
    return shown


def tool_results(entry: Entry) -> list[ToolResult]:
    """Results of tools that a user's entry holds."""
    found = entries.message(entry)
    return [
        ToolResult(one["tool_use_id"], one.get("content"), one.get("is_error") is True)
        for one in (() if found is None else found.blocks)
        if one.get("type") == "tool_result" and isinstance(one.get("tool_use_id"), str)
    ]
