"""Texts of tool calls: in one line, within bounds, without terminal control sequences."""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.model.plain import COLOUR
from pykoclaw_acp.model.plain import plain as without_controls
from pykoclaw_acp.neutral import in_fences, neutral

MAX_SHOWN: Final = 256 * 1024  # characters of a tool's text that are kept in the log
MAX_TITLE: Final = 120  # characters
MAX_ASKED: Final = 1000  # characters of the title of a permission request

_LONGEST_LINE: Final = 4096  # characters in which a title is looked for


def duration(seconds: float) -> str:
    """A time that something took."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


def one_line(text: str, most: int = MAX_TITLE) -> str:
    """The text as one line without invisible characters: ⏎ for line ends, and a mark where it is
    cut.
    """
    lines = [
        " ".join(line.split()) for line in neutral(text[:_LONGEST_LINE], "command").split("\n")
    ]
    line = " ⏎ ".join(line for line in lines if line)
    if len(line) <= most and len(text) <= _LONGEST_LINE:
        return line
    note = f"… [cut: {len(text)} characters in all]"
    if (count := text.count("\n") + 1) > 1:
        note = f"… [cut: {count} lines, {len(text)} characters in all]"
    return line[: most - len(note)] + note


def shorten(text: str, limit: int = MAX_SHOWN) -> str:
    """The text, or its beginning and its end with a mark between them."""
    if len(text) <= limit:
        return text
    cut = len(text) - limit
    return f"{text[: limit // 2]}\n… {cut} characters left out …\n{text[-(limit // 2) :]}"


def first_text(blocks: object) -> str:
    """The text of a tool's result for the model, or of its first block; empty if that is none."""
    first = blocks[0] if isinstance(blocks, list) and blocks else blocks
    text = first.get("text") if isinstance(first, dict) else first
    return text if isinstance(text, str) else ""


def output_text(text: str) -> str:
    """Output of a program as text; a carriage return ends a line, as progress bars draw anew."""
    return without_controls(text.replace("\r\n", "\n").replace("\r", "\n"))


def settled(text: str) -> str:
    """The text as a terminal shows it whose lines were written over, as for a progress bar."""
    if "\r" not in text:
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def coloured(text: str) -> str:
    """Output of a program as it is in a code block, but with its colours; empty if it has none."""
    pieces = COLOUR.split(text)  # every second one is a colour
    for at in range(0, len(pieces), 2):
        pieces[at] = output_text(pieces[at])
    for at in range(len(pieces) - 1, -1, -2):
        pieces[at] = pieces[at].rstrip()
        if pieces[at]:
            break
    whole = "".join(pieces)
    return whole if any(pieces[::2]) and len(pieces) > 1 and len(whole) <= MAX_SHOWN else ""


def fenced(text: str, language: str = "") -> str:
    """A code block of Markdown that the text cannot close; empty for a text without content."""
    text = shorten(output_text(text).rstrip())
    return in_fences(text, language) if text else ""
