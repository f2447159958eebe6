"""Processing of long texts as generators, in steps of a fraction of a millisecond.

`tasks.in_pieces` runs one on the event loop; `finished` runs it at once.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")

PIECE: Final = 64 * 1024  # characters or bytes in a step


def finished(work: Generator[None, None, T]) -> T:
    """Run all steps; returns the generator's value."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """Split the text into pieces."""
    return (text[at : at + size] for at in range(0, len(text), size))


def encode(
    blocks: Sequence[dict[str, Any]], *, sort_keys: bool = False, ascii_only: bool = True
) -> Iterator[str]:
    """`json.dumps(blocks)` in pieces; top-level strings of the blocks may be long."""
    dumps = json.JSONEncoder(sort_keys=sort_keys, ensure_ascii=ascii_only).encode
    lead = "["
    for block in blocks:
        separator = lead + "{"
        for key in sorted(block) if sort_keys else block:
            value = block[key]
            yield f"{separator}{dumps(key)}: "
            if isinstance(value, str) and len(value) > PIECE:
                yield '"'
                for piece in pieces(value, PIECE):
                    yield dumps(piece)[1:-1]
                yield '"'
            else:
                yield dumps(value)
            separator = ", "
        yield "}" if block else separator + "}"
        lead = ", "
    yield "]" if blocks else "[]"


def encoded(blocks: Sequence[dict[str, Any]]) -> Generator[None, None, str]:
    """`json.dumps(blocks)`, in steps."""
    done: list[str] = []
    for piece in encode(blocks):
        done.append(piece)
        yield
    return "".join(done)
