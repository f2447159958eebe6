"""`pykoclaw-acp adopt`: add our tables to another program's database."""

from __future__ import annotations

from contextlib import closing

from pykoclaw_acp import terminal
from pykoclaw_acp.config import dotenv, loading
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.link.places import DATABASE
from pykoclaw_acp.store import migrate, preflight, privacy
from pykoclaw_acp.store.lock import DataLock
from pykoclaw_acp.store.sqlite import sqlite3


def main() -> None:
    """Apply our migrations beside the existing tables, and close the database to others. Raises StartupError if nothing
    was changed.
    """
    dotenv.require_own_data()
    settings = loading.load()
    path = settings.data / DATABASE
    if not path.is_file():
        raise CommandFailed(
            f"There is no database to adopt: {path} does not exist. The daemon makes a new one."
        )
    group = privacy.group_id(settings.group)
    lock = DataLock.acquire(path.parent, group=group)
    try:
        migrations = migrate.load()
        preflight.verify(path, migrations, adopt=True)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            migrate.apply(connection, migrations, path)
            privacy.close(path, group, _say)
    except sqlite3.Error as error:
        raise preflight.unusable(path, error) from error
    finally:
        lock.release()
    terminal.line(f"The database {path} has our tables beside its own.")


def _say(words: str, *, file: str, advice: str, **_: str) -> None:
    terminal.line(f"{words}: {file}. {advice}")
