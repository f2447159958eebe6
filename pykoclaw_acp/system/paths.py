"""Paths, without a look at the disk."""

from __future__ import annotations

from pathlib import PurePath


def upwards(path: str) -> list[str]:
    """The path and those above it."""
    return [path, *map(str, PurePath(path).parents)]
