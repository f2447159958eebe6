"""Shortages that tests put in the place of functions."""

from __future__ import annotations

from typing import NoReturn


def short_of_memory(*_: object, **__: object) -> NoReturn:
    raise MemoryError
