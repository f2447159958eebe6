"""Whether the `./.env` of the working directory may be read: only if the user trusts the directory,
with that file.

What decides is found in the environment, in `~/.local/share/pykoclaw/.env` and in the database that
these name; the file in question has no say in it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from pykoclaw_acp.link.places import DATA_IN_HOME, DATABASE, Places
from pykoclaw_acp.system import dotenv

NAME: Final = ".env"
SETTING: Final = "pykoclaw_workspace_trust"
MAX_FILE: Final = 1024 * 1024  # bytes
WAIT: Final = 5.0  # s for a database that is locked
_PREFIX: Final = "pykoclaw_"


def fingerprint(directory: str) -> str | None:
    """SHA-256 of the directory's `.env`; None if there is none that can be used."""
    path = os.path.join(directory, NAME)
    try:
        if not _is_small_file(path):
            return None
        with open(path, "rb") as file:
            return hashlib.sha256(file.read(MAX_FILE)).hexdigest()
    except OSError:
        return None


def settings(directory: str) -> Mapping[str, str]:
    """What the directory's `.env` says to this program, by lower-case name; empty if it cannot be
    read.
    """
    path = os.path.join(directory, NAME)
    try:
        values = dotenv.read(path) if _is_small_file(path) else {}
    except (OSError, UnicodeDecodeError):
        return {}
    return {
        name.lower(): value for name, value in values.items() if name.lower().startswith(_PREFIX)
    }


def trouble(directory: str) -> str | None:
    """Why the directory's `.env` cannot be read by anybody; None if it can, or if there is none."""
    path = os.path.join(directory, NAME)
    if not os.path.lexists(path):
        return None
    try:
        if not _is_small_file(path):
            return f"it is not a file, or larger than {MAX_FILE >> 20} MiB"
        dotenv.read(path)
    except OSError as error:
        return error.strerror or "it cannot be opened"
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    return None


def is_trusted(directory: str) -> bool:
    """Whether the directory's `.env` may be read."""
    outside = _outside()
    if outside.get(SETTING, "").strip().lower() == "off":
        return True
    digest = fingerprint(directory)
    return digest is not None and _is_recorded(
        Places.find(here=False).data, os.path.realpath(directory), digest
    )


def names_data(directory: str) -> bool:
    """Whether the directory's `.env`, and nothing else, names a data directory."""
    return bool(settings(directory).get("pykoclaw_data")) and not _outside().get("pykoclaw_data")


def _outside() -> dict[str, str]:
    """This program's settings of the environment and of the home's file."""
    home = os.path.expanduser(f"~/{DATA_IN_HOME}")
    environment = {name.lower(): value for name, value in os.environ.items() if value}
    return {
        **(settings(home) if os.path.isabs(home) else {}),  # without a home, `~` stays
        **{name: value for name, value in environment.items() if name.startswith(_PREFIX)},
    }


def _is_small_file(path: str) -> bool:
    status = os.stat(path)
    return stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE


def _is_recorded(data: str, directory: str, digest: str) -> bool:
    path = os.path.join(data, DATABASE)
    if not os.path.exists(path):
        return False
    from pykoclaw_acp.model.trust import ANY
    from pykoclaw_acp.store.sqlite import sqlite3
    from pykoclaw_acp.system.paths import upwards

    wanted = upwards(directory)
    places = ", ".join("?" * len(wanted))
    try:
        address = f"{Path(path).absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=WAIT)) as connection:
            found = connection.execute(
                "SELECT 1 FROM acp_trust WHERE (path = ? AND dotenv = ?)"  # noqa: S608  placeholders only
                f" OR (content = ? AND path IN ({places})) LIMIT 1",
                (directory, digest, ANY, *wanted),
            ).fetchone()
    except (sqlite3.Error, UnicodeError):
        return False
    return found is not None
