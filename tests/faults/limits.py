"""Ways in which the operating system, or another program, keeps the daemon from writing its
database.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from pykoclaw_acp.link.places import connect
from tests.e2e.harness import Stack
from tests.e2e.harness.stack import PROGRAM
from tests.waiting import eventually

TMPFS_SIZE: Final = 8 * 1024 * 1024  # bytes
_HOLD_LOCK: Final = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None);"
    " c.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
)


class Limit(ABC):
    """`on` and `off`; `state` is what the daemon then says of its store."""

    state = "blocked"
    before: tuple[str, ...] = ()  # what a daemon's command line begins with, so that it starts so

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.held = ExitStack()

    @abstractmethod
    def on(self) -> None:
        """Begin."""

    def off(self) -> None:
        self.held.close()


class FileSize(Limit):
    """RLIMIT_FSIZE on the daemon: each write fails with EFBIG."""

    def on(self) -> None:
        self._set(1)
        self.held.callback(self._set, resource.RLIM_INFINITY)

    def _set(self, soft: int) -> None:
        pid = self.stack.daemon_pid()
        if pid is not None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))

    def off(self) -> None:
        self.held.pop_all()
        self._set(resource.RLIM_INFINITY)
        for process in self.stack.processes():  # what the daemon started meanwhile has it, too
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(
                    process.pid,
                    resource.RLIMIT_FSIZE,
                    (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
                )


class FileSizeFromStart(FileSize):
    """RLIMIT_FSIZE on a daemon from its start: the `-shm` fits, and a commit does not."""

    before = ("prlimit", "--fsize=65536:")

    def on(self) -> None:
        """The daemon begins with it."""


class FullDisk(Limit):
    """The data directory is a small tmpfs that a file of somebody else's fills."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        stack.data.mkdir(parents=True, mode=0o700)
        mount = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_SIZE},mode=0700", "tmpfs", str(stack.data)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if mount.returncode:
            pytest.skip(f"a tmpfs cannot be mounted here: {mount.stderr.strip()}")

    def on(self) -> None:
        filler = self.stack.data / "filler"
        self.held.callback(filler.unlink, missing_ok=True)
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)


class Immutable(Limit):
    """`chattr +i` on the directory and its files, which root's own writes respect, too.

    The `-shm` is spared: who writes to a mapping of an immutable file gets SIGBUS, which ends a
    daemon as SIGKILL does.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        probe = stack.root / "probe"
        probe.touch()
        if _chattr("+i", probe):
            pytest.skip("files cannot be made immutable here")
        _chattr("-i", probe)

    def on(self) -> None:
        files = (
            path
            for path in self.stack.data.iterdir()
            if path.is_file() and not path.name.endswith("-shm")
        )
        paths = [*files, self.stack.data]
        for path in paths:
            self.held.callback(_chattr, "-i", path)
            assert _chattr("+i", path) == 0


class ReadOnlyMount(Limit):
    """The data directory is mounted read-only, which no file may be open for."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        place = str(stack.data)
        stack.data.mkdir(parents=True, mode=0o700)
        mount = subprocess.run(
            ["mount", "--bind", place, place], capture_output=True, text=True, check=False
        )
        if mount.returncode:
            pytest.skip(f"nothing can be mounted here: {mount.stderr.strip()}")

    def on(self) -> None:
        self._remount("ro")
        self.held.callback(self._remount, "rw")

    def _remount(self, mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,bind,{mode}", str(self.stack.data)], check=True)


class Locked(Limit):
    """Another process holds the write lock."""

    state = "locked"

    def on(self) -> None:
        self.held.enter_context(_lock(self.stack.data / "pykoclaw.db"))


class Moved(Limit):
    """The database is not at its place: another program has moved it away, and moves it back."""

    state = "gone"

    def on(self) -> None:
        place = self.stack.data / "pykoclaw.db"
        aside = place.with_suffix(".aside")
        os.rename(place, aside)
        self.held.callback(os.rename, aside, place)


def _chattr(flag: str, path: Path) -> int:
    return subprocess.run(["chattr", flag, str(path)], capture_output=True, check=False).returncode


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD_LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
    finally:
        holder.communicate(b"")


IN_USE: Final[dict[str, type[Limit]]] = {
    "file size": FileSize,
    "full disk": FullDisk,
    "immutable": Immutable,
    "locked": Locked,
    "moved": Moved,
}
AT_START: Final[dict[str, type[Limit]]] = {
    "file size": FileSizeFromStart,
    "full disk": FullDisk,
    "immutable": Immutable,
    "locked": Locked,
    "read-only mount": ReadOnlyMount,
}


async def limited_daemon(
    stack: Stack, *before: str, **environment: str
) -> asyncio.subprocess.Process:
    """A daemon that may be unable to write down its pid."""
    with (stack.root / "daemon.log").open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            *before, *PROGRAM, "serve", stdin=asyncio.subprocess.DEVNULL, stdout=stderr, stderr=stderr,
            env=stack.environment | environment, cwd="/",
        )  # fmt: skip
    stack.daemons.append(process)

    def serves() -> bool:
        assert process.returncode is None, (stack.root / "daemon.log").read_text()[-1500:]
        try:
            connect(stack.places.socket).close()
        except OSError:
            return False
        return True

    await eventually(serves)
    return process
