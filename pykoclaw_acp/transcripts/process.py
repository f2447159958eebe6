"""The processes that read transcripts, as the server sees them: started when they are needed, ended
when they have been idle.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from typing import Final

import msgspec
import structlog

from pykoclaw_acp.system.lineage import MARKS
from pykoclaw_acp.transcripts import wire

MOST: Final = 2  # at once; a long transcript must not keep the others waiting
IDLE: Final = 5.0  # s without a request, after which a process ends
ANSWER_WAIT: Final = 60.0  # s for a piece, on a busy machine

log: Final = structlog.get_logger()


class ReaderDied(Exception):
    """The process has ended, or hung, in the middle of an answer."""


class ReaderProcesses:
    """Readers, at most `MOST`; each answers one request at a time."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MOST)
        self._idle: list[_Reader] = []
        self._busy: set[_Reader] = set()
        self._ending: asyncio.TimerHandle | None = None
        self.closed = False

    @property
    def pids(self) -> list[int]:
        """Processes that are there now."""
        return [one.pid for one in (*self._idle, *self._busy)]

    async def ask(self, request: wire.Request) -> AsyncGenerator[wire.Answer, None]:
        """The answers to a request; raises ReaderDied, and OSError if no process can be started."""
        async with self._free:
            if self.closed:
                raise ReaderDied
            reader = self._idle.pop() if self._idle else await _Reader.start()
            self._busy.add(reader)
            whole = False
            try:
                await reader.send(request)
                while not whole:
                    answer = await reader.answer()
                    whole = not isinstance(answer, wire.Piece | wire.Found) or answer.done
                    yield answer
            finally:
                self._busy.discard(reader)
                if whole and not self.closed and not reader.gives_way:
                    self._idle.append(reader)
                    self._end_later()
                else:
                    reader.end()

    def close(self) -> None:
        """End them all; no other one is started."""
        self.closed = True
        if self._ending is not None:
            self._ending.cancel()
        for reader in (*self._idle, *self._busy):
            reader.end()
        self._idle.clear()

    def _end_later(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.get_running_loop().call_later(IDLE, self._end_idle)

    def _end_idle(self) -> None:
        for reader in self._idle:
            reader.end()
        self._idle.clear()


class _Reader:
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
    async def start(cls) -> _Reader:
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

    async def send(self, request: wire.Request) -> None:
        try:
            self._writer.write(msgspec.json.encode(request) + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise ReaderDied from error

    async def answer(self) -> wire.Answer:
        try:
            async with asyncio.timeout(ANSWER_WAIT):
                line = await self._reader.readline()
            answer: wire.Answer = wire.answers.decode(line)
        except (OSError, TimeoutError, ValueError, msgspec.MsgspecError) as error:
            raise ReaderDied from error  # also a line that was cut off
        return answer

    def end(self) -> None:
        """End it at once: it has nothing to keep."""
        self._writer.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _start(control: socket.socket) -> subprocess.Popen[bytes]:
    """Without the marks of a worker's processes: the reaper must not take it for one."""
    return subprocess.Popen(
        [sys.executable, "-m", "pykoclaw_acp.transcripts.child", str(control.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={name: value for name, value in os.environ.items() if name not in MARKS},
        pass_fds=[control.fileno()],
    )
