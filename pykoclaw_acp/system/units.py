"""The units of a systemd, as systemctl(1) shows them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

SCOPES: Final = ("--user", "--system")


def installed(
    scope: str,
    units: Sequence[str],
    properties: Sequence[str],
    environment: Mapping[str, str],
    wait: float,
) -> list[dict[str, str]]:
    """Properties of the units that this systemd knows; empty if none answers. `wait`: in s, then
    subprocess.TimeoutExpired is raised; FileNotFoundError without a systemctl.
    """
    shown = subprocess.run(
        ["systemctl", scope, "show", f"--property=LoadState,{','.join(properties)}", *units],
        capture_output=True, text=True, check=False, timeout=wait, stdin=subprocess.DEVNULL,
        env=dict(environment),
    )  # fmt: skip
    blocks = shown.stdout.strip().split("\n\n") if shown.returncode == 0 else []
    found = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in blocks
    ]
    return [unit for unit in found if unit.get("LoadState", "not-found") != "not-found"]


def variables(unit: Mapping[str, str]) -> dict[str, str]:
    """What the property `Environment` of a unit sets."""
    try:
        words = shlex.split(unit.get("Environment", ""))
    except ValueError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)
