"""A front whose program was replaced by a version that has not its modules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pykoclaw_acp

RUN = "import runpy; runpy.run_module('pykoclaw_acp', run_name='__main__')"
REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"session/load","params":{}}\n'


def test_front_without_its_late_modules_says_so(tmp_path: Path) -> None:
    package = tmp_path / "installed" / "pykoclaw_acp"
    shutil.copytree(
        Path(pykoclaw_acp.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "front" / "spawn.py").unlink()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(package.parent),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=REQUEST,
        capture_output=True,
        env=environment,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert "was replaced by another version" in answer["error"]["message"]
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
