"""Work on long texts in steps of a fraction of a millisecond: generators, between whose steps others may run.

Whoever drives one decides when (`tasks.in_pieces`); `finished` does all of it at once.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")

PIECE: Final = 64 * 1024  # characters or bytes that one step works on


def finished(work: Generator[None, None, T]) -> T:
    """All steps at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def pieces(text: str, size: int = PIECE) -> Iterator[str]:
    """The text in pieces."""
    return (text[at : at + size] for at in range(0, len(text), size))


def encode(blocks: Sequence[dict[str, Any]], *, sort_keys: bool = False, ascii_only: bool = True) -> Iterator[str]:
    """What `json.dumps(blocks)` gives, in pieces; strings of the blocks themselves may be long."""
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
    """What `json.dumps(blocks)` gives, step by step."""
    done: list[str] = []
    for piece in encode(blocks):
        done.append(piece)
        yield
    return "".join(done)
