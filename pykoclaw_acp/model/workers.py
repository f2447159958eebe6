"""Workers as people see them: plain data."""

from __future__ import annotations

from enum import StrEnum


class WorkerState(StrEnum):
    """What a worker does."""

    WORKING = "working"  # a turn runs
    ASKING = "asking"  # a permission request is pending, and not parked
    IDLE = "idle"  # neither
