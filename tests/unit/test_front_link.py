"""What a front makes of what its daemon says, and how long it waits for the answer to its hello."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from pykoclaw_acp.front.ledger import Ledger
from pykoclaw_acp.front.link import LATE, Link
from pykoclaw_acp.front.receipts import Receipts
from pykoclaw_acp.link import lines

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
        assert not made.check_overdue()
        assert made.answer_by == began + PATIENCE
        now = began + PATIENCE
        assert made.check_overdue()
        assert looks == 1


def test_daemon_that_takes_leave_still_gives_places() -> None:
    """A request that is under way then may yet open a session."""
    unused: Any = None
    ledger, daemon = Ledger(), {"pid": 7}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Link(ours, ledger, unused, Receipts(), lambda: PATIENCE)
        theirs.sendall(lines.WELCOME.build(text=json.dumps({"daemon": daemon}).encode()))
        theirs.sendall(lines.BYE.build())
        theirs.sendall(lines.ATTACHED.build(1, 5, 0, text=b'"one"'))
        assert made.read()
    assert made.ends
    hello = json.loads(ledger.hello({}).partition(b" ")[2])
    assert hello["daemon"] == daemon
