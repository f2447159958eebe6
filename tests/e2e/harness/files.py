"""Files below a directory in which the daemon and Claude create and remove some meanwhile."""

from __future__ import annotations

import os
from pathlib import Path


def below(directory: Path) -> list[Path]:
    """All but directories: `Path.rglob` fails if one of those is removed while it looks."""
    found = (Path(folder, name) for folder, _, names in os.walk(directory) for name in names)
    return sorted(found)


def content(path: Path) -> bytes:
    """What a file holds; nothing of one that has just been removed, or that is none."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except FileNotFoundError:
        return b""


def holding(directory: Path, *words: str) -> list[Path]:
    """Files that hold one of the words."""
    sought = [word.encode() for word in words]
    found = ((path, content(path)) for path in below(directory))
    return [path for path, held in found if any(word in held for word in sought)]
