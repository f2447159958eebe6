"""The `.env` of the working directory: whether it is read, and what is said if it is not.

It is read only in a trusted directory, since a repository that was cloned may bring one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.link import places

IN_HOME: Final = f"{places.DATA_IN_HOME}/.env"
NO_HOME: Final = "There is no home directory. Set HOME to an existing directory."


def home_file() -> Path:
    """The `.env` of the home directory, which is always read. Raises ConfigurationError if there is
    no home.
    """
    try:
        return Path.home() / IN_HOME
    except RuntimeError as error:  # of a user that the system does not know
        raise ConfigurationError(NO_HOME) from error


def may_be_read(here: Path, at_home: Path) -> bool:
    """Whether the directory is trusted, so that its file may be read."""
    if not _is_of_directory(here, at_home):
        return False
    from pykoclaw_acp.trust import dotenv  # not at the top: there seldom is such a file

    return dotenv.is_trusted(".")


def _is_of_directory(here: Path, at_home: Path) -> bool:
    """Whether the file exists and is not the home directory's."""
    try:
        return here.is_file() and not (at_home.is_file() and here.samefile(at_home))
    except OSError:
        return False


def use() -> None:
    """Let the directory's `./.env` say where the daemon of a command is, if it may be read."""
    here, at_home = Path(".env"), home_file()
    if may_be_read(here, at_home):
        from pykoclaw_acp.trust import dotenv

        places.use(dotenv.settings("."))


def unread() -> list[str]:
    """Names of settings in a `./.env` that is not read, because the directory is not trusted."""
    here, at_home = Path(".env"), home_file()
    if not _is_of_directory(here, at_home) or may_be_read(here, at_home):
        return []
    from pykoclaw_acp.trust import dotenv

    return sorted(name.upper() for name in dotenv.settings("."))


def why_unread() -> str | None:
    """Which `.env`, of this directory or the home, is not read, and why; None if they are read, or
    have no settings of ours.
    """
    here, at_home = Path(".env"), home_file()
    from pykoclaw_acp.trust import dotenv

    if names := unread():
        said = f"./.env is not read, as this directory is not trusted: {', '.join(names)}"
        return f"{said} ({here.absolute()})"
    is_there = os.path.exists(at_home)  # of pathlib's, one raises for what cannot be looked at
    if is_there and not os.path.isfile(at_home):
        return f"{at_home} is not read: it is not a file"
    reason = dotenv.trouble(".")
    if reason is None or (is_there and os.path.exists(here) and here.samefile(at_home)):
        return None
    return f"./.env is not read: {reason} ({here.absolute()})"


def require_own_data() -> None:
    """Raises ConfigurationError if only a `./.env` that is not read names the data directory.

    Serving the default directory instead would hide the clients' conversations.
    """
    if "PYKOCLAW_DATA" not in unread():
        return
    from pykoclaw_acp.trust import dotenv

    if dotenv.names_data("."):
        raise ConfigurationError(
            f"PYKOCLAW_DATA is set in {Path('.env').absolute()} alone, which is not read, because the directory is not"
            " trusted. Set it in the environment, or trust the directory: `pykoclaw-acp trust add`."
        )
