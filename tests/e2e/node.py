"""Clients that run on Node, each in a folder of its own; `make node` installs them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def require(folder: Path) -> None:
    """Skip the test where the client in this folder cannot run, unless PYKOCLAW_TEST_NODE=1 demands
    it.
    """
    reason = _missing(folder)
    if reason is not None and os.environ.get("PYKOCLAW_TEST_NODE") != "1":
        pytest.skip(reason)
    assert reason is None, reason


def _missing(folder: Path) -> str | None:
    if shutil.which("node") is None:
        return "there is no node"
    if not (folder / "node_modules/.package-lock.json").exists():
        return f"what {folder.name} needs is not installed: make node"
    return None
