"""A call that outlives its daemon: sent again when that goes, from where its notifications ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, Final

from pykoclaw_acp.errors import DaemonNotRunning
from pykoclaw_acp.front.call import DaemonAbsent

PAUSE: Final = 0.5  # s between two attempts to reach a daemon that went away
PATIENCE: Final = 60.0  # s without a daemon
MIN_UPTIME: Final = 5.0  # s; a connection that ends earlier was none to a daemon that works

Notifications = Generator[dict[str, Any], None, Any]


def resumed(
    send: Callable[[int | None], Notifications],
    gone: type[DaemonAbsent | DaemonNotRunning],
    patience: float = PATIENCE,
) -> Notifications:
    """The notifications of a call, each once, and its result.

    `send` sends the call; it is given the last `seq` that has come, or None. `gone` is what it
    raises when no daemon is there or the daemon goes away; it is raised here after `patience` (s)
    without an event, and without a connection that stood for a while, as of an idle session.
    """
    after: int | None = None
    lost: float | None = None
    while True:
        try:
            notifications = send(after)
            while True:
                message = next(notifications)
                if "seq" in message["params"]:  # others come anew with each connection
                    lost, after = None, message["params"]["seq"]
                yield message
        except StopIteration as end:
            return end.value
        except gone as error:
            now = time.monotonic()
            if lost is None or (error.stood or 0.0) >= MIN_UPTIME:
                lost = now
            if now - lost >= patience:
                raise
            time.sleep(PAUSE)
