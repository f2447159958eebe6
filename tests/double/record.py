"""What a role has done, one JSON object a line; each line is written whole, after its commit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Record:
    """Appends to a file, or nowhere. Lines of a process that is killed are there or not, never
    half.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._descriptor = (
            None
            if path is None
            else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        )

    def add(self, did: str, **values: Any) -> None:
        if self._descriptor is not None:
            os.write(self._descriptor, json.dumps({"did": did, **values}).encode() + b"\n")


def entries(path: Path) -> list[dict[str, Any]]:
    """The lines of a record; none if nothing was recorded yet."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]
