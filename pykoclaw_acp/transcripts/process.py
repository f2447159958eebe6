"""The processes that read transcripts, as the server sees them: started when they are needed, ended
when they have been idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Collection
from typing import Final

import msgspec
import structlog

from pykoclaw_acp import __version__
from pykoclaw_acp.system import disks
from pykoclaw_acp.system.lineage import MARKS
from pykoclaw_acp.transcripts import wire

CHILD: Final = "pykoclaw_acp.transcripts.child"
MOST: Final = 2  # at once; a long transcript must not keep the others waiting
IDLE: Final = 5.0  # s without a request, after which a process ends
ANSWER_WAIT: Final = 60.0  # s for a piece, on a busy machine
MOST_ENDING: Final = 8  # that were killed and are there still: their disks do not answer
REAP: Final = 0.1  # s between two looks whether one that was killed is gone
CLOSE_WAIT: Final = 1.0  # s that they get together when the server ends

log: Final = structlog.get_logger()


class ReaderDied(Exception):
    """The process has ended, or hung, in the middle of an answer."""


class OtherVersion(ReaderDied):
    """The process says what this version does not know: it runs from newer files."""


class ReaderProcesses:
    """Readers, at most `MOST`; each answers one request at a time."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MOST)
        self._idle: list[_ReaderProcess] = []
        self._busy: set[_ReaderProcess] = set()
        self._due: asyncio.TimerHandle | None = None  # the end of the idle ones
        self._ending: list[_ReaderProcess] = []
        self._reaping: asyncio.TimerHandle | None = None
        self.closed = False

    @property
    def pids(self) -> list[int]:
        """Processes that are there now."""
        return [one.pid for one in (*self._idle, *self._busy)]

    async def ask(self, request: wire.ReaderRequest) -> AsyncGenerator[wire.ReaderAnswer, None]:
        """The answers to a request; raises ReaderDied, and OSError if no process can be started, or
        too many hang.
        """
        async with self._free:
            if self.closed:
                raise ReaderDied
            if len(self._ending) >= MOST_ENDING:
                raise TimeoutError(errno.ETIMEDOUT, disks.SILENT)
            reader = self._idle.pop() if self._idle else await _ReaderProcess.start()
            self._busy.add(reader)
            whole = False
            try:
                await reader.send(request)
                while not whole:
                    answer = await reader.answer()
                    whole = not isinstance(answer, wire.Piece | wire.FolderChanges) or answer.done
                    yield answer
            finally:
                self._busy.discard(reader)
                if whole and not self.closed and not reader.gives_way:
                    self._idle.append(reader)
                    self._end_later()
                else:
                    self._end([reader])

    def close(self) -> None:
        """End them all; no other one is started."""
        self.closed = True
        if self._due is not None:
            self._due.cancel()
        self._end([*self._idle, *self._busy])
        self._idle.clear()
        until = time.monotonic() + CLOSE_WAIT
        for reader in self._ending:
            reader.wait(until - time.monotonic())
        self._reap()

    def _end_later(self) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due = asyncio.get_running_loop().call_later(IDLE, self._end_idle)

    def _end_idle(self) -> None:
        self._end(self._idle)
        self._idle.clear()

    def _end(self, readers: Collection[_ReaderProcess]) -> None:
        """End these. One whose disk does not answer is there until it does: nobody waits for that."""
        for reader in readers:
            reader.end()
        self._ending += [one for one in readers if one not in self._ending]
        self._reap()

    def _reap(self) -> None:
        if self._reaping is not None:
            self._reaping.cancel()
            self._reaping = None
        self._ending = [one for one in self._ending if not one.gone]
        if self._ending:
            self._reaping = asyncio.get_running_loop().call_later(REAP, self._reap)


class _ReaderProcess:
    """One process."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls) -> _ReaderProcess:
        ours, theirs = socket.socketpair()
        try:
            process = _start(theirs)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=wire.MAX_LINE)
        log.debug("Transcript reader started", action="reader_started", pid=process.pid)
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def gives_way(self) -> bool:
        """Whether it has worked for so long that others come first; the next one need not wait."""
        try:
            return os.getpriority(os.PRIO_PROCESS, self.pid) > os.getpriority(os.PRIO_PROCESS, 0)
        except OSError:
            return True

    async def send(self, request: wire.ReaderRequest) -> None:
        try:
            self._writer.write(msgspec.json.encode(request) + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise ReaderDied from error

    async def answer(self) -> wire.ReaderAnswer:
        try:
            async with asyncio.timeout(ANSWER_WAIT):
                line = await self._reader.readline()
        except (OSError, TimeoutError, ValueError) as error:
            raise ReaderDied from error
        if not line.endswith(b"\n"):  # it was cut off
            raise ReaderDied
        try:
            answer: wire.ReaderAnswer = wire.answers.decode(line)
        except (ValueError, msgspec.MsgspecError) as error:
            raise OtherVersion from error
        return answer

    def end(self) -> None:
        """Kill it: it has nothing to keep."""
        self._writer.close()
        self._process.kill()

    @property
    def gone(self) -> bool:
        """Whether it has ended, and was reaped."""
        return self._process.poll() is not None

    def wait(self, seconds: float) -> None:
        """Wait for its end, blocking."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(seconds, 0))


def _start(control: socket.socket) -> subprocess.Popen[bytes]:
    """Start the reader, without the marks of a worker's processes: the reaper leaves it alone."""
    return subprocess.Popen(
        [sys.executable, "-m", CHILD, str(control.fileno()), __version__],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={name: value for name, value in os.environ.items() if name not in MARKS},
        pass_fds=[control.fileno()],
    )
