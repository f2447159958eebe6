"""The check of `PYKOCLAW_NOTIFY`: who is told while nobody is there, and whether that works."""

from __future__ import annotations

import os
from typing import Final

from pykoclaw_acp.doctor.report import Context, Finding
from pykoclaw_acp.model.notices import DeliveryTarget
from pykoclaw_acp.notify import targets
from pykoclaw_acp.notify.targets import CommandTarget
from pykoclaw_acp.system import trusted_path

_NAME: Final = "notices"


def notices(context: Context) -> Finding:
    """The programs exist and are nobody else's, and what was told was accepted."""
    if context.notify is None:
        return Finding(
            _NAME, "ok", "nobody is told while you are away (PYKOCLAW_NOTIFY is not set)"
        )
    found = targets.parse(context.notify)
    for one in found:
        if isinstance(one, CommandTarget) and (finding := _program(one)) is not None:
            return finding
    names = {one.key: one.shown for one in found if not isinstance(one, DeliveryTarget)}
    told = ", ".join(
        one.conversation if isinstance(one, DeliveryTarget) else one.shown for one in found
    )
    for one in (context.status or {}).get("unaccepted", []):
        if one["target"] in names:
            words = (
                f"{names[one['target']]} has not accepted {one['notices']} notices: {one['reason']}"
            )
            return Finding(
                _NAME,
                "warning",
                words,
                "They are tried again for a day. Correct the target, or what it reports.",
            )
    return Finding(_NAME, "ok", f"while you are away, {told}")


def _program(command: CommandTarget) -> Finding | None:
    """What is wrong with a program."""
    path = command.arguments[0]
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        return Finding(
            _NAME, "problem", f"{path} in PYKOCLAW_NOTIFY cannot be run",
            "Name a program that exists and is executable.",
        )  # fmt: skip
    weak = [one for one in trusted_path.examine(os.path.dirname(path)) if one.certain]
    if weak:
        return Finding(_NAME, "warning", f"{path}: {weak[0].words}", weak[0].remedy)
    return None


CHECKS: Final = (notices,)
