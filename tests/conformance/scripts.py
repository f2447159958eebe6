"""Prompts that the scripted model plays."""

from __future__ import annotations

LONG = "repeat 600x100ms w{n} "  # a minute of text: nobody waits for its end


def script(*lines: str) -> str:
    return "\n".join(("[[script", *lines, "]]"))


def text(answer: str) -> str:
    """A prompt that is answered so."""
    return script(f"text {answer}")
