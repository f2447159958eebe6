"""The check of `PYKOCLAW_NOTIFY`: who is told while nobody is there, and whether that works."""

from __future__ import annotations

import os
from typing import Final

from pykoclaw_acp.doctor.report import Context, Finding
from pykoclaw_acp.notify import targets
from pykoclaw_acp.notify.targets import CommandTarget
from pykoclaw_acp.system import trusted_path

_NAME: Final = "notices"


def notices(context: Context) -> Finding:
    """The programs exist and are nobody else's, and what was told was accepted."""
    unaccepted = (context.status or {}).get("unaccepted", [])
    if context.notify is None and not unaccepted:
        return Finding(
            _NAME, "ok", "nobody is told while you are away (PYKOCLAW_NOTIFY is not set)"
        )
    for one in targets.parse(context.notify or ""):
        if isinstance(one, CommandTarget) and (finding := _program(one)) is not None:
            return finding
    for one in unaccepted:
        name = one.get("name", "a target of PYKOCLAW_NOTIFY")  # an older daemon names none
        number = "a notice" if one["notices"] == 1 else f"{one['notices']} notices"
        return Finding(
            _NAME,
            "warning",
            f"{name} has not accepted {number}: {one['reason']}",
            "They are tried again for a day. Correct the target, or what it reports.",
        )
    return Finding(_NAME, "ok", f"while you are away, {context.notify}")


def _program(command: CommandTarget) -> Finding | None:
    """What is wrong with a program."""
    path = command.arguments[0]
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        return Finding(
            _NAME, "problem", f"{path} in PYKOCLAW_NOTIFY cannot be run",
            "Name a program that exists and is executable.",
        )  # fmt: skip
    weak = [one for one in trusted_path.examine(path, file=True) if one.certain]
    if weak:
        return Finding(_NAME, "warning", f"{path}: {weak[0].words}", weak[0].remedy)
    return None


CHECKS: Final = (notices,)
