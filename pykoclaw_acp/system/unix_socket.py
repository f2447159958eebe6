"""Unix sockets (unix(7)): addresses of any length, and the process at the other end. Standard
library only.
"""

from __future__ import annotations

import _socket
import os

_UCRED: int = 12  # bytes of a struct ucred: pid, uid, gid


def address(directory: int, name: str) -> str:
    """The address of the socket `name` in the directory of this descriptor.

    An address may have 107 bytes; this way, the socket's path may have any number.
    """
    return f"/proc/self/fd/{directory}/{name}"


def bind(listener: _socket.socket, directory: int, name: str) -> None:
    """Bind to the socket `name` in the directory of this descriptor, 0600 regardless of the umask;
    raises OSError.
    """
    before = os.umask(0o177)
    try:
        listener.bind(address(directory, name))
    finally:
        os.umask(before)


def peer_pid(connection: _socket.socket) -> int:
    """The process at the other end; 0 if it cannot be seen from here, as that of another PID
    namespace.
    """
    return int.from_bytes(_credentials(connection)[:4], "little")


def peer_uid(connection: _socket.socket) -> int:
    """The user at the other end."""
    return int.from_bytes(_credentials(connection)[4:8], "little")


def _credentials(connection: _socket.socket) -> bytes:
    return connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _UCRED)
