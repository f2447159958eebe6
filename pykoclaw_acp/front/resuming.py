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


class Resumed:
    """A call that is sent again when its daemon goes.

    `send` sends it, given the last `seq` that has come, or None, and whether a daemon may have had it
    before. `gone` is what `send` raises when no daemon is there or the daemon goes away.
    `reached`: whether a daemon may have had the call, whatever was raised afterwards.
    """

    def __init__(
        self,
        send: Callable[[int | None, bool], Notifications],
        gone: type[DaemonAbsent | DaemonNotRunning],
        patience: float = PATIENCE,
    ) -> None:
        self._send = send
        self._gone = gone
        self._patience = patience
        self.reached = False

    def messages(self) -> Notifications:
        """The notifications, each once, and the result. Raises what `send` does; `gone` only after
        the patience (s) without an event, and without a connection that stood for a while, as of an
        idle session.
        """
        after: int | None = None
        lost: float | None = None
        while True:
            try:
                notifications = self._send(after, self.reached)
                while True:
                    message = next(notifications)
                    self.reached = True
                    if "seq" in message["params"]:  # others come anew with each connection
                        lost, after = None, message["params"]["seq"]
                    yield message
            except StopIteration as end:
                return end.value
            except self._gone as error:
                self.reached = self.reached or error.stood is not None
                now = time.monotonic()
                if lost is None or (error.stood or 0.0) >= MIN_UPTIME:
                    lost = now
                if now - lost >= self._patience:
                    raise
                time.sleep(PAUSE)
