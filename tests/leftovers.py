"""What a test run left behind: processes and temporary files, found by marks that every child
inherits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.waiting import eventually_sync

_RUN = "PYKOCLAW_TEST_RUN"
_EXPECTED = ("home",)  # what may be in a run's directory at its end
_GRACE = 60  # seconds that processes which are ending may take


class Run:
    """One test run. It has its own temporary directory, so that nobody else's files are taken for
    its own.

    Making it changes this process's environment, which xdist's workers and all that tests start
    inherit: the developer's home, settings and credentials are out of reach of every test.
    """

    def __init__(self) -> None:
        self.id = str(uuid.uuid4())
        # pytest's own directories stay where they are kept for a look after a failure.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        self.directory = Path(tempfile.mkdtemp(prefix="pk-"))
        home = self.directory / "home"
        home.mkdir()
        for name in foreign_variables(os.environ):
            del os.environ[name]
        os.environ.update(
            {
                _RUN: self.id,
                "HOME": str(home),
                "TMPDIR": str(self.directory),
                "CLAUDE_CODE_TMPDIR": str(self.directory),
            }
        )
        tempfile.tempdir = str(self.directory)

    def leftovers(self) -> list[str]:
        """What is left, for people; processes get `_GRACE` to end, and are killed after that."""
        try:
            eventually_sync(lambda: not self._processes(), timeout=_GRACE)
        except AssertionError:
            processes = self._processes()
        else:
            processes = {}
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        files = [path for path in self.directory.iterdir() if path.name not in _EXPECTED]
        return [f"process {pid}: {command}" for pid, command in processes.items()] + [
            f"file {path}" for path in files
        ]

    def close(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def _processes(self) -> dict[int, str]:
        mark = f"{_RUN}={self.id}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    command = (
                        (entry / "cmdline")
                        .read_bytes()
                        .replace(b"\0", b" ")
                        .decode(errors="replace")
                        .strip()
                    )
                    found[int(entry.name)] = command
            except OSError:
                continue  # ended meanwhile, or not ours
        return found


def foreign_variables(environ: Mapping[str, str]) -> list[str]:
    """The names of the variables that belong to somebody's own set-up, not to the run."""
    kept = {_RUN, "PYKOCLAW_TEST_LONG", "CLAUDE_CODE_TMPDIR"}
    prefixes = ("PYKOCLAW_", "ANTHROPIC_", "CLAUDE", "XDG_")
    foreign = {"PYTHONUNBUFFERED"}  # a log that cannot be written loses lines with it
    return [
        name
        for name in environ
        if (name.startswith(prefixes) and name not in kept) or name in foreign
    ]
