"""Text of a session's history, for a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pykoclaw_acp.commands.document import RESULTS, speaker
from pykoclaw_acp.commands.markdown import plain
from pykoclaw_acp.commands.show import one_line
from pykoclaw_acp.terminal import Shown, joined, shown


class Terminal:
    """Prints updates as they arrive; pieces of a message continue on its line."""

    def __init__(self, write: Callable[[Shown], None]) -> None:
        self._write = write
        self._message: tuple[str, str, str] | None = None  # kind, id and speaker of the message
        self._fresh = True  # the cursor is at the beginning of a line
        self._tools: dict[str, str] = {}

    def show(self, update: dict[str, Any]) -> None:
        """Print an update."""
        kind = update["sessionUpdate"]
        if (who := speaker(update)) is not None:
            self._say(kind, who, str(update.get("messageId")), plain(update["content"]))
        elif kind == "tool_call":
            title = self._tools[update["toolCallId"]] = one_line(update["title"])
            self.note(f"• {title}", fg="cyan")
        elif kind == "tool_call_update" and (mark := RESULTS.get(update.get("status", ""))):
            title = self._tools.pop(update["toolCallId"], "a tool")
            self.note(f"{mark} {title}", fg="green" if mark == "✓" else "red")

    def note(self, text: str, **style: Any) -> None:
        """Print a line of our own."""
        self._end_line()
        self._message = None
        self._write(joined([shown(text, **style), shown("\n", "prose")]))

    def block(self, text: Shown) -> None:
        """Print lines of our own."""
        self._end_line()
        self._message = None
        self._write(text)

    def end(self) -> None:
        """End the output at the beginning of a line."""
        self._end_line()

    def _say(self, kind: str, who: str, message: str, text: str) -> None:
        if self._message != (kind, message, who):
            self._end_line()
            self._message = (kind, message, who)
            self._write(joined([shown(f"{who}:", bold=True), shown("\n", "prose")]))
        if text:
            self._write(
                shown(text, "prose", **({"dim": True} if kind == "agent_thought_chunk" else {}))
            )
            self._fresh = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._fresh:
            self._write(shown("\n", "prose"))
            self._fresh = True
