"""A session's title: the user's own words of its first prompt. A pure function."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from pykoclaw_acp.protocol import wrappings

MAX_TITLE: Final = 80  # characters

# What programs put around words: <system-reminder>…</system-reminder>, not the <div> that a user asks about.
_NOISE: Final = re.compile(r"<([a-z]+(?:[-_][a-z]+)+)\b[^>]*>.*?</\1>", re.DOTALL)
_FILE: Final = "=== File: "  # how Mitto puts a text file into a prompt


def title(content: Sequence[dict[str, Any]]) -> str | None:
    """One line of at most 80 characters; None for a slash command, and for a prompt without words."""
    texts = [wrappings.unwrap(block["text"]) for block in content if block.get("type") == "text"]
    words = " ".join(_NOISE.sub(" ", text) for text in texts if not text.startswith(_FILE)).strip()
    if wrappings.is_command(words):
        return None
    return shorten(words)


def shorten(words: str) -> str | None:
    """The words in one line of at most 80 characters; None if there are none."""
    line = " ".join(words.split())
    return (line if len(line) <= MAX_TITLE else line[: MAX_TITLE - 1] + "…") or None
