"""Workers as processes on this machine, forked by our own fork server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import msgspec
import structlog

from pykoclaw_acp.channel.frames import FromWorker, LongPrompt, ToWorker, decode_from_worker, encode
from pykoclaw_acp.channel.processes import Forked, LeftWorker, WorkerProcess
from pykoclaw_acp.channel.socket import SocketLine, connect, read_batches
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.errors import LaunchFailed, RestartWanted
from pykoclaw_acp.pool import leftovers
from pykoclaw_acp.system import processes, reaper, shortage
from pykoclaw_acp.system.lineage import MARKS

CLOSE_WAIT: Final = 0.5  # s; for the fork server to end
FORK_WAIT: Final = 30.0  # s; the first fork waits for the SDK's import
MAX_DEATHS: Final = 3  # launches in a row that a dying fork server failed: the installation was changed, or is broken
MAX_LOG: Final = 10 * 1024 * 1024  # bytes of the workers' log, above which a launch begins it anew

log: Final = structlog.get_logger()


class LocalChannel:
    """The socket and the pidfd of one worker process."""

    def __init__(self, process: WorkerProcess, pidfd: int, line: SocketLine) -> None:
        self.process = process
        self._line = line
        self._pidfd = pidfd
        self._gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(pidfd, self._ended)

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


class LocalLauncher:
    """Starts the fork server when it is first needed, and again when it died."""

    def __init__(self, directory: Path, *, resident: bool) -> None:
        """`resident`: workers outlive this process."""
        self._log = directory / "workers.log"
        self._resident = resident
        self._lock = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._boot_id = processes.boot_id()
        self._deaths = 0
        self._pids: dict[str, int] = {}  # of live workers, by their cookies
        processes.become_subreaper()

    async def warm(self) -> None:
        """Start the fork server, so that the first prompt does not wait for the SDK's import."""
        async with self._lock:
            await self._ensure()

    async def launch(self, spec: LaunchSpec) -> LocalChannel:
        """Fork a worker and connect to it; raises LaunchFailed."""
        try:
            os.makedirs(spec.temporary, mode=0o700, exist_ok=True)
        except OSError as error:
            raise _failed(error, "its temporary directory cannot be made") from error
        forked = await self._fork(spec)
        if forked.error is not None:
            raise LaunchFailed(forked.kind, forked.error)
        process = WorkerProcess(forked.pid, forked.start_time, self._boot_id)
        try:
            channel = await _connect(process, spec.socket)
        except (OSError, LaunchFailed) as error:
            reaper.send(process.pid, process.start_time, signal.SIGKILL)
            raise _failed(error, "the worker cannot be reached") from error
        self._pids[spec.cookie] = process.pid
        return channel

    async def attach(self, left: LeftWorker) -> LocalChannel:
        """Connect to a worker that another daemon launched; raises LaunchFailed."""
        self._pids[left.identity.cookie] = left.process.pid
        try:
            return await _connect(left.process, left.identity.socket)
        except OSError as error:
            raise LaunchFailed("start_failed", f"the worker cannot be reached: {error}") from error

    def spooled(self, identity: WorkerIdentity, after: int) -> Iterator[list[FromWorker]]:
        """Batches of what the dead worker has left on disk."""
        return leftovers.read_spool(Path(identity.spool), identity.epoch, after)

    async def end(self, process: WorkerProcess, grace: float) -> None:
        """SIGTERM, after `grace` (s) SIGKILL."""
        await asyncio.to_thread(reaper.end_these, [reaper.Stray(process.pid, process.start_time)], grace)

    async def clean(self, identity: WorkerIdentity, grace: float, *, keep_spool: bool = False) -> None:
        """End what the dead worker left, collect the dead, remove its socket, spool and temporary files."""
        self._pids.pop(identity.cookie, None)
        strays = await reaper.end(lambda cookie: cookie == identity.cookie, grace, frozenset(self._pids.values()))
        if strays:
            log.info("Ended what a dead worker left behind", action="strays_ended", pids=[s.pid for s in strays])
        processes.reap_orphans(frozenset([self._process.pid]) if self._process else frozenset())
        await asyncio.to_thread(remove, identity, keep_spool=keep_spool)

    async def probe(self) -> None:
        """Raises RestartWanted when the fork server has failed three launches in a row."""
        if self._deaths >= MAX_DEATHS:
            raise RestartWanted(f"The fork server cannot run; its log is {self._log}.")

    async def close(self) -> None:
        """End the fork server, which waits for workers that end with this process."""
        async with self._lock:
            if self._writer is not None:
                self._writer.close()
                with contextlib.suppress(OSError):
                    await self._writer.wait_closed()
            if self._process is not None:
                try:
                    await asyncio.to_thread(self._process.wait, CLOSE_WAIT)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
                self._process = None

    async def _fork(self, spec: LaunchSpec) -> Forked:
        async with self._lock:
            with contextlib.suppress(FileNotFoundError):
                if self._log.stat().st_size > MAX_LOG:
                    os.truncate(self._log, 0)
            for _ in range(2):
                try:
                    reader, writer = await self._ensure()
                    writer.write(msgspec.json.encode(spec) + b"\n")
                    await writer.drain()
                    line = await asyncio.wait_for(reader.readline(), FORK_WAIT)
                    if line:
                        self._deaths = 0
                        return msgspec.json.decode(line, type=Forked)
                except (OSError, TimeoutError) as error:  # OSError also: Python itself was replaced
                    if shortage.of(error, forks=True) is not None:
                        self._discard()
                        raise _failed(error, "the fork server cannot be started") from error
                    log.warning("The fork server is gone", action="fork_server_gone", error=str(error))
                self._discard()
        self._deaths += 1
        raise LaunchFailed("start_failed", f"the fork server died; its log is {self._log}")

    async def _ensure(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._process is not None and self._process.poll() is not None:
            self._discard()
        if self._reader is None or self._writer is None:
            ours, theirs = socket.socketpair()
            try:
                self._process = self._start(theirs)
            except OSError:
                ours.close()
                raise
            finally:
                theirs.close()
            self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
            log.debug("Fork server started", action="fork_server_started", pid=self._process.pid)
        return self._reader, self._writer

    def _start(self, control: socket.socket) -> subprocess.Popen[bytes]:
        daemon = [str(os.getpid())] if self._resident else []
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "pykoclaw_acp.worker.forkserver", str(control.fileno()), *daemon],
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                cwd="/",
                env={name: value for name, value in os.environ.items() if name not in MARKS},
                pass_fds=[control.fileno()],
                start_new_session=True,
            )
        finally:
            os.close(descriptor)

    def _discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = self._reader = self._writer = None


def _failed(error: OSError | LaunchFailed, what: str) -> LaunchFailed:
    if (found := shortage.of(error, forks=True)) is not None:
        return LaunchFailed(*found)
    return LaunchFailed("start_failed", f"{what}: {error}")


async def _connect(process: WorkerProcess, path: str) -> LocalChannel:
    connection = await connect(path)
    try:
        pidfd = _open_pidfd(process)
    except (OSError, LaunchFailed):
        connection.close()
        raise
    return LocalChannel(process, pidfd, SocketLine(connection))


def _open_pidfd(process: WorkerProcess) -> int:
    pidfd = os.pidfd_open(process.pid)
    if processes.start_time(process.pid) != process.start_time:
        os.close(pidfd)
        raise LaunchFailed("start_failed", "it died at once")
    return pidfd


def remove(identity: WorkerIdentity, *, keep_spool: bool = False) -> None:
    """The files of a dead worker."""
    Path(identity.socket).unlink(missing_ok=True)
    if not keep_spool:
        Path(identity.spool).unlink(missing_ok=True)
    shutil.rmtree(identity.temporary, ignore_errors=True)
