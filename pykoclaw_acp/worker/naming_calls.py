"""Frames of the CLI with the ids by which tool calls are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pykoclaw_acp.translation.call_ids import CallIds, given
from pykoclaw_acp.translation.tasks import AGENTS, MESSAGE

_WITH_CALLS: Final = (*AGENTS, MESSAGE, "Skill")  # tools in which subagents make calls


class NamedCalls:
    """Named calls of one worker. `turns` gives the turns that run; the last one speaks. `running`:
    the running calls by their ids, the newest last.
    """

    def __init__(self, turns: Callable[[], Sequence[str]], running: dict[str, str | None]) -> None:
        self._turns = turns
        self._running = running
        self._ids = CallIds()
        self._inside: dict[str, CallIds] = {}  # those of subagents, by the shown ids of their calls
        self._parents: dict[str, str] = {}  # shown ids of calls that contain others, by those given
        self._tasks: dict[str, str] = {}  # ids of the CLI, subagents' too, to given ids of calls

    def rename(self, frame: dict[str, Any]) -> None:
        """Put the ids that are shown in the place of those that the service gave."""
        event, message = frame.get("event"), frame.get("message")
        parent = frame.get("parent_tool_use_id")
        ids = self._of(parent)
        if isinstance(event, dict):
            self._begun(event.get("content_block"), parent, ids)
        if isinstance(message, dict) and isinstance(message.get("content"), list):
            for block in message["content"]:
                self._begun(block, parent, ids)
                _ended(block, ids)
        if isinstance(call := frame.get("tool_use_id"), str):
            if frame.get("subtype") == "task_started":
                self._tasks[str(frame.get("task_id"))] = call
            frame["tool_use_id"] = ids.of(call) if parent else self._newest(call)
        if isinstance(parent, str):
            frame["parent_tool_use_id"] = self._parent(parent)
        told = frame.get("tool_use_meta")
        for one in told if isinstance(told, list) else ():
            _replace(one, "id", ids)

    def asked(self, call: str, agent: str | None = None) -> str:
        """The id of a call about which the user is asked, which may not have been reported yet.
        `agent`: the CLI's id of the subagent that makes it.
        """
        parent = agent and (self._tasks.get(agent) or next(reversed(self._parents), None))
        ids = self._of(parent)
        known = ids.of(call)
        return known if known in self._running else ids.begun(call, self._turn(ids))

    def _turn(self, ids: CallIds) -> str:
        return next(iter(reversed(self._turns())), "") if ids is self._ids else ""

    def _parent(self, call: str) -> str:
        return self._parents.get(call) or self._ids.of(call)

    def _of(self, parent: object) -> CallIds:
        """The ids of the calls inside this one; Claude's own are unique anyway."""
        shown = self._parent(parent) if isinstance(parent, str) else ""
        if shown == given(shown):
            return self._ids
        return self._inside.setdefault(shown, CallIds(inside=shown))

    def _newest(self, call: str) -> str:
        """The newest call of this id that runs: the CLI does not say whose it is."""
        shown = {ids.of(call) for ids in self._inside.values()} | {self._ids.of(call)}
        return next((one for one in reversed(self._running) if one in shown), self._ids.of(call))

    def _begun(self, block: object, parent: object, ids: CallIds) -> None:
        if not isinstance(block, dict) or block.get("type") != "tool_use":
            return
        call = str(block.get("id"))
        block["id"] = ids.begun(call, self._turn(ids))
        # A call of a subagent may have the id of the one that has begun that, or another
        taken = call == parent or (parent and self._parents.get(call) in self._running)
        if block.get("name") in _WITH_CALLS and not taken:
            self._parents.pop(call, None)  # it is the newest now
            self._parents[call] = block["id"]


def _ended(block: object, ids: CallIds) -> None:
    if isinstance(block, dict) and isinstance(call := block.get("tool_use_id"), str):
        block["tool_use_id"] = ids.of(call)
        ids.ended(call)


def _replace(holder: object, name: str, ids: CallIds) -> None:
    if isinstance(holder, dict) and isinstance(holder.get(name), str):
        holder[name] = ids.of(holder[name])
