"""Whether whoever has connected runs inside of a session: Claude, one of its tools, or what those
have started.

It is recognised by the cookie of an ancestor, by an ancestor that is a live worker or this daemon
(which get the orphans below them), or by the control group that systemd has made for this daemon
alone.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import socket
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.system import lineage, proc
from pykoclaw_acp.system.lineage import WORKER_NAME, Process
from pykoclaw_acp.system.unix_socket import peer_pid

SO_PEERPIDFD: Final = getattr(socket, "SO_PEERPIDFD", 77)  # Linux 6.5, asm-generic/socket.h
LOOK_WAIT: Final = 30.0  # s; /proc can hang with a process that the kernel holds up
PAUSE: Final = 0.1  # s
LOOKS: Final = 4  # at a time; each takes a descriptor for the process, and those of files in /proc
_STARTED_BY_SYSTEMD: Final = b"SYSTEMD_EXEC_PID="  # systemd.exec(5)

# Sessions of workers, by pid and start time
WorkerSessions = Callable[[], Awaitable[dict[tuple[int, int], str]]]


@dataclass(frozen=True, slots=True)
class Inside:
    """A process that runs inside of this session; None: of one that cannot be named, or it ended
    before it could be looked at.
    """

    session: str | None = None


class Origins:
    """Looks at those who connect."""

    def __init__(self, owns: Callable[[str], bool], workers: WorkerSessions, name: str) -> None:
        """`owns`: whether a cookie is of a worker of ours; `name`: of the data directory, in its
        daemon's scope.
        """
        self._owns = owns
        self._workers = workers
        self._group = _own_group(name)
        self._looks = asyncio.Semaphore(LOOKS)

    async def of(self, connection: socket.socket) -> Inside | None:
        """None for one that does not run inside of a session, or outside of this PID namespace."""
        pid = peer_pid(connection)
        if not pid:
            return None
        try:
            async with asyncio.timeout(LOOK_WAIT):
                while True:
                    try:
                        return await self._look(connection, pid)
                    except OSError as error:
                        if error.errno not in lineage.NO_DESCRIPTORS:
                            return Inside()
                    await asyncio.sleep(PAUSE)  # others may close theirs
        except TimeoutError:
            return Inside()

    async def _look(self, connection: socket.socket, pid: int) -> Inside | None:
        async with self._looks:
            pidfd = _pidfd_of(connection, pid)
            try:
                ancestors = await asyncio.to_thread(lineage.ancestry, pid)
                in_group = await asyncio.to_thread(self._is_in_group, ancestors)
                # it was this process that was looked at, not a later one of its pid
                signal.pidfd_send_signal(pidfd, 0)
            finally:
                os.close(pidfd)
        return await self._judge(ancestors) or (Inside() if in_group else None)

    async def _judge(self, ancestors: Collection[Process]) -> Inside | None:
        for one in ancestors:
            if one.cookie is not None and self._owns(one.cookie):
                return Inside(one.cookie.split(":")[1] if one.cookie.count(":") == 2 else None)
        if any(one.name == WORKER_NAME for one in ancestors):
            workers = await self._workers()
            for one in ancestors:
                if (one.pid, one.start) in workers:
                    return Inside(workers[one.pid, one.start])
        return Inside() if any(one.pid == os.getpid() for one in ancestors) else None

    def _is_in_group(self, ancestors: Collection[Process]) -> bool:
        """Whether the process is in our control group, and was not started there by systemd itself,
        as ExecStartPost= would be.
        """
        if self._group is None or not ancestors:
            return False
        group = _group_of(next(iter(ancestors)).pid)
        if group is None or not f"{group}/".startswith(f"{self._group}/"):
            return False
        return not any(
            lineage.variable(one.pid, _STARTED_BY_SYSTEMD) == str(one.pid) for one in ancestors
        )


def _pidfd_of(connection: socket.socket, pid: int) -> int:
    """The process that has connected; raises OSError if it is gone."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
    # An older kernel; the pid is looked at again when everything was read
    return os.pidfd_open(pid)


def _own_group(name: str) -> str | None:
    """Our control group if nothing else is in it: a service whose main process this is, or the
    scope of a daemon.
    """
    group = _group_of(os.getpid())
    if group is None or group == "/":
        return None
    is_service = os.environ.get(_STARTED_BY_SYSTEMD.decode().rstrip("=")) == str(os.getpid())
    is_scope = re.fullmatch(rf"pykoclaw-acp-{name}-\d+\.scope", os.path.basename(group))
    return group if is_service or is_scope else None


def _group_of(pid: int) -> str | None:
    """The process's control group as systemd sees it (cgroups(7)): in its own hierarchy, else in
    the unified one.
    """
    try:
        listed = os.fsdecode(proc.read(f"/proc/{pid}/cgroup"))
    except OSError as error:
        if error.errno in lineage.NO_DESCRIPTORS:
            raise
        return None
    found = dict(line.split(":", 2)[1:] for line in listed.split("\n") if line)
    return found.get("name=systemd", found.get(""))
