"""Access to the database: its user, and the members of a configured group; independent of the
umask.
"""

from __future__ import annotations

import errno
import grp
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from pykoclaw_acp.errors import ConfigurationError

BESIDE: Final = ("", "-wal", "-shm", "-journal")

log: Final = structlog.get_logger()


def group_id(name: str | None) -> int | None:
    """The group's number; raises ConfigurationError if it does not exist or this user is not a
    member.
    """
    if name is None:
        return None
    try:
        group = grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigurationError(
            f"PYKOCLAW_GROUP is {name[:80]!r}: there is no such group."
        ) from None
    if os.geteuid() and group not in {os.getegid(), *os.getgroups()}:
        raise ConfigurationError(
            f"PYKOCLAW_GROUP is {name[:80]!r}: this user (user {os.geteuid()}) is not in it."
        )
    return group


def require_shared(data_dir: Path, group: int, name: str) -> None:
    """Raises ConfigurationError unless the group's members can use the data directory, and nobody
    else can write it.
    """
    status = data_dir.stat()
    if status.st_gid != group or status.st_mode & 0o2072 != 0o2070:
        raise ConfigurationError(
            f"PYKOCLAW_GROUP is {name}, but the data directory {data_dir} is not that group's. Make it so with "
            f"`chgrp {name} {data_dir} && chmod 2770 {data_dir}`, or unset PYKOCLAW_GROUP."
        )


def close(path: Path, group: int | None, warn: Callable[..., object] = log.warning) -> None:
    """Set the mode of the database and of SQLite's files beside it, which inherit it; what was
    open to others is told to `warn`.

    By path only: closing a descriptor of an open database would drop SQLite's locks.
    """
    wanted = 0o600 if group is None else 0o660
    path = path.resolve()  # SQLite's files are beside the file that a link leads to
    for beside in BESIDE:
        one = path.with_name(path.name + beside)
        try:
            status = one.stat()
            if group is not None and status.st_gid != group:
                os.chown(one, -1, group)
            mode = stat.S_IMODE(status.st_mode)
            if mode == wanted:
                continue
            one.chmod(wanted)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno != errno.EROFS:
                advice = f"Restrict it with `chmod {wanted:o} {one}`."
                warn(
                    "Others may use the database",
                    action="database_open",
                    file=str(one),
                    advice=advice,
                )
            continue
        if mode & ~wanted:
            warn(
                "The database was open to others, and is no longer", action="database_closed", file=str(one),
                mode=f"{mode:o}", advice="Set PYKOCLAW_GROUP if the members of a group shall use it.",
            )  # fmt: skip
