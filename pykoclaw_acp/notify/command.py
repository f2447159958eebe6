"""A command that is told: JSON on its standard input, a limited time, exit status 0."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from typing import Final

from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.notify.acceptance import NotAccepted
from pykoclaw_acp.notify.threads import abandonable
from pykoclaw_acp.system.lineage import MARKS
from pykoclaw_acp.system.secrets import looks_secret

LIMIT: Final = 10.0  # s
GRACE: Final = 5.0  # s more, in which the thread that runs it says that it was killed
_WORDS: Final = 200  # characters of what it said on stderr that are kept
_PIECE: Final = 64 * 1024  # bytes; all that a pipe holds


class CommandRun:
    """One run of a command. `kill` ends it, with what it started."""

    def __init__(self, arguments: tuple[str, ...], body: bytes) -> None:
        self._arguments = arguments
        self._body = body
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = threading.Event()

    def wait(self, limit: float) -> None:
        """Run it to its end, blocking; raises NotAccepted. After `kill` it is not started."""
        if self._killed.is_set():
            raise NotAccepted("it was stopped")
        with open(os.memfd_create("notice"), "w+b", buffering=0) as notice:
            notice.write(self._body)
            notice.seek(0)
            try:
                # In a process group, not in a session, of its own: who reaps orphans leaves it to us.
                self._process = subprocess.Popen(
                    self._arguments,
                    stdin=notice,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    cwd="/",
                    env=_environment(),
                    process_group=0,
                )
            except OSError as error:
                raise NotAccepted(f"it could not be started: {error.strerror}") from error
        if self._killed.is_set():
            self.kill()
        assert self._process.stderr is not None
        with self._process.stderr as stderr:
            said = _until_exit(self._process.pid, stderr.fileno(), time.monotonic() + limit)
            if said is None:
                self.kill()
            status = self._process.wait()
        if said is None:
            raise NotAccepted(f"it ran for more than {limit:.0f} s")
        if status:
            words = neutral(said.decode(errors="replace").strip()[-_WORDS:])
            raise NotAccepted(f"exit status {status}{f': {words}' if words else ''}")

    def kill(self) -> None:
        """SIGKILL it, and what it started in its process group."""
        self._killed.set()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _until_exit(pid: int, stderr: int, until: float) -> bytes | None:
    """The end of what a child says until it exits, which is not the end of its pipe: what it leaves
    behind may hold that. None: it has not exited in time.
    """
    said = b""
    exited = os.pidfd_open(pid)
    try:
        waiting = select.poll()
        waiting.register(exited, select.POLLIN)  # first: what was said before is then seen as well
        waiting.register(stderr, select.POLLIN)
        while ready := dict(waiting.poll(max(until - time.monotonic(), 0) * 1000)):
            if stderr in ready:
                piece = os.read(stderr, _PIECE)
                said = (said + piece)[-_WORDS * 4 :]
                if not piece:
                    waiting.unregister(stderr)
            if exited in ready:
                return said
            if time.monotonic() > until:
                break
        return None
    finally:
        os.close(exited)


async def tell(arguments: tuple[str, ...], body: bytes, limit: float = LIMIT) -> None:
    """Run the command; raises NotAccepted. It is killed if the caller is cancelled, and abandoned
    if it cannot even be started or killed in time.
    """
    run = CommandRun(arguments, body)
    try:
        async with asyncio.timeout(limit + GRACE):
            await abandonable(lambda: run.wait(limit))
    except TimeoutError:
        raise NotAccepted(f"it hung for more than {limit + GRACE:.0f} s") from None
    finally:
        run.kill()


def _environment() -> dict[str, str]:
    """The daemon's, without secrets, which a command does not need."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in MARKS and not looks_secret(name)
    }
