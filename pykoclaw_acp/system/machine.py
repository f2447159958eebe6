"""Supported platforms, and core dumps."""

from __future__ import annotations

import os
import sys

from pykoclaw_acp.errors import StartupError

_MACHINES = ("x86_64", "aarch64")


def check_platform() -> None:
    """Raises StartupError unless the platform is Linux on x86_64 or aarch64."""
    machine = os.uname().machine if hasattr(os, "uname") else "unknown"
    if sys.platform != "linux" or machine not in _MACHINES:
        raise StartupError(
            f"pykoclaw-acp runs on Linux on {' and '.join(_MACHINES)}; this is {sys.platform} on {machine}."
        )


def prepare() -> None:
    """Set what a server and its children need of the system, before the first of them starts."""
    open_missing_streams()
    unblock_signals()
    withhold_memory()
    make_no_core_files()


def unblock_signals() -> None:
    """Receive the signals that the parent process has blocked, which its children inherit: whoever
    stops them would wait in vain.
    """
    import signal

    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def withhold_memory() -> None:
    """Exclude memory from core dumps of this process and its children: it holds keys and
    conversations.

    The filter (core(5)) also applies where core_pattern pipes to a program, which RLIMIT_CORE does
    not stop. PR_SET_DUMPABLE is not used: it would close /proc to `doctor` and the daemon. A child
    may reset the filter.
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
    """Set the soft limit of core files to 0, for this process and its children."""
    import resource  # not at the top: it would cost the front half a millisecond

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def open_missing_streams() -> None:
    """A descriptor below 3 that was closed at the start must not become a file or a
    socket of ours.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
