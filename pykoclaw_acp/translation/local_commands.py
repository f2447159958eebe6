"""Output of the CLI's own commands, such as `/cost`, as Markdown."""

from __future__ import annotations

import re
from typing import Final

from pykoclaw_acp.neutral import fenced

SYNTHETIC: Final = "<synthetic>"  # the model of messages that the CLI makes itself
_COLUMNS: Final = re.compile(r"\S {2,}\S|^ {4,}\S", re.MULTILINE)  # lined up by spaces
_MARKDOWN: Final = re.compile(r"^(?:#{1,6} |\|.*\||```|[-*] )", re.MULTILINE)
_MOST_LOOKED_AT: Final = 64 * 1024  # characters


def markdown(text: str) -> str:
    """The output; one that is lined up by spaces stands in a code block, where it stays so."""
    beginning = text[:_MOST_LOOKED_AT]
    if "\n" not in text or _MARKDOWN.search(beginning) or not _COLUMNS.search(beginning):
        return text
    return fenced(text.strip("\n"))
