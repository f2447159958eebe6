"""Damaged pages of a database, as a failing disk leaves them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pykoclaw_acp.store.sqlite import sqlite3

PAGE = 4096


def page_with(path: Path, words: bytes) -> None:
    """Damage the last page that holds these words; nobody has the file open."""
    data = bytearray(path.read_bytes())
    at = data.rfind(words)
    assert at >= 0
    page = at // PAGE * PAGE
    data[page : page + 8] = b"\xff" * 8
    path.write_bytes(data)


def table(path: Path, name: str) -> None:
    """Damage the first page of a table and of its indexes."""
    with closing(sqlite3.connect(path)) as connection:
        roots = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE tbl_name = ? AND rootpage > 0", (name,)
        ).fetchall()
    assert roots
    with path.open("r+b") as file:
        for (root,) in roots:
            file.seek((root - 1) * PAGE)
            file.write(b"\xff" * 100)
