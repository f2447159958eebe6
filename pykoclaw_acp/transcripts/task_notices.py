"""What the CLI tells Claude when a task has ended, as it is in a transcript."""

from __future__ import annotations

import re
from typing import Any, Final

from pykoclaw_acp.transcripts import tags
from pykoclaw_acp.translation.tasks import TaskEnd

_USED: Final = {
    "total_tokens": re.compile(r"<subagent_tokens>(\d{1,12})</subagent_tokens>"),
    "tool_uses": re.compile(r"<tool_uses>(\d{1,9})</tool_uses>"),
    "duration_ms": re.compile(r"<duration_ms>(\d{1,12})</duration_ms>"),
}


_INTERIM: Final = "is waiting on its own background work"  # how the summary of such an end ends


def read(text: str) -> tuple[str | None, TaskEnd]:
    """The call that began the task, if it says so, and its end; a subagent's summary is its report."""
    call, task, status = (tags.word(text, tag) for tag in ("tool-use-id", "task-id", "status"))
    summary = tags.between(text, "summary", 4_000)
    report = tags.between(text, "result", 262_144, last=True)
    said = report or summary
    tail = text[report[1] :] if report else ""
    usage: dict[str, Any] = {
        name: int(found[1]) for name, one in _USED.items() if (found := one.search(tail))
    }
    interim = summary is not None and summary[0].endswith(_INTERIM)
    words = said[0] if said else ""
    ended = TaskEnd(
        status or "completed", words, usage or None, task or "", report is not None, interim
    )
    return call, ended


def each(text: str) -> list[str]:
    """The notices in a text that has several."""
    return text.split("<task-notification>")[1:]
