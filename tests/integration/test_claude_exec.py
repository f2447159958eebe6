"""The script through which a worker starts the claude CLI."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pykoclaw_acp.worker.options import WRAPPER

SAY = "import ctypes; at = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(at)); print(at.value)"


@pytest.mark.parametrize("setpriv", ["of this machine", "of busybox", "none"])
def test_claude_ends_with_its_worker_everywhere(tmp_path: Path, setpriv: str) -> None:
    """With util-linux's setpriv, one that cannot do that, and none."""
    sh = shutil.which("sh")
    assert sh is not None
    (tmp_path / "sh").symlink_to(sh)
    if setpriv == "of busybox":
        (tmp_path / "setpriv").write_text("#!/bin/sh\necho 'Usage: setpriv [OPTIONS]' && exit 1\n")
        (tmp_path / "setpriv").chmod(0o755)
    path = os.environ["PATH"] if setpriv == "of this machine" else os.fspath(tmp_path)
    environment = {
        "PATH": path,
        "PYKOCLAW_CLAUDE": sys.executable,
        "PYKOCLAW_PYTHON": sys.executable,
        "PYKOCLAW_CLAUDE_UMASK": "",
    }
    told = subprocess.check_output([WRAPPER, "-c", SAY], env=environment, text=True)
    assert int(told) == signal.SIGTERM
