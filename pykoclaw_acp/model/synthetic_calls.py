"""Calls in a log that no tool was called for: waits for Claude's service, and compactions.

They are events of tool calls, so that whatever repeats, folds and closes those does it with them.
Most clients show them as such; `protocol/presentation.py` knows those that have updates for them.
"""

from __future__ import annotations

from typing import Final

RETRY: Final = "retry-"  # beginnings of ids; those of Claude's own calls are others
COMPACTION: Final = "compaction-"


def is_synthetic(call_id: str) -> bool:
    """Whether no tool was called."""
    return call_id.startswith((RETRY, COMPACTION))
