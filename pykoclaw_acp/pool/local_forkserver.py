"""The fork server as its daemon sees it: started when it is first needed, and again
when it died.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import structlog

from pykoclaw_acp.channel.processes import Forked, ForkRequest
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import LaunchFailed
from pykoclaw_acp.pool import forkserver_process
from pykoclaw_acp.pool.forkserver_process import StartingForkServer
from pykoclaw_acp.system import not_executed, shortage

CLOSE_WAIT: Final = 0.5  # s; for the fork server to end
FORK_WAIT: Final = 30.0  # s; the first fork waits for the SDK's import
MAX_DEATHS: Final = 3  # launches in a row that a dying fork server failed: the installation was changed, or is broken
CHANGED: Final = (
    "The installation of pykoclaw-acp, or of Python, was changed while the daemon was running:"
    " `pykoclaw-acp restart` makes the daemon use the new one"
)
MAX_LOG: Final = 10 * 1024 * 1024  # bytes of the workers' log, above which a launch begins it anew

log: Final = structlog.get_logger()


class ForkServer:
    """`log` is the file for what fork server and workers print; `resident`: workers outlive this
    process. `begun`: it was started already.
    """

    def __init__(
        self, log: Path, *, resident: bool, begun: StartingForkServer | None = None
    ) -> None:
        self.log = log
        self._resident = resident
        self._lock = asyncio.Lock()
        self._begun = begun
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._deaths = 0
        self._installed_first = self._installed = forkserver_process.installation()

    @property
    def pid(self) -> int | None:
        """The process of the fork server, while there is one."""
        return None if self._process is None else self._process.pid

    @property
    def broken(self) -> bool:
        """Whether the fork server cannot run, as far as is known."""
        return self._deaths >= MAX_DEATHS

    async def warm(self) -> None:
        """Start it, so that the first prompt does not wait for the SDK's import; raises OSError."""
        async with self._lock:
            await self.ensure()

    async def fork(self, request: ForkRequest) -> Forked:
        """Fork a worker; starts the fork server anew once if it is gone. Raises LaunchFailed."""
        async with self._lock:
            with contextlib.suppress(OSError):
                file = self.log.lstat()
                if stat.S_ISREG(file.st_mode) and file.st_size > MAX_LOG:
                    os.truncate(self.log, 0)
            for _ in range(2):
                try:
                    reader, writer = await self.ensure()
                    writer.write(msgspec.json.encode(request) + b"\n")
                    await writer.drain()
                    async with asyncio.timeout(FORK_WAIT):
                        line = await reader.readline()
                    if line:
                        self._deaths = 0
                        return msgspec.json.decode(line, type=Forked)
                except (OSError, TimeoutError) as error:
                    if (found := shortage.of(error, forks=True)) is not None:
                        self._discard()
                        raise LaunchFailed(*found) from error
                    if isinstance(error, OSError) and error.filename == sys.executable:
                        raise self._not_executed(error) from error
                    log.warning(
                        "The fork server is gone", action="fork_server_gone", error=str(error)
                    )
                self._discard()
        self._deaths += 1
        why = f"the fork server died; its log is {self.log}"
        if forkserver_process.installation() != self._installed_first:
            why = f"{why}. {CHANGED}"
        raise LaunchFailed(ErrorKind.START_FAILED, why)

    def _not_executed(self, error: OSError) -> LaunchFailed:
        """Python itself was removed, or replaced by something else; the log is told, too."""
        self._discard()
        self._deaths += 1
        changed = forkserver_process.installation() != self._installed_first
        remedy = CHANGED if changed else not_executed.REMEDY
        kind, said = not_executed.words(sys.executable, error, ErrorKind.START_FAILED, remedy)
        log.error("The fork server cannot be started", action="fork_server_gone", error=said)
        return LaunchFailed(kind, said)

    async def close(self) -> None:
        """End it; it waits for workers that end with this process."""
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

    async def ensure(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The streams of a live fork server; raises OSError."""
        if self._process is not None and self._process.poll() is not None:
            self._discard()
        installed = forkserver_process.installation()
        if self._process is not None and installed != self._installed:
            log.info("The fork server is started anew", action="installation_changed")
            self._discard()  # what its workers would import is of another version, or gone
        if self._reader is None or self._writer is None:
            log_file = _open_log(self.log)
            try:
                begun = self._begun or forkserver_process.begin(resident=self._resident)
                self._begun = None
                forkserver_process.hand_over(log_file, begun)
            finally:
                os.close(log_file)
            self._process, self._installed = begun.process, begun.installation
            self._reader, self._writer = await asyncio.open_unix_connection(sock=begun.control)
            log.debug("Fork server started", action="fork_server_started", pid=self._process.pid)
        return self._reader, self._writer

    def _discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = self._reader = self._writer = None


def _open_log(path: Path) -> int:
    """A descriptor of the file for what the fork server and its workers print, or of /dev/null if
    something else is there or it cannot be written; raises OSError if a resource is exhausted.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        reason = "it is not a file"
    except OSError as error:
        if shortage.of(error) is not None:
            raise
        reason = error.strerror or str(error)
    log.warning(
        "The log of the workers cannot be written; what they print is dropped",
        action="workers_log_unwritable",
        path=str(path),
        reason=reason,
    )
    return os.open(os.devnull, os.O_WRONLY)
