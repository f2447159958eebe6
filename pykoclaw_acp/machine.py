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


def withhold_memory() -> None:
    """No core dump of this process, nor of those that it starts, holds what is in memory: keys and conversations.

    A soft limit of 0 makes no file; the filter (core(5)) also counts where a program takes the dump. PR_SET_DUMPABLE
    would close /proc to `doctor`, and to the daemon itself. Whoever debugs a program in a session can undo both there.
    """
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        descriptor = os.open("/proc/self/coredump_filter", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:  # a kernel without core dumps
        return
    try:
        os.write(descriptor, b"0")
    finally:
        os.close(descriptor)
