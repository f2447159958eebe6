"""A client without a name is shown what a running call does, but not every change of it."""

from __future__ import annotations

from pykoclaw_acp.model import client_traits
from pykoclaw_acp.model.events import Event, ToolEnded, ToolProgressed, ToolStarted
from pykoclaw_acp.server.pace import MOST, ProgressPace

PROGRESS = ToolProgressed("call")
ALLOWED = ToolProgressed("call", allowed=True)
STARTED = ToolStarted("call", "Bash", "make", "execute")
ENDED = ToolEnded("call", "completed")


class Shown:
    """What a client of this name is shown."""

    def __init__(self, name: str | None) -> None:
        self.now = 0.0
        self._traits = client_traits.find(name)
        self._pace = ProgressPace(lambda: self.now)

    def takes(self, event: Event, session: str = "s") -> bool:
        return self._pace.takes(session, event, self._traits)


def test_unnamed_client_is_shown_progress_with_pauses() -> None:
    shown = Shown(None)
    assert [shown.takes(one) for one in (STARTED, PROGRESS, PROGRESS)] == [True, True, False]
    assert shown.takes(PROGRESS, "other session")
    assert shown.takes(ToolProgressed("other call"))
    shown.now = client_traits.find(None).progress_pause
    assert shown.takes(PROGRESS)
    assert not shown.takes(PROGRESS)


def test_end_of_request_and_call_do_not_wait() -> None:
    shown = Shown(None)
    assert [shown.takes(one) for one in (PROGRESS, ALLOWED, ENDED)] == [True] * 3


def test_mitto_is_shown_ends_and_editors_everything() -> None:
    for name, progress in (("mitto", False), ("zed", True), ("an editor", True)):
        shown = Shown(name)
        assert [shown.takes(one) for one in (STARTED, ENDED)] == [True, True]
        assert [shown.takes(one) for one in (PROGRESS, PROGRESS, ALLOWED)] == [progress] * 3


def test_pace_remembers_newest_calls_only() -> None:
    shown = Shown(None)
    for n in range(MOST + 1):
        assert shown.takes(ToolProgressed(f"{n}"))
    assert shown.takes(ToolProgressed("0"))
    assert not shown.takes(ToolProgressed(f"{MOST}"))
