"""What the CLI tells Claude when a task has ended, as it is in a transcript."""

from __future__ import annotations

import re
from typing import Any, Final

from pykoclaw_acp.translation.tasks import TaskEnd

_USED: Final = {
    "total_tokens": re.compile(r"<subagent_tokens>(\d{1,12})</subagent_tokens>"),
    "tool_uses": re.compile(r"<tool_uses>(\d{1,9})</tool_uses>"),
    "duration_ms": re.compile(r"<duration_ms>(\d{1,12})</duration_ms>"),
}


def read(text: str) -> tuple[str | None, TaskEnd]:
    """The call that began the task, and its end; a subagent's summary is its report."""
    call, status = (_word(text, tag) for tag in ("tool-use-id", "status"))
    summary, report = _between(text, "summary", 4_000), _between(text, "result", 262_144, last=True)
    said = report or summary
    tail = text[report[1] :] if report else ""
    usage: dict[str, Any] = {
        name: int(found[1]) for name, one in _USED.items() if (found := one.search(tail))
    }
    return call, TaskEnd(status or "completed", said[0] if said else "", usage or None)


def _word(text: str, tag: str) -> str | None:
    found = _between(text, tag, 200)
    word = "" if found is None else found[0].strip()
    return word if word and "\n" not in word else None


def _between(text: str, tag: str, most: int, *, last: bool = False) -> tuple[str, int] | None:
    """What the first tag of this name holds, up to its first end, or its `last` one, within so many
    characters; and where that ends.
    """
    begin, closing = text.find(f"<{tag}>"), f"</{tag}>"
    if begin < 0:
        return None
    begin += len(tag) + 2
    stop = begin + most + len(closing)
    end = (text.rfind if last else text.find)(closing, begin, stop)
    return None if end < 0 else (text[begin:end], end + len(closing))
