"""What the CLI tells Claude when a task has ended, as it is in a transcript."""

from __future__ import annotations

import re
from typing import Any, Final

from pykoclaw_acp.translation.tasks import TaskEnd

_CALL: Final = re.compile(r"<tool-use-id>\s*(.{1,100}?)\s*</tool-use-id>")
_STATUS: Final = re.compile(r"<status>\s*(.{1,40}?)\s*</status>")
_SUMMARY: Final = re.compile(r"<summary>(.{0,4000}?)</summary>", re.DOTALL)
_REPORT: Final = re.compile(r"<result>(.{0,262144})</result>", re.DOTALL)
_USED: Final = {
    "total_tokens": re.compile(r"<subagent_tokens>(\d{1,12})</subagent_tokens>"),
    "tool_uses": re.compile(r"<tool_uses>(\d{1,9})</tool_uses>"),
    "duration_ms": re.compile(r"<duration_ms>(\d{1,12})</duration_ms>"),
}


def read(text: str) -> tuple[str | None, TaskEnd]:
    """The call that began the task, and its end; a subagent's summary is its report."""
    call, status, summary = (one.search(text) for one in (_CALL, _STATUS, _SUMMARY))
    report = _REPORT.search(text)
    said = report or summary
    tail = text[report.end() :] if report else ""
    usage: dict[str, Any] = {
        name: int(found[1]) for name, one in _USED.items() if (found := one.search(tail))
    }
    end = TaskEnd(status[1] if status else "completed", said[1] if said else "", usage or None)
    return call[1] if call else None, end
