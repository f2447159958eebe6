"""Workers as people see them: plain data."""

from __future__ import annotations

from enum import StrEnum


class WorkerState(StrEnum):
    """What a worker does."""

    WORKING = "working"  # a turn runs
    HANGING = "hanging"  # a turn runs, and Claude's process does not answer
    ASKING = "asking"  # a permission request is pending, and not parked
    BACKGROUND = "background"  # no turn runs, but a subagent or a command does
    IDLE = "idle"  # nothing of these
