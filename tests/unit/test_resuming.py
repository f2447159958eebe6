"""A call that is sent again when its daemon goes."""

from __future__ import annotations

import pytest

from pykoclaw_acp.commands import daemon
from pykoclaw_acp.front import resuming
from pykoclaw_acp.front.call import DaemonAbsent
from pykoclaw_acp.front.resuming import Notifications, Resumed


class Gone(DaemonAbsent):
    pass


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "PAUSE", 0)


def test_call_goes_on_behind_its_last_notification() -> None:
    sent: list[int | None] = []

    def send(after: int | None, _: bool) -> Notifications:
        sent.append(after)
        yield {"params": {"seq": len(sent) * 10}}
        yield {"params": {"id": "no place"}}
        if len(sent) < 3:
            raise Gone("gone")
        return "result"

    found: list[object] = []

    def collect() -> Notifications:
        found.append((yield from Resumed(send, Gone).messages()))

    places = [one["params"].get("seq") for one in collect()]
    assert places == [10, None, 20, None, 30, None]
    assert (sent, found) == ([None, 10, 20], ["result"])


def test_patience_is_for_the_time_without_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("pykoclaw_acp.front.resuming.time.monotonic", lambda: now)
    calls = 0

    def send(after: int | None, _: bool) -> Notifications:
        nonlocal now, calls
        calls += 1
        now += 40
        if calls < 6:
            yield {"params": {"seq": calls}}
        raise Gone("gone")

    with pytest.raises(Gone):
        list(Resumed(send, Gone, 60).messages())
    assert calls == 7  # gone for 80 s since the fifth one


def test_connection_that_stood_begins_patience_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("pykoclaw_acp.front.resuming.time.monotonic", lambda: now)
    stood = [100.0, 100.0, 100.0, None, 1.0, None, None]
    sent: list[int | None] = []

    def send(after: int | None, _: bool) -> Notifications:
        nonlocal now
        one = stood[len(sent)]
        sent.append(after)
        now += one or 25
        if len(sent) == 1:
            yield {"params": {"seq": 7}}
        raise Gone("gone", one)

    with pytest.raises(Gone):
        list(Resumed(send, Gone, 60).messages())
    assert sent == [None, *[7] * 6]  # 76 s after the end of the last one that stood


@pytest.mark.parametrize(("stood", "reached"), [(None, False), (0.0, True)])
def test_daemon_that_was_met_may_have_the_call(stood: float | None, reached: bool) -> None:
    """The next one is then waited for as by a client that was served."""
    served: list[bool] = []

    def send(_: int | None, again: bool) -> Notifications:
        served.append(again)
        yield from ()
        if len(served) == 1:
            raise Gone("gone", stood)

    call = Resumed(send, Gone)
    list(call.messages())
    assert (served, call.reached) == ([False, reached], reached)


def test_without_patience_a_call_is_sent_once() -> None:
    calls: list[int | None] = []

    def send(after: int | None, _: bool) -> Notifications:
        calls.append(after)
        raise Gone("gone")

    with pytest.raises(Gone):
        list(Resumed(send, Gone, 0).messages())
    assert calls == [None]


def test_idle_session_is_followed_over_every_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("pykoclaw_acp.front.resuming.time.monotonic", lambda: now)
    calls = 0

    def follow(*_: object, **__: object) -> Notifications:
        nonlocal now, calls
        calls += 1
        now += 100
        if calls < 5:
            raise Gone("restarted", 100.0)
        yield {"params": {"seq": 1}}
        return "closed"

    monkeypatch.setattr("pykoclaw_acp.front.call.follow", follow)
    assert list(daemon.follow_live("session", None)) == [{"params": {"seq": 1}}]
    assert calls == 5
