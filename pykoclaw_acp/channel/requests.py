"""Requests of the daemon that a worker answers: neither is numbered, kept or repeated."""

from __future__ import annotations

from typing import Any

import msgspec


class _Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="frame", omit_defaults=True):
    epoch: int
    request: int


class StopTask(_Request, frozen=True, kw_only=True, tag="stop_task"):
    """Stop a subagent or a command in the background; the turn goes on. `why`: if the user did not want it."""

    tool_call_id: str
    why: str = ""


class StopSubagents(_Request, frozen=True, kw_only=True, tag="stop_subagents"):
    """Stop the subagents that run in the background; commands go on. `why`: if the user did not want it."""

    why: str = ""


class RewindFiles(_Request, frozen=True, kw_only=True, tag="rewind_files"):
    """Put files back to what they were before this turn; `dry`: only say which would change."""

    turn_id: str
    dry: bool = False


class MakeTitle(_Request, frozen=True, kw_only=True, tag="make_title"):
    """Let Claude name the session, from these words; the reply has the `title`, or null."""

    words: str


class WorkerReply(_Request, frozen=True, kw_only=True, tag="reply"):
    """The answer: what Claude says, or why it cannot be done."""

    result: dict[str, Any] = {}
    error: str | None = None


WorkerRequest = StopTask | StopSubagents | RewindFiles | MakeTitle
