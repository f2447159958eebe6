"""Frames of the CLI with the ids by which tool calls are shown."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Final

from pykoclaw_acp.translation.call_ids import CallIds
from pykoclaw_acp.translation.tasks import AGENTS, MESSAGE

_WITH_CALLS: Final = (*AGENTS, MESSAGE, "Skill")  # tools in which subagents make calls


class NamedCalls:
    """Named calls of one worker. `turns` gives the turns that run; the last one speaks. `running`:
    ids of running calls.
    """

    def __init__(self, turns: Callable[[], Sequence[str]], running: Container[str]) -> None:
        self._turns = turns
        self._running = running
        self._ids = CallIds()
        self._parents: dict[str, str] = {}  # shown ids of calls that contain others, by those given

    def rename(self, frame: dict[str, Any]) -> None:
        """Put the ids that are shown in the place of those that the service gave."""
        event, message = frame.get("event"), frame.get("message")
        parent = frame.get("parent_tool_use_id")
        if isinstance(event, dict):
            self._begun(event.get("content_block"), parent)
        if isinstance(message, dict) and isinstance(message.get("content"), list):
            for block in message["content"]:
                self._begun(block, parent)
                self._ended(block)
        self._replace(frame, "tool_use_id")
        if isinstance(parent, str):
            frame["parent_tool_use_id"] = self._parents.get(parent) or self._ids.of(parent)
        told = frame.get("tool_use_meta")
        for one in told if isinstance(told, list) else ():
            self._replace(one, "id")

    def asked(self, call: str) -> str:
        """The id of a call about which the user is asked, which may not have been reported yet."""
        known = self._ids.of(call)
        return known if known in self._running else self._ids.begun(call, self._turn)

    @property
    def _turn(self) -> str:
        return next(iter(reversed(self._turns())), "")

    def _begun(self, block: object, parent: object) -> None:
        if not isinstance(block, dict) or block.get("type") != "tool_use":
            return
        call = str(block.get("id"))
        block["id"] = self._ids.begun(call, self._turn)
        # A call of a subagent may have the id of the one that has begun that
        if block.get("name") in _WITH_CALLS and call != parent:
            self._parents[call] = block["id"]

    def _ended(self, block: object) -> None:
        if isinstance(block, dict) and isinstance(call := block.get("tool_use_id"), str):
            self._replace(block, "tool_use_id")
            self._ids.ended(call)

    def _replace(self, holder: object, name: str) -> None:
        if isinstance(holder, dict) and isinstance(holder.get(name), str):
            holder[name] = self._ids.of(holder[name])
