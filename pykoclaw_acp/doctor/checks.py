"""`pykoclaw-acp doctor`: small checks that change nothing; each says what it found, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pykoclaw_acp.doctor import claude, database, machine, wal
from pykoclaw_acp.doctor.report import Context, Finding

Check = Callable[[Context], Finding]


def examine(context: Context, checks: Sequence[Check]) -> list[Finding]:
    """Run the checks in their order; one that cannot look says so and keeps no other from looking."""
    findings: list[Finding] = []
    for check in checks:
        try:
            findings.append(check(context))
        except (OSError, ValueError, KeyError) as error:
            name = check.__name__.replace("_", " ")
            findings.append(Finding(name, "warning", f"could not be checked: {error}", "Look at what the error names."))
    return findings


def every() -> list[Check]:
    """All of them, in the order in which people read them."""
    return [*machine.CHECKS, *database.CHECKS, *wal.CHECKS, *claude.CHECKS]
