"""The program as the README has it installed: in an environment of its own, from the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import pykoclaw_acp
from tests.e2e.commands import done
from tests.e2e.harness import Stack, text
from tests.versions import direct
from tests.wheels import ALONE, CHECKOUT, Environment

PROGRAM: Final = "pykoclaw-acp"


def by_pip(root: Path, wheel: Path) -> Environment:
    """As pipx does it: `pip install` into a new environment."""
    made = Environment(root / "environment")
    made.install(wheel)
    return made


def by_uv(root: Path, wheel: Path) -> Environment:
    """`uv tool install` without network: dependencies are left out by a marker that never holds."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("there is no uv here")
    overrides = root / "overrides.txt"
    overrides.write_text("".join(f"{name} ; python_version < '3'\n" for name in direct()))
    places = {f"UV_{name}_DIR": str(root / name) for name in ("CACHE", "TOOL", "TOOL_BIN")}
    options = ["--offline", "--no-index", "--no-config", "--overrides", str(overrides)]
    subprocess.run(
        [uv, "tool", "install", *options, "--python", sys.executable, str(wheel)],
        check=True, capture_output=True, env={**os.environ, **places},
    )  # fmt: skip
    made = Environment(root / "TOOL/pykoclaw-acp")
    made.program = root / "TOOL_BIN/pykoclaw-acp"
    return made


@pytest.mark.parametrize("install", [by_pip, by_uv])
async def test_installed_program_needs_no_checkout(
    stack: Stack, tmp_path: Path, wheel: Path, install: Callable[[Path, Path], Environment]
) -> None:
    installed = install(tmp_path, wheel)
    started: dict[str, Any] = {"program": (str(installed.program),), **ALONE}
    assert pykoclaw_acp.__version__ in (await done(stack, "--version", **started)).out
    assert "doctor" in (await done(stack, "--help", **started)).out
    assert PROGRAM in (await done(stack, "completion", "bash", **started)).out
    manual = f"{PROGRAM}.1"
    shown = (installed.place / "share/man/man1" / manual).read_bytes()
    assert shown == (CHECKOUT / "docs" / manual).read_bytes()

    client = await stack.front(**started)  # finds no daemon, and starts one
    session = await client.new(stack.work)
    assert (await client.prompt(session, text("Good day.")))["stopReason"] == "end_turn"
    assert client.text(session) == "Good day."
    assert "✗" not in (await done(stack, "doctor", **started)).out
    for process in stack.find("pykoclaw_acp"):
        assert process.command.startswith(str(installed.place)), process


async def test_installed_program_brings_its_units(
    stack: Stack, tmp_path: Path, wheel: Path
) -> None:
    installed = by_pip(tmp_path, wheel)
    manager = tmp_path / "manager"
    manager.mkdir()
    (manager / "systemctl").write_text("#!/bin/sh\n")
    (manager / "systemctl").chmod(0o755)
    chosen = ("--program", str(installed.program), "--profile", "editor")
    environment = {"DESTDIR": str(tmp_path / "machine"), "PATH": f"{manager}:{os.environ['PATH']}"}
    await done(
        stack, "deploy", "install", "--system", *chosen, program=(str(installed.program),),
        **environment, **ALONE,
    )  # fmt: skip
    for unit in ("service", "socket"):
        name = f"system/{PROGRAM}.{unit}"
        written = tmp_path / "machine/etc/systemd" / name
        assert written.read_bytes() == (CHECKOUT / "deploy" / name).read_bytes()
