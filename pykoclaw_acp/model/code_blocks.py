"""Texts of Markdown that are one code block."""

from __future__ import annotations

from typing import Final, NamedTuple

_FENCE: Final = "```"
_LONGEST: Final = 200  # characters that follow the fence in the line that opens one


class CodeBlock(NamedTuple):
    """A code block: the line that opens it, what is inside, and the line that closes it."""

    opening: str
    inside: str
    closing: str


def code_block(text: str) -> CodeBlock | None:
    """The parts of a text that is one code block; None for other texts."""
    if not text.startswith(_FENCE):
        return None
    opening, _, rest = text.partition("\n")
    fence = opening[: len(opening) - len(opening.lstrip("`"))]
    closing = f"\n{fence}"
    inside = rest.removesuffix(closing)
    if len(opening) - len(fence) > _LONGEST or inside == rest or closing in inside:
        return None
    return CodeBlock(f"{opening}\n", inside, closing)


def unfenced(text: str) -> str:
    """What is inside a text that is one code block; other texts as they are."""
    found = code_block(text)
    return text if found is None else found.inside
