"""The name of an instance, which one server of this user holds: an abstract socket (unix(7)), no file
that could be copied, moved or deleted.

Every user can read such a name, and take it while no server holds it. What another user holds does
not count; then the lock of the instance's directory, which is closed to others, keeps a second server
away.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
from typing import Final

import structlog

from pykoclaw_acp.system import processes
from pykoclaw_acp.system.unix_socket import peer_pid, peer_uid

NAME_WAIT: Final = 3.0  # s in which a server that is ending gives the instance's name back
# who asks for the name's owner is never answered, and counts until the owner ends
BACKLOG: Final = 64
_PAUSE: Final = 0.05  # s

log: Final = structlog.get_logger()


class InstanceName:
    """The name and the lock, until `release` or the end of this process."""

    def __init__(self, instance: str, state: str) -> None:
        self._address = f"\0pykoclaw-acp/{os.geteuid()}/{instance}"
        self._directory = os.path.join(state, instance)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._lock: int | None = None

    def bind(self) -> bool:
        """Take the name; False if somebody holds it. Raises OSError."""
        try:
            self._socket.bind(self._address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        self._socket.listen(BACKLOG)
        return True

    def owner(self) -> tuple[int, int] | None:
        """Pid and user of the process that holds the name; None if they cannot be determined. Users
        and processes of other namespaces are 65534 and 0.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.setblocking(False)
            try:
                asking.connect(self._address)
                return peer_pid(asking), peer_uid(asking)
            except OSError:
                return None

    def lock(self) -> bool:
        """Lock the instance's directory, if there is one that is closed to others; False if another
        server has it locked.
        """
        try:
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return True
        try:
            found = os.fstat(directory)
            if found.st_uid == os.geteuid() and not found.st_mode & 0o077:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._lock, directory = directory, -1
        except BlockingIOError:
            return False
        except OSError:  # not every file system has such locks
            return True
        finally:
            if directory >= 0:
                os.close(directory)
        return True

    def release(self) -> None:
        """Release both; further calls do nothing."""
        self._socket.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


async def claim(instance: str, state: str) -> InstanceName | None:
    """Hold the instance's name; None if another process of this user holds it."""
    name = InstanceName(instance, state)
    deadline = asyncio.get_running_loop().time() + NAME_WAIT
    settled = False  # whether the name is ours, or will not be, which does not matter
    while True:
        late = asyncio.get_running_loop().time() > deadline
        owner = None
        if not settled:
            try:
                settled = name.bind()
            except OSError as error:
                settled = True
                log.warning(
                    "The instance's name cannot be held", action="name_failed", error=str(error)
                )
        if not settled:
            owner = name.owner()
            # A server of this user answers, unless others fill its queue: then it has the lock.
            settled = late if owner is None else owner[1] != os.geteuid()
            if settled:
                log.warning(
                    "Another user holds the instance's name",
                    action="name_taken",
                    user=None if owner is None else owner[1],
                )
        if settled and name.lock():
            return name
        if late or (not settled and owner and owner[0] and not processes.ending(owner[0])):
            name.release()
            return None
        await asyncio.sleep(_PAUSE)
