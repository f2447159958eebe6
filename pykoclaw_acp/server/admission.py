"""Connection limits. Descriptors are reserved, so that no turn lacks one."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import AcpError, Overloaded
from pykoclaw_acp.protocol import jsonrpc

HELLO: Final = 30.0  # s until a client has introduced itself
# s until a command has said what it wants, in a place that is kept for commands
COMMAND: Final = 5.0
RESERVE: Final = 8  # places that are kept for commands
COMMANDS: Final = 2  # of them for one process
FEWEST: Final = 4  # places for clients, however few descriptors there are
PER_WORKER: Final = 3  # descriptors: its socket, its pidfd, the lock of its turn
# descriptors for files that are open for a moment, readers of transcripts, and plugins' statements
SPARE: Final = 16


@dataclass(eq=False, slots=True)
class AdmittedConnection:
    """A connection. `kept`: its place is one for commands. `close` ends it, as it has to give way.

    `gone`: it had to give way. `silent`: it has not introduced itself, and waits for no answer.
    `process`: 0 if it cannot be seen from here.
    """

    user: int
    process: int
    kept: bool = False
    gone: bool = False
    close: Callable[[], object] = field(default=lambda: None)
    silent: Callable[[], bool] = field(default=lambda: True)

    @property
    def patience(self) -> float:
        """Seconds until it must have introduced itself."""
        return COMMAND if self.kept else HELLO


class Admission:
    """Counts connections. A process, or another user, has at most a quarter; idle ones are dropped
    to make room.
    """

    def __init__(self, most: int, user: int) -> None:
        """`user`: the daemon's own."""
        self.most = most
        self._user = user
        self._there: dict[AdmittedConnection, None] = {}  # in the order in which they came

    def enter(self, user: int, process: int) -> AdmittedConnection | None:
        """Admit a connection; None if there is no room."""
        admitted = AdmittedConnection(user, process)
        if not self._has_room(admitted):
            admitted.kept = True
            if not self._has_kept_room(admitted):
                return None
        self._there[admitted] = None
        return admitted

    def left(self, admitted: AdmittedConnection) -> None:
        """A connection has ended."""
        self._there.pop(admitted, None)

    @property
    def refusal(self) -> AcpError:
        """The error for connections that are not admitted."""
        return Overloaded(
            f"The daemon has no place for another client: there are {len(self._there)}. Close some and try again; "
            "PYKOCLAW_MAX_CLIENTS and the limit of open files (ulimit -n) say how many there may be.",
            ErrorKind.TOO_MANY_CLIENTS,
        )

    def _has_room(self, admitted: AdmittedConnection) -> bool:
        there = [one for one in self._there if not one.kept]
        share = max(FEWEST, self.most // 4)
        own = sum(one.process == admitted.process != 0 for one in there)
        alike = sum(one.user == admitted.user for one in there)
        crowd = own >= share or (admitted.user != self._user and alike >= share)
        if not crowd and len(there) < self.most:
            return True
        return self._give_way(
            [one for one in there if not crowd or one.process == admitted.process]
        )

    def _has_kept_room(self, admitted: AdmittedConnection) -> bool:
        there = [one for one in self._there if one.kept]
        own = [one for one in there if one.process == admitted.process]
        if len(own) >= COMMANDS:
            return self._give_way(own)
        return len(there) < reserve(self.most) or self._give_way(there)

    def _give_way(self, connections: list[AdmittedConnection]) -> bool:
        """Drop the first idle one; False if there is none."""
        for one in connections:
            if one.silent():
                self.left(one)
                one.gone = True
                one.close()
                return True
        return False


class SpareDescriptor:
    """A reserved descriptor, to refuse a client when all others are in use."""

    def __init__(self) -> None:
        self._kept: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def refuse(self, listener: socket.socket, error: AcpError) -> None:
        """Accept a pending connection and refuse it."""
        if self._kept is not None:
            os.close(self._kept)
            self._kept = None
        with contextlib.suppress(OSError):
            turn_away(listener.accept()[0], error)
        with contextlib.suppress(OSError):
            self._kept = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Release the descriptor."""
        if self._kept is not None:
            os.close(self._kept)
            self._kept = None


def turn_away(connection: socket.socket, error: AcpError) -> None:
    """Send the error without blocking, and close."""
    with connection, contextlib.suppress(OSError):
        connection.setblocking(False)
        connection.send(jsonrpc.encode_error(jsonrpc.NULL_ID, error))


def reserve(most: int) -> int:
    """Number of connections that are reserved for commands."""
    return min(RESERVE, max(COMMANDS, most // 8))


def places_left(wanted: int, workers: int) -> int:
    """Number of clients that may connect and leave enough descriptors for all workers."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    left = soft - used - workers * PER_WORKER - SPARE
    return max(FEWEST, min(wanted, left - reserve(min(wanted, left))))
