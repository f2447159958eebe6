"""What tags hold that the CLI has written into a text. Each text is gone through once, however many
tags it has.
"""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 200  # characters of a word


def word(text: str, tag: str) -> str | None:
    """What the first tag of this name holds, without white space around it; None if it is not one
    line of a few characters.
    """
    found = between(text, tag, _LONGEST)
    held = "" if found is None else found[0].strip()
    return held if held and "\n" not in held else None


def between(
    text: str, tag: str, most: int | None = None, *, last: bool = False
) -> tuple[str, int] | None:
    """What the first tag of this name holds, up to its first end, or its `last` one, within so many
    characters; and where that ends.
    """
    begin, closing = text.find(f"<{tag}>"), f"</{tag}>"
    if begin < 0:
        return None
    begin += len(tag) + 2
    stop = len(text) if most is None else begin + most + len(closing)
    end = (text.rfind if last else text.find)(closing, begin, stop)
    return None if end < 0 else (text[begin:end], end + len(closing))
