"""Path arithmetic, without access to the file system."""

from __future__ import annotations

from pathlib import PurePath


def upwards(path: str) -> list[str]:
    """The path and its ancestors."""
    return [path, *map(str, PurePath(path).parents)]
