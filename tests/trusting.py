"""Trust that is given without a daemon: what `pykoclaw-acp trust add` leaves in the database."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path

from pykoclaw_acp.store import migrate
from pykoclaw_acp.store.sqlite import sqlite3


def trust_dotenv(data: Path, directory: Path) -> None:
    """The directory's `./.env`, as it is now, may be read."""
    data.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256((directory / ".env").read_bytes()).hexdigest()
    with closing(sqlite3.connect(data / "pykoclaw.db")) as connection:
        connection.isolation_level = None
        migrate.apply(connection, migrate.load(), data / "pykoclaw.db")
        connection.execute(
            "INSERT OR REPLACE INTO acp_trust (path, content, dotenv, granted_by, created_at)"
            " VALUES (?, '-', ?, 'cli', 0)",
            (str(directory.resolve()), digest),
        )
