"""What a front makes of starts of the daemon that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.front import spawn
from pykoclaw_acp.front.dial import Dialer
from pykoclaw_acp.link.places import Places


class DeadDaemon:
    """Ends without a word."""

    pipe = 0
    scopes: list[bool]

    def __init__(self, places: Places, *, scope: bool) -> None:
        self.scopes.append(scope)

    def word(self) -> str:
        return ""

    def reap(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def dialer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dialer:
    """Whose daemons are dead ones."""
    DeadDaemon.scopes = []
    monkeypatch.setattr(spawn, "Starting", DeadDaemon)
    monkeypatch.setattr(spawn, "can_have_scope", lambda: True)
    place = tmp_path / "run" / "acp.sock"
    return Dialer(Places(str(tmp_path / "data"), str(tmp_path / "state"), str(place)))


def start(dialer: Dialer) -> None:
    """Have a daemon started, after the end of another."""
    count = len(DeadDaemon.scopes)
    while len(DeadDaemon.scopes) == count:
        assert dialer.attempt() is None


def test_scope_is_tried_again_after_service(dialer: Dialer) -> None:
    start(dialer)
    start(dialer)
    assert DeadDaemon.scopes == [True, False]
    dialer.close()
    dialer.note_welcome(0)
    start(dialer)
    assert DeadDaemon.scopes == [True, False, True]
