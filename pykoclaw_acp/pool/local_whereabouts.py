"""Workers on this machine, seen from outside: asked over their socket, else looked at in /proc.

A worker holds the data directory that it works for, and says where that is now. Neither way
disturbs it, nor the daemon that it serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from pykoclaw_acp.channel.decoding import decode_from_worker
from pykoclaw_acp.channel.frames import Place, Where, encode
from pykoclaw_acp.channel.home import is_deleted
from pykoclaw_acp.channel.processes import WorkerProcess, WorkerRecord
from pykoclaw_acp.channel.socket import SocketLine, connect, read_frames
from pykoclaw_acp.link.places import DATA_IN_HOME, Places
from pykoclaw_acp.link.records import Site
from pykoclaw_acp.pool.whereabouts import Direction, Sighting, Unlisted
from pykoclaw_acp.system import lineage, memory, processes

ANSWER_WAIT: Final = 2.0  # s
LEAVE_WAIT: Final = 1.0  # s in which a worker notices that its daemon is gone
_PAUSE: Final = 0.05  # s between two questions


class LocalWhereabouts:
    """Implements `Whereabouts`."""

    def lives(self, worker: WorkerRecord) -> bool:
        """Whether its process lives, and is not about to end."""
        process = worker.handle.process
        return (
            process.boot_id == processes.boot_id()
            and processes.start_time(process.pid) == process.start_time
            and not processes.ending(process.pid)
        )

    async def locate(self, worker: WorkerRecord, here: Site) -> Sighting:
        """Ask the worker, which lives; look for ourselves if it does not say."""
        pid = worker.handle.process.pid
        deadline = asyncio.get_running_loop().time() + LEAVE_WAIT
        while True:
            answer = await ask(worker.handle.socket)
            if answer is None or answer.pid != pid or not answer.inode:
                return Sighting(_look(pid, here))
            if answer.deleted:
                direction: Direction = "deleted"
            else:
                same = (answer.device, answer.inode) == (here.device, here.inode)
                direction = "here" if same else "elsewhere"
            if (
                direction == "here"
                or not answer.attached
                or asyncio.get_running_loop().time() > deadline
            ):
                return Sighting(direction, answer.attached, answer)
            await asyncio.sleep(_PAUSE)

    def survey(self, here: Site, listed: Collection[WorkerRecord]) -> list[Unlisted]:
        """All live workers of this user but those `listed`."""
        return survey(here, frozenset(one.handle.process.pid for one in listed))

    def launched_for(self, worker: WorkerRecord) -> str:
        """The data directory whose hash names the worker's directory, if its environment says that
        it is that one.
        """
        found = _launched_for(worker.handle.process.pid, worker.identity.instance)
        return found or f"whose workers are in {Path(worker.handle.socket).parents[1]}"

    def memory(self, workers: Sequence[WorkerRecord]) -> list[int | None]:
        """Proportional set size of each worker's process and its descendants."""
        return [self._memory(worker) for worker in workers]

    def _memory(self, worker: WorkerRecord) -> int | None:
        try:
            return memory.of_tree(worker.handle.process.pid) if self.lives(worker) else None
        except OSError:  # no descriptor is left
            return None

    def server_memory(self, workers: Collection[WorkerRecord]) -> int | None:
        """Proportional set size of this process and the fork server, whose children workers may
        be.
        """
        own = memory.of_process(os.getpid())
        if own is None:
            return None
        pids = {worker.handle.process.pid for worker in workers}
        helpers = (child for child in processes.children(os.getpid()) if child not in pids)
        return own + sum(memory.of_process(child) or 0 for child in helpers)

    def sessions(self, workers: Collection[WorkerRecord]) -> dict[tuple[int, int], str]:
        """Sessions by pid and start time, of those workers that were launched since this boot."""
        boot = processes.boot_id()
        ours = (
            (one.handle.process, one.session_id)
            for one in workers
            if one.handle.process.boot_id == boot
        )
        return {(process.pid, process.start_time): session_id for process, session_id in ours}


async def ask(socket: str) -> Place | None:
    """What the worker that listens there says; None if nobody does, if it does not know the
    question, or hangs.
    """
    with contextlib.suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(ANSWER_WAIT):
            line = SocketLine(await connect(socket))
            try:
                await line.send(encode(Where(epoch=0)))
                async for frame in read_frames(line, decode_from_worker):
                    if isinstance(frame, Place):
                        return frame
            finally:
                await line.close()
    return None


def survey(here: Site, listed: frozenset[int]) -> list[Unlisted]:
    """All live workers of this user but those whose pids are `listed`."""
    found: list[Unlisted] = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid in listed or processes.name(pid) != lineage.WORKER_NAME:
            continue
        started = processes.start_time(pid)
        if started is None or processes.ending(pid):
            continue
        cookies = (lineage.cookie(child) for child in processes.children(pid))
        process = WorkerProcess(pid, started, processes.boot_id())
        found.append(Unlisted(process, _look(pid, here), next(filter(None, cookies), None)))
    return found


def is_held(path: str) -> bool:
    """Whether a live worker of this user has its data directory there."""
    try:
        return any(one.direction == "here" for one in survey(Site.of(path), frozenset()))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _launched_for(pid: int, name: str) -> str | None:
    """The data directory whose hash `name` is, if the environment says that the worker was launched
    for it.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(
                one.split("=", 1) for one in os.fsdecode(file.read()).split("\0") if "=" in one
            )
    except OSError:
        return None
    default = os.path.join(variables.get("HOME", "/"), DATA_IN_HOME)
    known = Places(variables.get("PYKOCLAW_DATA") or default, "/", "/")
    return os.path.realpath(known.data) if known.hash == name else None


def _look(pid: int, here: Site) -> Direction:
    """Where the directory is that the worker holds; unknown if it holds none, or is
    another user's.
    """
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return "unknown"
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            path = f"/proc/{pid}/fd/{descriptor}"
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode) and _is_path(pid, descriptor):
                if is_deleted(status, os.readlink(path)):
                    return "deleted"
                return (
                    "here"
                    if (status.st_dev, status.st_ino) == (here.device, here.inode)
                    else "elsewhere"
                )
    return "unknown"


def _is_path(pid: int, descriptor: str) -> bool:
    """Whether it was opened with O_PATH: proc(5), fdinfo/."""
    with open(f"/proc/{pid}/fdinfo/{descriptor}", "rb") as file:
        flags = next((line.split()[1] for line in file if line.startswith(b"flags:")), b"0")
    return bool(int(flags, 8) & os.O_PATH)
