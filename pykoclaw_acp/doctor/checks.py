"""The checks of `pykoclaw-acp doctor`: read-only; each reports what it found and what to do about
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pykoclaw_acp.doctor import claude, database, machine, mitto, notices, wal
from pykoclaw_acp.doctor.report import Context, Finding

Check = Callable[[Context], Finding]


def examine(context: Context, checks: Sequence[Check]) -> list[Finding]:
    """Run the checks in order; a check that fails is reported as a warning and does not stop the
    others.
    """
    findings: list[Finding] = []
    for check in checks:
        try:
            findings.append(check(context))
        except Exception as error:  # noqa: BLE001  whatever it is, the other findings count
            findings.append(_failed(check, error))
    return findings


def _failed(check: Check, error: Exception) -> Finding:
    name = check.__name__.replace("_", " ")
    words = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    advice = "Look at what the error names."
    return Finding(name, "warning", f"could not be checked: {words}", advice)


def every() -> list[Check]:
    """All checks, in the order of the report."""
    return [
        *machine.CHECKS, *database.CHECKS, *wal.CHECKS, *claude.CHECKS, *mitto.CHECKS, *notices.CHECKS
    ]  # fmt: skip
