"""The line to a worker process on this machine: its socket, and its pidfd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping

from pykoclaw_acp.channel.decoding import decode_from_worker
from pykoclaw_acp.channel.frames import FromWorker, ToWorker, encode
from pykoclaw_acp.channel.long_prompt import LongPrompt
from pykoclaw_acp.channel.processes import WorkerHandle, WorkerProcess
from pykoclaw_acp.channel.socket import SocketLine, connect, read_batches
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import LaunchFailed
from pykoclaw_acp.system import processes


class LocalChannel:
    """Implements `Channel`."""

    def __init__(self, handle: WorkerHandle, pidfd: int, line: SocketLine) -> None:
        self.handle = handle
        self._line = line
        self._pidfd = pidfd
        self._gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(pidfd, self._ended)

    @classmethod
    async def open(cls, handle: WorkerHandle) -> LocalChannel:
        """Connect; raises OSError, and LaunchFailed if the process is another one by now."""
        connection = await connect(handle.socket)
        try:
            pidfd = _open_pidfd(handle.process)
        except (OSError, LaunchFailed):
            connection.close()
            raise
        return cls(handle, pidfd, SocketLine(connection))

    @property
    def labels(self) -> Mapping[str, int | str]:
        """The worker's pid."""
        return {"worker_pid": self.handle.process.pid}

    async def send(self, frame: ToWorker) -> None:
        """Write a frame; raises ConnectionError when the worker is gone."""
        await self._line.send(*frame.pieces if isinstance(frame, LongPrompt) else (encode(frame),))

    def batches(self) -> AsyncIterator[list[FromWorker]]:
        """Frames in order, as they come; ends when the worker is gone."""
        return read_batches(self._line, decode_from_worker)

    async def gone(self) -> None:
        """Wait until the worker's process has ended."""
        await self._gone.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM: the worker interrupts, closes the CLI, exits."""
        self._signal(signal.SIGTERM)

    def detach(self) -> None:
        """Send and receive nothing any more."""
        self._line.end()

    async def close(self) -> None:
        """Close the socket and the pidfd."""
        await self._line.close()
        self._forget()

    def _signal(self, number: signal.Signals) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def _ended(self) -> None:
        self._gone.set()
        self._forget()

    def _forget(self) -> None:
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def _open_pidfd(process: WorkerProcess) -> int:
    pidfd = os.pidfd_open(process.pid)
    try:
        if processes.start_time(process.pid) != process.start_time:
            raise LaunchFailed(ErrorKind.START_FAILED, "it died at once")
    except BaseException:
        os.close(pidfd)
        raise
    return pidfd
