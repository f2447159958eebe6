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
        self._tasks: dict[str, str] = {}  # shown ids of their calls by the CLI's ids, agents' too

    def rename(self, frame: dict[str, Any]) -> None:
        """Put the ids that are shown in the place of those that the service gave."""
        event, message = frame.get("event"), frame.get("message")
        parent = frame.get("parent_tool_use_id")
        shown = self._parent(parent, frame.get("agent_id")) if isinstance(parent, str) else ""
        ids = self._of(shown)
        if isinstance(event, dict):
            self._begun(event.get("content_block"), parent, ids)
        if isinstance(message, dict) and isinstance(message.get("content"), list):
            for block in message["content"]:
                self._begun(block, parent, ids)
                _ended(block, ids)
        if isinstance(call := frame.get("tool_use_id"), str):
            frame["tool_use_id"] = ids.of(call) if parent else self._of_task(call, frame)
        if isinstance(parent, str):
            frame["parent_tool_use_id"] = shown
        told = frame.get("tool_use_meta")
        for one in told if isinstance(told, list) else ():
            _replace(one, "id", ids)

    def asked(self, call: str, agent: str | None = None) -> str:
        """The id of a call about which the user is asked, which may not have been reported yet.
        `agent`: the CLI's id of the subagent that makes it.
        """
        newest = next(reversed(self._parents.values()), "")
        ids = self._of(self._tasks.get(agent, newest) if agent else "")
        known = ids.of(call)
        return known if known in self._running else ids.begun(call, self._turn(ids))

    def _turn(self, ids: CallIds) -> str:
        return next(iter(reversed(self._turns())), "") if ids is self._ids else ""

    def _parent(self, call: str, agent: object) -> str:
        """The call that contains this agent's; calls of several agents may have one given id."""
        task = self._tasks.get(agent, "") if isinstance(agent, str) else ""
        return task if given(task) == call else self._parents.get(call) or self._ids.of(call)

    def _of(self, shown: str) -> CallIds:
        """The ids of the calls inside this one; Claude's own are unique anyway."""
        if shown == given(shown):
            return self._ids
        return self._inside.setdefault(shown, CallIds(inside=shown))

    def _of_task(self, call: str, frame: dict[str, Any]) -> str:
        """The call of this id that has begun the task of the frame."""
        task = str(frame.get("task_id"))
        if frame.get("subtype") == "task_started":
            self._tasks[task] = self._newest(call)
        known = self._tasks.get(task, "")
        return known if given(known) == call else self._newest(call)

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
