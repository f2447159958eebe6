"""A client without a name is shown what a running call does, but not every change of it."""

from __future__ import annotations

from dataclasses import replace

from pykoclaw_acp.model import client_traits
from pykoclaw_acp.model.events import Event, ToolEnded, ToolProgressed, ToolStarted
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.server.pace import MOST, SLACK, ProgressPace
from pykoclaw_acp.sessions.live_pace import PER_SECOND, LivePace
from tests.waiting import eventually

PROGRESS = ToolProgressed("call")
ALLOWED = ToolProgressed("call", allowed=True)
STARTED = ToolStarted("call", "Bash", "make", "execute")
ENDED = ToolEnded("call", "completed")
PAUSE = client_traits.find(None).progress_pause


class Shown:
    """What a client of this name is shown; of what it is shown late, its places."""

    def __init__(self, name: str | None, *, pause: float | None = None) -> None:
        self.now = 0.0
        self.due: list[tuple[str, str]] = []
        self.pace = ProgressPace(
            lambda *key: self.due.append(key), LivePace(lambda: self.now), lambda: self.now
        )
        self._seq = 0
        self._traits = client_traits.find(name)
        if pause is not None:
            self._traits = replace(self._traits, progress_pause=pause)

    def admit(self, event: Event, session: str = "s", *, replayed: bool = False) -> bool:
        self._seq += 1
        logged = Logged(self._seq, "turn", event)
        return self.pace.admit(session, logged, self._traits, replayed=replayed)

    def late(self, session: str = "s") -> int | None:
        found = self.pace.take(session, "call")
        return None if found is None else found.seq


async def test_unnamed_client_is_shown_progress_with_pauses() -> None:
    shown = Shown(None)
    assert [shown.admit(one) for one in (STARTED, PROGRESS, PROGRESS)] == [True, True, False]
    assert shown.admit(PROGRESS, "other session")
    assert shown.admit(ToolProgressed("other call"))
    shown.now = PAUSE
    assert shown.admit(PROGRESS)
    assert not shown.admit(PROGRESS)
    shown.pace.stop()


async def test_newest_of_what_was_passed_over_follows() -> None:
    shown = Shown(None, pause=0.05)
    assert [shown.admit(PROGRESS) for _ in range(3)] == [True, False, False]
    await eventually(lambda: shown.due)
    assert shown.due == [("s", "call")]
    assert [shown.late(), shown.late()] == [3, None]
    assert not shown.admit(PROGRESS), "what comes late begins no pause"
    shown.pace.stop()


async def test_what_waits_is_replaced_by_what_is_shown() -> None:
    for newer in (ALLOWED, ENDED, PROGRESS):
        shown = Shown(None)
        assert [shown.admit(one) for one in (PROGRESS, PROGRESS)] == [True, False]
        shown.now = PAUSE if newer is PROGRESS else 1.0
        assert shown.admit(newer)
        assert shown.late() is None


async def test_client_that_loads_is_shown_newest_at_once() -> None:
    shown = Shown(None)
    assert [shown.admit(PROGRESS) for _ in range(2)] == [True, False]
    assert shown.admit(PROGRESS, "other")
    assert not shown.admit(PROGRESS, "other")
    shown.pace.begin("s", 2)
    assert shown.late() == 2, "what came before the place of a resume is not sent again"
    shown.pace.begin("s", 0)
    assert [shown.admit(PROGRESS, replayed=True) for _ in range(2)] == [True, True]
    assert not shown.admit(PROGRESS)
    shown.pace.stop("s")
    assert [shown.late(), shown.late("other")] == [None, 4]
    shown.pace.stop()


def test_end_of_request_and_call_do_not_wait() -> None:
    shown = Shown(None)
    assert [shown.admit(one) for one in (PROGRESS, ALLOWED, ENDED)] == [True] * 3


def test_mitto_is_shown_ends_and_editors_everything() -> None:
    for name, progress in (("mitto", False), ("zed", True), ("an editor", True)):
        shown = Shown(name)
        assert [shown.admit(one) for one in (STARTED, ENDED)] == [True, True]
        assert [shown.admit(one) for one in (PROGRESS, PROGRESS, ALLOWED)] == [progress] * 3


async def test_pace_remembers_newest_calls_only() -> None:
    shown = Shown(None)
    for n in range(MOST + 1):
        shown.now += 1 / PER_SECOND
        assert shown.admit(ToolProgressed(f"{n}"))
    assert shown.admit(ToolProgressed("0"))
    assert not shown.admit(ToolProgressed(f"{MOST}"))
    shown.pace.stop()


async def test_many_calls_get_no_more_than_client_draws() -> None:
    """With the first turn, and those that are taken early."""
    shown = Shown("zed")
    calls = [ToolProgressed(f"{n}") for n in range(200)]
    at_once = sum(shown.admit(one) for one in calls)
    assert 1 <= at_once <= 1 + SLACK * PER_SECOND
    shown.now = 1.0
    assert not any(shown.admit(one) for one in calls[PER_SECOND + 10 :]), "their turn is to come"
    shown.pace.stop()
