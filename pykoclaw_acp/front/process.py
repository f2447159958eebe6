"""The front's process: streams, signals, exit status."""

from __future__ import annotations

import os

from pykoclaw_acp.errors import StartupError
from pykoclaw_acp.front import words
from pykoclaw_acp.front.dial import Dialer
from pykoclaw_acp.front.relay import Relay
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.system.machine import (
    check_platform,
    open_missing_streams,
    unblock_signals,
    withhold_memory,
)

USAGE = 2  # as of a command line that cannot be understood


def run() -> int:
    """Serve the client on standard input and output until it is gone; returns the exit status.

    A terminal is no client: its user is told what this program is for, and the status is 2.
    """
    open_missing_streams()
    if os.isatty(0) and os.isatty(1):
        for line in words.FOR_PEOPLE:
            words.say(line)
        return USAGE
    blocking = [os.get_blocking(descriptor) for descriptor in (0, 1)]
    for descriptor in (0, 1):
        os.set_blocking(descriptor, False)
    try:
        return _relay()
    finally:
        # A terminal that a shell gave us must be as it was when the shell goes on.
        for descriptor, was in enumerate(blocking):
            os.set_blocking(descriptor, was)


def _relay() -> int:
    wake = _watch_signals()
    try:
        check_platform()
        withhold_memory()
        relay = Relay(0, 1, wake, Dialer(Places.find()))
    except StartupError as error:
        relay = Relay(0, 1, wake, None)
        relay.fail(str(error), error.exit_code, error.kind)
    return relay.run()


def _watch_signals() -> int:
    """A descriptor that is readable once this process was asked to end."""
    import signal

    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # As nohup and shells in the background have it
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    unblock_signals()
    return read
