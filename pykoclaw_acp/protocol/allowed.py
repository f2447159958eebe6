"""Which words a parameter may be, for errors about one that it may not be."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import inspect

from pykoclaw_acp.protocol.content import AudioContent

# It can be read only to be refused with its reason.
_REFUSED: Final = frozenset({AudioContent})
_STEP: Final = re.compile(r"\[(?:\d+|\.\.\.)\]|[^.\[\]]+")


def words(kind: Any, path: str) -> list[str]:
    """The words that may be at a path of msgspec's in a value of this type; empty if there is no
    list of them, or the path leads nowhere.
    """
    found = [_inspected(kind)]
    *steps, last = _STEP.findall(path) or [""]
    for step in steps:
        found = [one for part in found for one in _below(part, step)]
    tags = [
        str(one.tag)
        for one in _alternatives(found)
        if isinstance(one, inspect.StructType) and one.tag_field == last
        if one.cls not in _REFUSED
    ]
    below = (one for part in found for one in _below(part, last))
    return list(dict.fromkeys(tags or _listed(below)))


@functools.cache  # it takes longer than all else of a refusal, and there are as many as methods
def _inspected(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _alternatives(found: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    """What a value may be, without unions and constraints around it."""
    for one in found:
        if isinstance(one, inspect.UnionType):
            yield from _alternatives(one.types)
        elif isinstance(one, inspect.Metadata):
            yield from _alternatives([one.type])
        else:
            yield one


def _below(part: inspect.Type, step: str) -> Iterator[inspect.Type]:
    """Types of a field, or of the items of a list or a dictionary."""
    for one in _alternatives([part]):
        if isinstance(one, inspect.StructType):
            yield from (field.type for field in one.fields if field.encode_name == step)
        elif isinstance(one, inspect.DictType) and step.startswith("["):
            yield one.value_type
        elif isinstance(one, inspect.CollectionType) and step.startswith("["):
            yield one.item_type


def _listed(found: Iterable[inspect.Type]) -> Iterator[str]:
    for one in _alternatives(found):
        if isinstance(one, inspect.LiteralType):
            yield from map(str, one.values)
        elif isinstance(one, inspect.EnumType):
            yield from (str(member.value) for member in one.cls)
