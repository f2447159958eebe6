"""Where the program runs, and where it says that it does not."""

from __future__ import annotations

import os
import sys

from pykoclaw_acp.errors import StartupError

_MACHINES = ("x86_64", "aarch64")


def check_platform() -> None:
    """Raises StartupError elsewhere than on Linux on x86_64 and aarch64."""
    machine = os.uname().machine if hasattr(os, "uname") else "unknown"
    if sys.platform != "linux" or machine not in _MACHINES:
        raise StartupError(
            f"pykoclaw-acp runs on Linux on {' and '.join(_MACHINES)}; this is {sys.platform} on {machine}."
        )
