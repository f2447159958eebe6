"""Home and environment of the demo, and the signals that end it; everything is cleaned up in any
case.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.demo import processes
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.scripted_model.environment import offline_environment

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_REMOVE_TRIES: Final = 50
_REMOVE_PAUSE: Final = 0.02  # s
_OTHERS: Final = ("ANTHROPIC_", "CLAUDE")  # what would lead Claude elsewhere
_WORTH_TRYING: Final = ("cli_path", "crash_points")  # settings that the demo takes from its caller


@contextmanager
def temporary_home() -> Iterator[Path]:
    """A temporary home; at exit its processes are killed, and it is removed."""
    home = Path(tempfile.mkdtemp(prefix="pykoclaw-demo-")).resolve()
    try:
        for name in ("tmp", "project"):
            (home / name).mkdir()
        yield home
    finally:
        try:
            processes.kill(home)
        finally:
            _remove(home)


def _remove(home: Path) -> None:
    """Remove the directory; a process killed in a system call may still write for a moment."""
    for _ in range(_REMOVE_TRIES):
        shutil.rmtree(home, ignore_errors=True)
        if not home.exists():
            return
        time.sleep(_REMOVE_PAUSE)
    shutil.rmtree(home)


def environment(environ: Mapping[str, str], url: str, home: Path) -> dict[str, str]:
    """The caller's environment without settings and credentials, for a daemon that stays below
    `home`.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(_OTHERS)}
    # Empty is unset. PYKOCLAW_CLI_PATH stays: to see the story on another Claude CLI is a good use
    # of it.
    blank = {
        f"PYKOCLAW_{name.upper()}": ""
        for name in Settings.model_fields
        if name not in _WORTH_TRYING
    }
    # Without a runtime directory socket and daemon stay below `home` too, not in the user's
    # systemd.
    own = {"TMPDIR": str(home / "tmp"), "XDG_RUNTIME_DIR": ""}
    return kept | blank | offline_environment(url, home) | own


def places(home: Path) -> Places:
    """Places of the daemon that a front starts in that environment."""
    return Places(home / ".local/share/pykoclaw", home / ".local/state/pykoclaw")


class Interruption:
    """Cancels the demo at the first signal, so that everything is cleaned up; `signal` has its
    number.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._story: asyncio.Task[Any] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._interrupt) for number in ENDING}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def cancel_with(self, story: asyncio.Task[Any] | None) -> None:
        """Set the task to cancel; it is cancelled at once after a signal."""
        self._story = story
        if self.signal is not None and story is not None:
            story.cancel()

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
            if self._story is not None and not self._story.done():
                self._story.get_loop().call_soon_threadsafe(self._story.cancel)
