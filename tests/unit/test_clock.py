"""The own clock: one for all processes of a boot, counted on from one boot to the next, and never
turned back.
"""

from __future__ import annotations

import time

import pytest

from pykoclaw_acp.system import clock, processes
from pykoclaw_acp.system.clock import Clock, ClockReading


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Boot:
    return Boot(monkeypatch)


class Boot:
    """A machine whose boots and uptimes the test says."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def is_(self, boot_id: str, uptime: int) -> None:
        self._patch.setattr(processes, "boot_id", lambda: boot_id)
        self._patch.setattr(clock, "uptime", lambda: uptime)


def test_clock_starts_at_zero_and_counts_awake_time(boot: Boot) -> None:
    boot.is_("a", 5000)
    one = Clock(None)
    assert (one.started, one.now()) == (0, 0)
    boot.is_("a", 7000)
    assert (one.now(), one.at(6000), one.age(500)) == (2000, 1000, 1.5)


def test_processes_of_same_boot_agree_across_downtime(boot: Boot) -> None:
    boot.is_("a", 5000)
    one = Clock(None)
    boot.is_("a", 6000)
    noted = one.note()
    boot.is_("a", 9000)
    other = Clock(noted)
    assert one.now() == other.now() == 4000
    assert one.at(5500) == other.at(5500)
    assert Clock(one.note()).now() == 4000


def test_new_boot_continues_from_note_plus_uptime(boot: Boot) -> None:
    boot.is_("b", 300)
    one = Clock(ClockReading("a", 70_000, 50_000))
    assert one.started == 50_300
    assert one.age(50_000) == 0.3
    assert one.age(59_000) == 0, "written after the last note: as young as can be"
    boot.is_("b", 900)
    assert Clock(ClockReading("a", 70_000, 50_000)).now() == one.now(), (
        "and a second daemon, before any note, agrees"
    )


def test_snapshot_restore_does_not_turn_clock_back(boot: Boot) -> None:
    boot.is_("a", 100)
    assert Clock(ClockReading("a", 5000, 4000)).now() == 4000


def test_the_wall_clock_is_nothing_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Clock(None)
    before = one.now()
    for jump in (-5, 5):
        wall = time.time_ns() + jump * 3600 * 10**9
        monkeypatch.setattr(time, "time_ns", lambda wall=wall: wall)
        monkeypatch.setattr(time, "time", lambda wall=wall: wall / 1e9)
        assert 0 <= one.now() - before < 600_000
