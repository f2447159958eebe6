"""New databases for tests that do not examine how one is made."""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pykoclaw_acp.link.places import DATABASE
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.sqlite import sqlite3

T = TypeVar("T")


def place(path: Path) -> Path:
    """Put a new database at `path` unless there is one, with all migrations. Each of them is a
    commit that waits for the disk, so they are applied once in a process.
    """
    if not path.exists():
        path.write_bytes(_migrated())
        path.chmod(0o600)
    return path


async def open_new(path: Path) -> Database:
    """Open a database at `path`, a new one if there is none."""
    return await Database.open(place(path))


async def on_writer(database: Database, work: Callable[[sqlite3.Connection], T]) -> T:
    """Do something with the connection that writes, which nothing of the program offers."""
    return await database._writer.run(work)


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / DATABASE
        thread = threading.Thread(target=lambda: asyncio.run(_make(path)))  # of a loop of its own
        thread.start()
        thread.join()
        if set(os.listdir(folder)) != {DATABASE}:
            raise RuntimeError(f"A closed database left {os.listdir(folder)}.")
        return path.read_bytes()


async def _make(path: Path) -> None:
    await (await Database.open(path)).close()
