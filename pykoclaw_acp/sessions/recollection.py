"""What was said in a conversation, summed up for a Claude that does not remember it."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from pykoclaw_acp.model.events import Event, Text, ToolStarted, UserMessage

MOST_TURNS: Final = 12  # the newest ones
MOST_ASKED: Final = 1000  # characters
MOST_SAID: Final = 2500  # characters; of the end of an answer
MOST_TOOLS: Final = 12


class _Turn:
    def __init__(self) -> None:
        self.asked = ""
        self.said = ""
        self.tools: Counter[str] = Counter()

    def text(self) -> str:
        parts = [f"The user: {self.asked.strip() or '(an image or a file)'}"]
        if self.tools:
            used = ", ".join(
                f"{name} ({count})" for name, count in self.tools.most_common(MOST_TOOLS)
            )
            parts.append(f"Tools that you used: {used}")
        parts.append(f"You: {self.said.strip() or '(nothing)'}")
        return "\n".join(parts)


class Recollection:
    """Follows a log; at most some 45,000 characters, whatever the log has."""

    def __init__(self) -> None:
        self.count = 0
        self._turns: deque[_Turn] = deque(maxlen=MOST_TURNS)
        self._asking = False

    def follow(self, event: Event) -> None:
        """The next event."""
        if isinstance(event, UserMessage):
            if not self._asking:
                self._turns.append(_Turn())
                self.count += 1
            self._asking = True
            if event.content.get("type") == "text":
                turn = self._turns[-1]
                turn.asked = _cut(f"{turn.asked}\n{event.content.get('text', '')}", MOST_ASKED)
            return
        self._asking = False
        if not self._turns:
            return
        turn = self._turns[-1]
        if isinstance(event, Text) and not event.note:
            turn.said = (turn.said + event.text)[-MOST_SAID - 1 :]
        elif isinstance(event, ToolStarted):
            turn.tools[event.name[:60]] += 1

    def text(self) -> str:
        """The newest turns; empty if there are none."""
        texts = [turn.text() for turn in self._turns]
        if self.count > len(texts):
            texts.insert(0, f"({self.count - len(texts)} earlier turns are left out.)")
        return "\n\n".join(texts)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 2]} …"
