"""What a front imports decides how fast it starts."""

from __future__ import annotations

import json
import subprocess
import sys

SLOW = {
    "asyncio",
    "subprocess",
    "socket",
    "typing",
    "dataclasses",
    "logging",
    "uuid",
    "pathlib",
    "inspect",
    "hashlib",
}


def test_front_imports_little_and_no_installed_package() -> None:
    program = (
        "import json, sys; before = set(sys.modules); import pykoclaw_acp.front.process, signal;"
        "new = sorted(set(sys.modules) - before); print(json.dumps([new, sorted(sys.stdlib_module_names)]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    imported, known = json.loads(result.stdout)
    packages = {name.partition(".")[0] for name in imported}
    assert packages - set(known) == {"pykoclaw_acp"}
    assert packages & SLOW == set()
    ours = {
        name.partition(".")[2].partition(".")[0]
        for name in imported
        if name.startswith("pykoclaw_acp")
    }
    assert ours == {"", "error_kinds", "errors", "front", "link", "system"}
