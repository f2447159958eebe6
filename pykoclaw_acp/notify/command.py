"""A command that is told: JSON on its standard input, a limited time, exit status 0."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import Final

from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.notify.acceptance import NotAccepted
from pykoclaw_acp.notify.threads import abandonable
from pykoclaw_acp.system.lineage import MARKS
from pykoclaw_acp.system.secrets import looks_secret

LIMIT: Final = 10.0  # s
_WORDS: Final = 200  # characters of what it said on stderr that are kept


class Run:
    """One run of a command. `kill` ends it, with what it started."""

    def __init__(self, arguments: tuple[str, ...], body: bytes) -> None:
        self._arguments = arguments
        self._body = body
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def wait(self, limit: float) -> None:
        """Run it to its end, blocking; raises NotAccepted."""
        try:
            # In a process group, not in a session, of its own: who reaps orphans leaves it to us.
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env=_environment(),
                process_group=0,
            )
        except OSError as error:
            raise NotAccepted(f"it could not be started: {error.strerror}") from error
        if self._killed:
            self.kill()
        try:
            _, said = self._process.communicate(self._body, limit)
        except subprocess.TimeoutExpired:
            self.kill()
            self._close()
            raise NotAccepted(f"it ran for more than {limit:.0f} s") from None
        if status := self._process.returncode:
            words = neutral(said.decode(errors="replace").strip()[-_WORDS:])
            raise NotAccepted(f"exit status {status}{f': {words}' if words else ''}")

    def kill(self) -> None:
        """SIGKILL it, and what it started in its process group."""
        self._killed = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _close(self) -> None:
        """Reap it, and let go of its pipes, which what it started may still hold."""
        assert self._process is not None
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


async def tell(arguments: tuple[str, ...], body: bytes, limit: float = LIMIT) -> None:
    """Run the command; raises NotAccepted. It is killed if the caller is cancelled."""
    run = Run(arguments, body)
    try:
        await abandonable(lambda: run.wait(limit))
    except asyncio.CancelledError:
        run.kill()
        raise


def _environment() -> dict[str, str]:
    """The daemon's, without secrets, which a command does not need."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in MARKS and not looks_secret(name)
    }
