"""What a front makes of starts of the daemon that fail."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.front import spawn
from pykoclaw_acp.front.dial import LOCK_PAUSE, MAX_REFUSED_STARTS, Dialer, NotStarted
from pykoclaw_acp.link import places as at
from pykoclaw_acp.link.places import Places


class DeadDaemon:
    """Ends without a word."""

    pipe = 0
    scopes: list[bool]

    def __init__(self, places: Places, *, scope: bool, lock: int | None) -> None:
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


class NoProcess:
    """In the place of Starting, where none can be forked."""

    def __init__(self, places: Places, *, scope: bool, lock: int | None) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


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


def test_start_that_cannot_fork_is_repeated_after_service(
    dialer: Dialer, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialer.note_welcome(60)
    with monkeypatch.context() as short:
        short.setattr(spawn, "Starting", NoProcess)
        assert dialer.attempt() is None
        assert dialer.pause
    start(dialer)
    assert DeadDaemon.scopes


def test_start_with_missing_modules_is_repeated_after_service(
    dialer: Dialer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as replaced:
        replaced.setitem(sys.modules, "pykoclaw_acp.front.spawn", None)
        with pytest.raises(ImportError):
            dialer.attempt()  # a client that is just starting is told at once
        dialer.note_welcome(60)
        assert dialer.attempt() is None
        assert dialer.pause
    assert dialer.attempt() is None
    assert DeadDaemon.scopes


def test_start_that_cannot_fork_is_finally_an_error(
    dialer: Dialer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawn, "Starting", NoProcess)
    with pytest.raises(BlockingIOError):
        dialer.attempt()  # a client that is just starting is told at once
    waited = Dialer(dialer.places, timeout=0)
    waited.note_welcome(60)
    with pytest.raises(BlockingIOError):
        waited.attempt()


class SilentDaemon(DeadDaemon):
    """Starts, and is never ready."""

    def word(self) -> None:  # type: ignore[override]  # nothing yet
        return None


def test_setting_bounds_a_start_that_hangs(dialer: Dialer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "Starting", SilentDaemon)
    monkeypatch.setenv("PYKOCLAW_DAEMON_TIMEOUT", "5")
    clock = [100.0]
    monkeypatch.setattr("pykoclaw_acp.front.dial.time.monotonic", lambda: clock[0])
    waits = Dialer(dialer.places)
    assert waits.attempt() is None
    assert waits.deadline == 105.0
    clock[0] = 105.0
    with pytest.raises(NotStarted, match="not ready after 5 s"):
        waits.attempt()


@pytest.mark.parametrize("patience", ["9999999", "inf"])
def test_longest_patience_is_what_poll_can_wait(
    dialer: Dialer, monkeypatch: pytest.MonkeyPatch, patience: str
) -> None:
    monkeypatch.setattr(spawn, "Starting", SilentDaemon)
    monkeypatch.setenv("PYKOCLAW_DAEMON_TIMEOUT", patience)
    waits = Dialer(dialer.places)
    assert waits.attempt() is None
    for left in (waits.deadline - time.monotonic(), waits.patience()):
        assert 900_000 < left < 2**31 / 1000


def test_setting_bounds_another_process_start(
    dialer: Dialer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its front may be gone, and the daemon hang before it serves."""
    at.secure_directory(dialer.places.directory)
    lock = at.try_lock(os.path.join(dialer.places.directory, at.SPAWN_LOCK))
    assert lock is not None
    monkeypatch.setenv("PYKOCLAW_DAEMON_TIMEOUT", "5")
    clock = [100.0]
    monkeypatch.setattr("pykoclaw_acp.front.dial.time.monotonic", lambda: clock[0])
    waits, front = Dialer(dialer.places), Dialer(dialer.places)
    front.note_welcome(60)
    for clock[0] in (100.0, 104.9):
        assert waits.attempt() is None
        assert waits.pause == LOCK_PAUSE
    clock[0] = 105.0
    with pytest.raises(NotStarted, match="another process starts is not ready after 5 s"):
        waits.attempt()
    for clock[0] in (100.0, 1000.0):
        assert front.attempt() is None, "one that was served waits as long as its client does"
    os.close(lock)


class RefusingDaemon(DeadDaemon):
    """Reports why it cannot start."""

    status = 75
    kind: ErrorKind

    def word(self) -> str:
        return f"failed {self.status} No."


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time, which only `give_up` lets pass."""
    now = [100.0]
    monkeypatch.setattr("pykoclaw_acp.front.dial.time.monotonic", lambda: now[0])
    return now


def give_up(dialer: Dialer, clock: list[float]) -> NotStarted:
    """Let it try until it gives up; why it does."""
    while True:
        try:
            assert dialer.attempt() is None
        except NotStarted as error:
            return error
        clock[0] += dialer.pause


@pytest.fixture
def refuses(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, ErrorKind], None]:
    """Daemons end with this status, and say why."""

    def refuse(status: int, kind: ErrorKind) -> None:
        monkeypatch.setattr(spawn, "Starting", RefusingDaemon)
        monkeypatch.setattr(RefusingDaemon, "status", status)
        monkeypatch.setattr(RefusingDaemon, "kind", kind, raising=False)

    return refuse


def test_server_out_of_sight_is_told_soon(
    dialer: Dialer, clock: list[float], refuses: Callable[[int, ErrorKind], None]
) -> None:
    """Its lock file was removed: that does not pass by itself."""
    refuses(75, ErrorKind.DATA_IN_USE)
    error = give_up(dialer, clock)
    assert (str(error), error.status, error.kind) == ("No.", 75, ErrorKind.DATA_IN_USE)
    assert 2 < clock[0] - 100 < 10  # a server that is leaving may be gone by then
    assert len(DeadDaemon.scopes) == MAX_REFUSED_STARTS


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (75, ErrorKind.DATA_IN_USE),
        (75, ErrorKind.DATABASE_BUSY),
        (78, ErrorKind.DATABASE_UNUSABLE),
        (1, ErrorKind.OUT_OF_MEMORY),
    ],
)
def test_served_client_waits_and_starts_few_daemons(
    dialer: Dialer,
    clock: list[float],
    refuses: Callable[[int, ErrorKind], None],
    status: int,
    kind: ErrorKind,
) -> None:
    refuses(status, kind)
    dialer.note_welcome(60)
    assert give_up(dialer, clock).kind == kind
    assert 60 <= clock[0] - 100 < 62
    assert 5 < len(DeadDaemon.scopes) < 15


def test_busy_database_is_awaited_with_few_daemons(
    dialer: Dialer, clock: list[float], refuses: Callable[[int, ErrorKind], None]
) -> None:
    refuses(75, ErrorKind.DATABASE_BUSY)
    assert give_up(dialer, clock).kind == ErrorKind.DATABASE_BUSY
    assert 60 <= clock[0] - 100 < 62
    assert 5 < len(DeadDaemon.scopes) < 15


def test_another_front_daemon_is_found_before_start(
    dialer: Dialer,
    clock: list[float],
    refuses: Callable[[int, ErrorKind], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuses(75, ErrorKind.DATABASE_BUSY)
    while clock[0] < 130:
        assert dialer.attempt() is None
        clock[0] += dialer.pause
    started, connection = len(DeadDaemon.scopes), object()
    monkeypatch.setattr(at, "connect", lambda _: connection)
    assert dialer.attempt() is connection
    assert dialer.pause <= 1
    assert len(DeadDaemon.scopes) == started


def test_server_without_socket_is_told_soon(
    dialer: Dialer, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`serve --stdio` lasts as long as its client; one that was to end has ended by then."""
    monkeypatch.setattr(at, "lock_holder", lambda _: (7, None))
    error = give_up(dialer, clock)
    assert error.kind == ErrorKind.DATA_IN_USE
    assert "(pid 7)" in str(error)
    assert 5 < clock[0] - 100 < 12
    served = Dialer(dialer.places)
    served.note_welcome(60)
    clock[0] = 100.0
    give_up(served, clock)
    assert 60 <= clock[0] - 100 < 62


def be_refused(dialer: Dialer, clock: list[float], words: str | None) -> NotStarted:
    """Let each attempt be followed by a refusal until it gives up; why it does."""
    while True:
        try:
            dialer.attempt()
            clock[0] += dialer.pause
            dialer.note_refusal(words)
        except NotStarted as error:
            return error
        clock[0] += dialer.pause


@pytest.mark.parametrize("served", [True, False])
def test_wait_that_ended_shortens_no_other(
    dialer: Dialer, clock: list[float], monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    """A daemon migrates for minutes, and many come again at once when it serves."""
    if served:
        dialer.note_welcome(60)
    with monkeypatch.context() as recovering:
        recovering.setattr(at, "lock_holder", lambda _: (7, dialer.places.socket))
        while clock[0] < 300:
            assert dialer.attempt() is None
            clock[0] += dialer.pause
    monkeypatch.setattr(at, "connect", lambda _: object())
    began = clock[0]
    assert "Come again." in str(be_refused(dialer, clock, "Come again."))
    assert 60 <= clock[0] - began < 62


def test_starts_that_wait_for_a_lock_count(
    dialer: Dialer,
    clock: list[float],
    refuses: Callable[[int, ErrorKind], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each daemon tries for ten seconds to open the database before it gives up."""
    refuses(75, ErrorKind.DATABASE_BUSY)

    def word(_: DeadDaemon) -> str:
        clock[0] += 10
        return "failed 75 No."

    monkeypatch.setattr(RefusingDaemon, "word", word)
    assert give_up(dialer, clock).kind == ErrorKind.DATABASE_BUSY
    assert 60 <= clock[0] - 100 < 75


def test_time_of_a_start_is_no_wait(
    dialer: Dialer, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that migrates for minutes before it is refused, say: that has a limit of its own."""
    dialer.note_welcome(60)
    monkeypatch.setattr(at, "connect", lambda _: object())
    dialer.note_refusal(None)
    clock[0] += 300
    dialer.note_refusal("Come again.")
    began = clock[0]
    assert "ends before it answers" in str(be_refused(dialer, clock, None))
    assert 40 <= clock[0] - began < 62


def test_waits_that_alternate_end_as_well(
    dialer: Dialer, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that ends whenever somebody connects to it, and recovers again."""
    dialer.note_welcome(60)
    monkeypatch.setattr(at, "lock_holder", lambda _: (7, dialer.places.socket))
    assert "ends before it answers" in str(be_refused(dialer, clock, None))
    assert clock[0] - 100 < 200
