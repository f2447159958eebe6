"""Wheels of the program, and environments that they are installed in."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).parents[1]
# Nothing from outside of an environment, such as the checkout.
ALONE: Final = {"PYTHONPATH": ""}


def build(tree: Path, into: Path) -> Path:
    """The wheel of a source tree, in a new directory."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    (wheel,) = into.glob("*.whl")
    return wheel


class Environment:
    """A virtual environment that has its packages, but for the program, from that of the tests."""

    def __init__(self, place: Path) -> None:
        """`place`: of an environment that there is, or of a new one."""
        self.place = place
        self.program = place / "bin/pykoclaw-acp"
        if not place.exists():
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
        self.packages = next(place.glob("lib/python3*/site-packages"))
        # A directory that is named so comes last, and links to checkouts in it have no effect.
        others = self.packages / "packages_of_the_tests.pth"
        others.write_text(sysconfig.get_path("purelib") + "\n")

    def install(self, wheel: Path) -> None:
        """As `pip install` does: an installed version is replaced by this one, in its place."""
        pip = [sys.executable, "-m", "pip", "--python", f"{self.place}/bin/python", "install"]
        options = ["--quiet", "--no-index", "--no-deps", "--no-cache-dir", "--no-compile"]
        subprocess.run(
            [*pip, *options, "--force-reinstall", str(wheel)],
            check=True, capture_output=True, env={**os.environ, **ALONE},
        )  # fmt: skip
