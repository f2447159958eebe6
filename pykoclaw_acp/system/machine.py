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

    The filter (core(5)) also counts where a program takes the dump, which a limit of its size does not stop.
    PR_SET_DUMPABLE would close /proc to `doctor`, and to the daemon. Who debugs in a session can undo it there.
    """
    try:
        descriptor = os.open("/proc/self/coredump_filter", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:  # a kernel without core dumps
        return
    try:
        os.write(descriptor, b"0")
    finally:
        os.close(descriptor)


def make_no_core_files() -> None:
    """What this process and those that it starts would leave is of no use, and may be large: the soft limit is 0."""
    import resource  # not at the top: it would cost the front half a millisecond

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
