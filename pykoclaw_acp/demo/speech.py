"""Output of the conversation while it runs: a label, and wrapped text beside it."""

from __future__ import annotations

import re
from typing import Final

from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    ToolCallProgress,
    ToolCallStart,
    UserMessageChunk,
)
from rich.console import Console
from rich.text import Text

from pykoclaw_acp.demo.client import AnyUpdate, AskedPermission, text_of

MARGIN: Final = 11  # columns before the words; the speaker stands there
_INDENT: Final = 2
_SCRIPT: Final = "[[script"
_WORDS: Final = re.compile(r"\s+|\S+")


def spoken(prompt: str) -> str:
    """A prompt without the model's script."""
    return prompt.partition(_SCRIPT)[0].strip()


class Speech:
    """Writes updates as they arrive. `end` closes the line before other output."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._speaker: tuple[str, str | None] | None = None
        self._column = 0
        self._gap = ""  # what separates the next word from the last; never written at an end

    def user(self, prompt: str) -> None:
        """Show the user's words."""
        self._remark("you", spoken(prompt), "bold")

    def stop(self) -> None:
        """Show that the user stops the answer."""
        self._remark("you", "stop", "bold")

    def signal(self, name: str, target: str) -> None:
        """Show that a signal was sent."""
        self._remark(name, target, "bold red")

    def command(self, command: str, said: str) -> None:
        """Show a command and its output."""
        self._remark("runs", command, "bold")
        self._remark("", said, "")

    def asked(self, question: AskedPermission) -> None:
        """Show a permission request, and that it was granted."""
        self._remark("asks", f"May I? {question.title}", "yellow")
        self._remark("you", "allow once", "bold")

    def update(self, update: AnyUpdate) -> None:
        """Show an update."""
        match update:
            case UserMessageChunk():
                self.user(text_of(update))
            case AgentThoughtChunk():
                self._say("thinks", update.message_id, text_of(update), "dim italic")
            case AgentMessageChunk():
                self._say("claude", update.message_id, text_of(update), "")
            case ToolCallStart():
                self._remark("tool", update.title, "magenta")
            case ToolCallProgress(status="completed" | "failed" as status):
                self._remark("tool", status, "magenta" if status == "completed" else "red")
            case _:
                pass

    def end(self) -> None:
        """Close the current line."""
        if self._speaker is not None:
            self._console.print()
            self._speaker = None

    def _remark(self, speaker: str, text: str, style: str) -> None:
        self.end()
        self._say(speaker, None, text, style)
        self.end()

    def _say(self, speaker: str, message_id: str | None, text: str, style: str) -> None:
        if self._speaker != (speaker, message_id):
            self.end()
            self._speaker = (speaker, message_id)
            self._write(f"{'':{_INDENT}}{speaker:<{MARGIN - _INDENT}}", "cyan")
            self._column, self._gap = MARGIN, ""
            text = text.lstrip()
        for part in _WORDS.findall(text.replace("**", "")):
            if part.isspace():
                self._gap += part
            else:
                self._word(part, style)

    def _word(self, word: str, style: str) -> None:
        gap = " " if self._gap and self._column > MARGIN else ""
        if "\n" in self._gap or (gap and self._column + 1 + len(word) > self._console.width):
            self._write(f"\n{'':{MARGIN}}", "")
            self._column, gap = MARGIN, ""
        self._write(f"{gap}{word}", style)
        self._column += len(gap) + len(word)
        self._gap = ""

    def _write(self, text: str, style: str) -> None:
        self._console.print(Text(text, style=style), end="", soft_wrap=True)
