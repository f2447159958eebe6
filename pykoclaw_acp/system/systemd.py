"""Notifications to systemd, sd_notify(3), and socket activation, sd_listen_fds(3)."""

from __future__ import annotations

import os
import socket
import stat
from typing import Final

import structlog

FIRST_SOCKET: Final = 3  # the descriptor at which inherited sockets begin
SEND_WAIT: Final = 1.0  # s; systemd's queue may be full for a moment

log: Final = structlog.get_logger()


class Notifier:
    """Sends the state of the service to systemd; without systemd its methods do nothing. They never
    raise.
    """

    def __init__(self, address: str | None, watchdog_interval: float | None) -> None:
        """`address` as in `NOTIFY_SOCKET`: a path, or an abstract name behind `@`."""
        self._address = address
        self.watchdog_interval = watchdog_interval
        """Seconds between two calls of `watchdog`, half of what the unit allows; None: nobody waits for them."""

    @classmethod
    def from_environment(cls) -> Notifier:
        """Notifier for `NOTIFY_SOCKET`; the variables are unset, so that no child inherits them."""
        address = os.environ.pop("NOTIFY_SOCKET", None)
        allowed = os.environ.pop("WATCHDOG_USEC", "")
        pid = os.environ.pop("WATCHDOG_PID", str(os.getpid()))
        watched = (
            address is not None
            and allowed.isdecimal()
            and int(allowed) > 0
            and pid == str(os.getpid())
        )
        return cls(address, int(allowed) / 2_000_000 if watched else None)

    def ready(self, status: str) -> None:
        """READY=1: `systemctl start` returns."""
        self._send("READY=1", f"STATUS={_line(status)}")

    def stopping(self) -> None:
        """STOPPING=1."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """STATUS=, a line for `systemctl status`."""
        self._send(f"STATUS={_line(text)}")

    def watchdog(self) -> None:
        """WATCHDOG=1: health checks passed."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """EXTEND_TIMEOUT_USEC=: starting or stopping may take this long from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def _send(self, *assignments: str) -> None:
        if self._address is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(SEND_WAIT)
                line.sendto("\n".join(assignments).encode(), address)
        except OSError as error:
            log.warning(
                "systemd cannot be told",
                action="notify_failed",
                said=assignments[0],
                error=str(error),
            )


def inherited_sockets() -> list[socket.socket]:
    """Sockets that systemd passed to this process, close-on-exec; none without socket activation.

    The variables are unset, so that no child inherits them. Descriptors that are not sockets are
    closed.
    """
    pid = os.environ.pop("LISTEN_PID", "")
    count = os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    sockets = []
    for descriptor in range(FIRST_SOCKET, FIRST_SOCKET + int(count)):
        os.set_inheritable(descriptor, False)
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            sockets.append(socket.socket(fileno=descriptor))
        else:
            os.close(descriptor)
    return sockets


def _line(text: str) -> str:
    return " ".join(text.split())
