"""How long a front waits for the daemon's answer to its hello."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pykoclaw_acp.front.link import LATE, Link

PATIENCE = 60.0  # s


def test_only_late_daemons_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking who has the lock takes as long as the rest of a connection."""
    now, looks = 100.0, 0
    monkeypatch.setattr("pykoclaw_acp.front.link.time.monotonic", lambda: now)

    def patience() -> float:
        nonlocal looks
        looks += 1
        return PATIENCE

    unused: Any = None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Link(ours, unused, unused, unused, patience)
        assert (made.answer_by, looks) == (now + LATE, 0)
        began, now = now, now + LATE
        assert not made.is_overdue()
        assert made.answer_by == began + PATIENCE
        now = began + PATIENCE
        assert made.is_overdue()
        assert looks == 1
