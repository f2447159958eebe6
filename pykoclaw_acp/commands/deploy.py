"""`pykoclaw-acp deploy`: runs the installer of the systemd units."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final, NoReturn

from pykoclaw_acp.errors import CommandFailed

PROGRAM: Final = "pykoclaw-acp"
IN_WHEEL: Final = Path(__file__).parents[1] / "units"
_IN_CHECKOUT: Final = Path(__file__).parents[2] / "deploy"


def install(system: bool, program: str | None, profile: str | None) -> NoReturn:
    """Install the units. Does not return; raises CommandFailed if there is no installer."""
    chosen = program or _program()
    _run(
        system,
        *(["--program", chosen] if chosen else []),
        *(["--profile", profile] if profile else []),
    )


def remove(system: bool) -> NoReturn:
    """Remove the units. Does not return; raises CommandFailed if there is no installer."""
    _run(system, "--uninstall")


def _run(system: bool, *arguments: str) -> NoReturn:
    folder = IN_WHEEL if IN_WHEEL.is_dir() else _IN_CHECKOUT
    installer = folder / "install.sh"
    shell = shutil.which("sh")
    if shell is None or not installer.is_file():
        raise CommandFailed(
            f"The installer of the systemd units ({installer}) cannot be run. Install pykoclaw-acp anew."
        )
    scope = ["--system"] if system else []
    os.execv(shell, ["sh", str(installer), *scope, *arguments])  # noqa: S606  words, not a command line


def _program() -> str | None:
    """This program, where no PATH leads to it."""
    if shutil.which(PROGRAM) is not None:
        return None
    path = shutil.which(os.path.abspath(sys.argv[0]))
    return path if path is not None and os.path.basename(path) == PROGRAM else None
