"""Turns summed up for Claude, which does not know them: what was asked, and what was answered."""

from __future__ import annotations

from typing import Final

MOST_TURNS: Final = 8  # of a log: the newest ones
MOST_TEXT: Final = 20_000  # characters
MOST_ASKED: Final = 600  # characters
MOST_SAID: Final = 1600  # characters; of the end of an answer
MOST_TOOLS: Final = 12


class TurnSummary:
    """One turn."""

    def __init__(self, asked: str = "") -> None:
        self.asked = _cut(asked, MOST_ASKED)
        self._said = self._message_id = ""
        self._tools: dict[str, int] = {}

    def ask(self, text: str) -> None:
        """The user's words go on."""
        self.asked = _cut(f"{self.asked}\n{text}".strip(), MOST_ASKED)

    def say(self, text: str, message_id: str = "") -> None:
        """The answer goes on, maybe with another message."""
        gap = "" if message_id == self._message_id else "\n"
        self._message_id = message_id
        self._said = _cut(f"{self._said}{gap}{text}".lstrip(), MOST_SAID, end=True)

    def use(self, tool: str) -> None:
        """A tool was called."""
        name = tool[:60]
        self._tools[name] = self._tools.get(name, 0) + 1

    def text(self) -> str:
        """A few lines."""
        parts = [f"Asked: {self.asked or '(nothing)'}"]
        if self._tools:
            newest = list(self._tools.items())[:MOST_TOOLS]
            parts.append("Tools: " + ", ".join(f"{name} ({count})" for name, count in newest))
        parts.append(f"Answered: {self._said.rstrip() or '(nothing yet)'}")
        return "\n".join(parts)


def text(summaries: list[TurnSummary], left_out: int = 0) -> str:
    """The newest turns as text of at most 20,000 characters."""
    texts: list[str] = []
    room = MOST_TEXT
    for one in reversed(summaries):
        told = one.text()
        room -= len(told) + 2
        if room < 0:
            break
        texts.append(told)
    if left_out := left_out + len(summaries) - len(texts):
        texts.append(f"({left_out} earlier turns are left out.)")
    return "\n\n".join(reversed(texts))


def _cut(text: str, most: int, *, end: bool = False) -> str:
    if len(text) <= most:
        return text
    return f"… {text[-most:]}" if end else f"{text[:most]} …"
