"""`pykoclaw acp …`: the process becomes `pykoclaw-acp …`, in a fresh interpreter.

By the time it looks for our command pykoclaw has loaded its plugins, which a daemon must not run, and
the standard library's `sqlite3`, where a process must not have two (`store/engine.py`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

import click


def renew(arguments: Sequence[str]) -> NoReturn:
    """Replace this program by `pykoclaw-acp` with the arguments.

    Process id, parent, environment, working directory, standard streams and inherited sockets stay.
    What plugins of pykoclaw have printed is dropped: standard output is the client's.
    """
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
