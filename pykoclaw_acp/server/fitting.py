"""Answers that fit into a line, whatever other programs have written into the rows: texts that are
too long are cut, and the answer says how long they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from pykoclaw_acp.link.framing import MAX_LINE_OUT
from pykoclaw_acp.protocol.control.answers import CutAnswer
from pykoclaw_acp.tasks import Pace

A = TypeVar("A", bound=CutAnswer)

ROOM: Final = MAX_LINE_OUT - 256 * 1024  # bytes; the rest is for what else the answer says
SHORTEST: Final = 64  # characters that are kept of each text


def shortened(one: A, most: int) -> A:
    """The item with at most this many characters of each text."""
    long = {
        name: text
        for name in one.__struct_fields__
        if isinstance(text := getattr(one, name), str) and len(text) > most
    }
    if not long:
        return one
    sizes = {name: len(text.encode("utf-8", "replace")) for name, text in long.items()}
    texts = {name: text[:most] for name, text in long.items()}
    return msgspec.structs.replace(one, **texts, cut=named(type(one), sizes) | one.cut)


def named(kind: type[CutAnswer], sizes: Mapping[str, int]) -> dict[str, int]:
    """`CutAnswer.cut` of the sizes of these fields."""
    names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    return {names[field]: size for field, size in sizes.items()}


async def fitted(items: Sequence[A], most: int, room: int = ROOM) -> list[A]:
    """The items with at most `most` characters of each text, or with fewer if they would take more
    than `room` bytes together; as many of the first ones as there is room for with the fewest.
    """
    while True:
        shown = await _as_many(items, most, room)
        if len(shown) == len(items) or most <= SHORTEST:
            return shown
        most = max(most // 2, SHORTEST)


async def _as_many(items: Sequence[A], most: int, room: int) -> list[A]:
    pace = Pace()
    shown: list[A] = []
    for one in items:
        cut = shortened(one, most)
        room -= len(msgspec.json.encode(cut)) + 1
        if room < 0:
            break
        shown.append(cut)
        await pace.step()
    return shown
