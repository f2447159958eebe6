"""What a subagent says and does, as the content of the call that began it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from pykoclaw_acp.model.events import TextPart, ToolPart
from pykoclaw_acp.translation.texts import duration, output_text, shorten

MOST_SAID: Final = 16 * 1024  # characters of what it says on its way that are shown
MOST_REPORT: Final = 256 * 1024
_RUNNING: Final = re.compile(r"\ARunning (?=[A-Z])")  # before the description of a command


@dataclass(slots=True)
class Story:
    """What a subagent has said and done so far; `news` is set when there is more to show."""

    said: deque[TextPart] = field(default_factory=deque)
    left_out: bool = False
    now: str = ""  # what it does
    usage: dict[str, Any] | None = None
    news: bool = False
    _size: int = 0

    def say(self, kind: str, text: str) -> None:
        """The subagent has said or thought something."""
        text = output_text(text).strip()
        if not text:
            return
        if kind == "thinking":
            text = "\n".join(f"> {line}" for line in text.split("\n"))
        part = TextPart(shorten(text, MOST_SAID), thought=kind == "thinking")
        self.said.append(part)
        self._size += len(part.text)
        while self._size > MOST_SAID and len(self.said) > 1:
            self._size -= len(self.said.popleft().text)
            self.left_out = True
        self.news = True

    def progress(self, now: str, usage: dict[str, Any] | None) -> None:
        """What it does now, and has used so far."""
        self.now = _RUNNING.sub("Running: ", output_text(now))
        # without the time: it would stand still until the next call, or for good
        self.usage = self.usage if not usage else {**usage, "duration_ms": None}
        self.news = True

    def content(self) -> tuple[ToolPart, ...]:
        """What its call shows as long as it runs."""
        line = " · ".join(one for one in (self.now, used(self.usage)) if one)
        return (*self._told(), *_beside(line))

    def final_parts(
        self, report: Sequence[str], usage: dict[str, Any] | None = None
    ) -> tuple[ToolPart, ...]:
        """What its call shows in the end: the way there, the report, what it has used."""
        texts = [output_text(text).strip() for text in report]
        if self.said and not self.said[-1].thought and self.said[-1].text in texts:
            self.said.pop()
        parts = [TextPart(shorten(text, MOST_REPORT)) for text in texts if text]
        line = used(usage)
        if not line and (so_far := used(self.usage)):
            line = f"at least {so_far}"  # the end is not told
        return (*self._told(), *parts, *_beside(line))

    def _told(self) -> tuple[TextPart, ...]:
        said = [TextPart("…"), *self.said] if self.said and self.left_out else self.said
        return tuple(
            TextPart("\n\n".join(part.text for part in parts), thought=thought)
            for thought, parts in groupby(said, key=lambda part: part.thought)
        )


def _beside(line: str) -> tuple[TextPart, ...]:
    return (TextPart(line, beside=True),) if line else ()


def used(usage: dict[str, Any] | None) -> str:
    """What a subagent has used, in words."""
    given = usage or {}
    calls, tokens, time = (given.get(key) for key in ("tool_uses", "total_tokens", "duration_ms"))
    words = []
    if isinstance(calls, int):
        words.append("1 tool call" if calls == 1 else f"{calls} tool calls")
    if isinstance(tokens, int):
        words.append(f"{tokens:,} tokens")
    if isinstance(time, int | float):
        words.append(duration(time / 1000))
    return ", ".join(words)


def of_foreground(details: object) -> tuple[list[str], dict[str, Any]] | None:
    """The report in the result of a subagent that was waited for, and what it has used; None if it
    is no such result.
    """
    if not isinstance(details, dict):
        return None
    if details.get("status") == "forked" and details.get("success") is True:  # a skill
        return [str(details.get("result") or "")], {}
    if not isinstance(details.get("content"), list):
        return None
    texts = [
        block["text"]
        for block in details["content"]
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    if texts and texts[0].lstrip().startswith("<tools-used"):
        del texts[0]
    names = {
        "total_tokens": "totalTokens",
        "tool_uses": "totalToolUseCount",
        "duration_ms": "totalDurationMs",
    }
    return texts, {key: details.get(name) for key, name in names.items()}
