"""The processes of one home, from /proc: every child inherits the HOME of its stack."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pykoclaw_acp.system.lineage import WORKER_NAME
from pykoclaw_acp.system.processes import name

# workers are its forks, and show the same command
FORK_SERVER: Final = "pykoclaw_acp.worker.forkserver"
READER: Final = "pykoclaw_acp.transcripts.child"
COOKIE: Final = "PYKOCLAW_WORKER"


@dataclass(frozen=True, slots=True)
class Process:
    """A live process; `session` and `epoch` are those of the worker that it was started by, as its
    environment says.
    """

    pid: int
    parent: int
    command: str
    session: str | None
    epoch: int | None

    @property
    def is_claude(self) -> bool:
        """The CLI itself, not a tool of it."""
        return (
            self.session is not None and os.path.basename(self.command.split(" ", 1)[0]) == "claude"
        )

    @property
    def is_worker(self) -> bool:
        """The worker itself: a fork of the fork server."""
        return name(self.pid) == WORKER_NAME

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @property
    def alive(self) -> bool:
        return alive(self.pid)


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    return _stat(pid) is not None


def of_home(home: Path) -> list[Process]:
    """Every live process that runs under this home."""
    variable = b"HOME=" + os.fsencode(home)
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [process for pid in pids if (process := _look(pid, variable)) is not None]


def environment(pid: int) -> bytes:
    """The variables with which a process was started; none of one that has ended, or is another
    user's.
    """
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _look(pid: int, home: bytes) -> Process | None:
    variables = environment(pid).split(b"\0")
    if home not in variables:
        return None
    try:
        command = (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:
        return None
    fields = _stat(pid)
    if fields is None:
        return None
    mark = f"{COOKIE}=".encode()
    cookies = [one.removeprefix(mark).decode() for one in variables if one.startswith(mark)]
    session, epoch = cookies[-1].split(":")[1:] if cookies else (None, None)
    return Process(pid, int(fields[1]), command, session, None if epoch is None else int(epoch))


def _stat(pid: int) -> list[str] | None:
    """Fields of proc(5) stat from the state on; None for what is dead, a zombie too."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else fields
