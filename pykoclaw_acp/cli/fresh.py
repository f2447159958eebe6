"""`pykoclaw acp …`: the process becomes `pykoclaw-acp …`, in a fresh interpreter.

pykoclaw has imported the standard library's `sqlite3` by the time it looks for our command, and a
process must not have two SQLite libraries (`store/engine.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import click

from pykoclaw_acp.store import engine


def renew(arguments: Sequence[str]) -> None:
    """Replace this program by `pykoclaw-acp` with the arguments, if the SQLite library that we need
    can no longer be loaded; otherwise return.

    Process id, parent, environment, working directory, standard streams and inherited sockets stay.
    What plugins of pykoclaw have printed is dropped: standard output is the client's.
    """
    if not engine.is_shut_out():
        return
    command = [sys.executable, *_flags(), "-m", "pykoclaw_acp", *arguments]
    try:
        os.execv(command[0], command)  # noqa: S606  no shell is wanted
    except OSError as error:
        raise click.ClickException(
            f"Python cannot be started anew from {sys.executable!r}: {error.strerror}."
            " Run `pykoclaw-acp` instead of `pykoclaw acp`."
        ) from error


def _flags() -> list[str]:
    """The interpreter's own options, and -P: without it a file of the working directory could be
    imported in place of a module.
    """
    kept: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return kept if "-P" in kept or "-I" in kept else [*kept, "-P"]
