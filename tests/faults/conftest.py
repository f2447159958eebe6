"""The stack of the end-to-end tests, and what is left of limits that were put on it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import model, stack

__all__ = ["model", "stack"]


@pytest.fixture(autouse=True)
def unmounted(tmp_path: Path) -> Iterator[None]:
    """What a limit has mounted is taken away after the stack has ended."""
    yield
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if (place := line.split(" ")[1]).startswith(f"{tmp_path}/"):
            subprocess.run(["umount", "--lazy", place], check=True)
