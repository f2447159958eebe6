"""Calls of commands, answered by a daemon that the test plays in a thread."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp.errors import CommandFailed, StartupError
from pykoclaw_acp.front import call as front_call
from pykoclaw_acp.front import dial, spawn
from pykoclaw_acp.front.call import (
    CallFailed,
    DaemonAbsent,
    NoDaemon,
    call,
    follow,
    given_environment,
    unfit,
)
from pykoclaw_acp.front.dial import MAX_START_ATTEMPTS
from pykoclaw_acp.link.framing import MAX_LINE_EARLY, MAX_PROMPT_EARLY
from pykoclaw_acp.link.places import SPAWN_LOCK, Places, secure_directory, try_lock
from pykoclaw_acp.server.admission import Admission, turn_away
from tests.integration.front_harness import WAIT, Connection, Daemon, encode


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(
        str(tmp_path / "data"), str(tmp_path / "state"), str(tmp_path / "run" / "acp.sock")
    )


@contextmanager
def answering(daemon: Daemon, play: Callable[[Connection, Any], None]) -> Iterator[None]:
    """Lets `play` answer the next call."""

    def serve() -> None:
        connection = daemon.accept()
        play(connection, json.loads(connection.line()))

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    thread.join(WAIT)
    assert not thread.is_alive()


def test_call_returns_result_and_skips_notifications(places: Places) -> None:
    def play(connection: Connection, request: Any) -> None:
        assert request == {"jsonrpc": "2.0", "id": 1, "method": "_m", "params": {"a": 1}}
        connection.send(
            b'{"method":"n"}', encode({"jsonrpc": "2.0", "id": 1, "result": [request["params"]]})
        )

    with Daemon(places) as daemon, answering(daemon, play):
        assert call(places, "_m", {"a": 1}) == [{"a": 1}]


def test_an_error_has_its_code_and_data(places: Places) -> None:
    def play(connection: Connection, request: Any) -> None:
        connection.send(
            encode({"id": 1, "error": {"code": -32002, "message": "No.", "data": {"x": 1}}})
        )

    with (
        Daemon(places) as daemon,
        answering(daemon, play),
        pytest.raises(CallFailed, match="No") as failed,
    ):
        call(places, "_m", {}, start=True)
    assert (failed.value.code, failed.value.message, failed.value.data) == (-32002, "No.", {"x": 1})


def test_following_yields_what_comes_before_the_answer(places: Places) -> None:
    def play(connection: Connection, request: Any) -> None:
        for number in range(3):
            connection.send(encode({"method": "n", "params": number}))
        connection.send(encode({"id": 1, "result": "end"}))

    with Daemon(places) as daemon, answering(daemon, play):
        messages = follow(places, "_m", {})
        assert [next(messages)["params"] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(StopIteration) as end:
            next(messages)
    assert end.value.value == "end"


def test_leaving_early_closes_the_connection(places: Places) -> None:
    closed = []

    def play(connection: Connection, request: Any) -> None:
        connection.send(b'{"method":"n"}')
        closed.append(connection.line())

    with Daemon(places) as daemon, answering(daemon, play):
        messages = follow(places, "_m", {})
        next(messages)
        messages.close()
    assert closed == [b""]


def test_a_daemon_that_goes_away_is_absent(places: Places) -> None:
    def play(connection: Connection, request: Any) -> None:
        connection.close()

    with (
        Daemon(places) as daemon,
        answering(daemon, play),
        pytest.raises(DaemonAbsent, match="before it had answered"),
    ):
        call(places, "_m", {})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("serves\n", r"\(pid \d+\) has no socket that can be reached\. `pykoclaw-acp restart`"),
        ("", r"\(pid \d+\) does not serve yet: .* Wait for it; its log is [^`]*$"),
    ],
    ids=["the socket is gone", "it migrates its database"],
)
def test_daemon_that_cannot_be_reached_is_named(
    places: Places, monkeypatch: pytest.MonkeyPatch, said: str, words: str
) -> None:
    monkeypatch.setattr(front_call, "_START_TIMEOUT", 0.2)
    with Daemon(places, listens=False):
        Path(places.lock).write_text(f"{os.getpid()}\n{places.socket}\n{said}")
        with pytest.raises(DaemonAbsent, match=words) as absent:
            call(places, "_m", {})
    assert not isinstance(absent.value, NoDaemon), "a process has the data directory"


@pytest.mark.parametrize("late", [False, True])
def test_refusal_of_any_client_is_the_answer(places: Places, late: bool) -> None:
    """The daemon closes the connection at once, before or after the request has come."""

    def serve(daemon: Daemon) -> None:
        connection = daemon.accept()
        if late:
            connection.line()
        turn_away(connection.socket, Admission(1, os.getuid()).refusal)

    with Daemon(places) as daemon:
        thread = threading.Thread(target=serve, args=(daemon,))
        thread.start()
        with pytest.raises(CallFailed, match="PYKOCLAW_MAX_CLIENTS") as failed:
            call(places, "_m", {"text": "x" * 900_000})
        thread.join(WAIT)
    assert failed.value.data["errorKind"] == "too_many_clients"


def test_a_socket_elsewhere_is_found_by_the_lock(places: Places, tmp_path: Path) -> None:
    def play(connection: Connection, request: Any) -> None:
        connection.send(encode({"id": 1, "result": 5}))

    elsewhere = Places(places.data, places.state, str(tmp_path / "other" / "acp.sock"))
    with Daemon(places) as daemon, answering(daemon, play):
        assert call(elsewhere, "_m", {}) == 5


def test_call_waits_for_starting_daemon(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(connection: Connection, request: Any) -> None:
        connection.send(encode({"id": 1, "result": 5}))

    with ExitStack() as begun:

        def begin(_: float) -> None:
            """In the place of a pause: by then the daemon has started."""
            begun.enter_context(answering(begun.enter_context(Daemon(places)), play))

        secure_directory(places.directory)
        lock = try_lock(os.path.join(places.directory, SPAWN_LOCK))
        assert lock is not None
        begun.callback(os.close, lock)
        clock = SimpleNamespace(sleep=begin, monotonic=time.monotonic)
        monkeypatch.setattr(front_call, "time", clock)
        assert call(places, "_m", {}) == 5


class Dying:
    """A daemon that ends without a word when it is started."""

    def __init__(self, *_: object, **__: object) -> None:
        self.pipe = os.eventfd(1)

    def word(self) -> str:
        return ""

    def close(self) -> None:
        os.close(self.pipe)


def test_served_call_waits_for_daemon_that_starts(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the program is installed anew; who was never served is told at once."""

    def play(connection: Connection, request: Any) -> None:
        connection.send(encode({"jsonrpc": "2.0", "id": 1, "result": 5}))

    def called(*, served: bool) -> Any:
        with pytest.raises(StopIteration) as end:
            next(follow(places, "_m", {}, start=True, served=served))
        return end.value.value

    for name in ("FIRST_PAUSE", "FIRST_START_PAUSE"):
        monkeypatch.setattr(dial, name, 0.0)
    monkeypatch.setattr(spawn, "Starting", Dying)
    with pytest.raises(StartupError, match=rf"before it was ready, {MAX_START_ATTEMPTS} times"):
        called(served=False)
    with ExitStack() as begun:
        starts = 0

        def start(*_: object, **__: object) -> Dying:
            nonlocal starts
            starts += 1
            if starts == 2 * MAX_START_ATTEMPTS:
                begun.enter_context(answering(begun.enter_context(Daemon(places)), play))
            return Dying()

        monkeypatch.setattr(spawn, "Starting", start)
        assert called(served=True) == 5


def test_served_call_gives_up_on_another_start(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a client that was stopped, or of an installer that hangs."""
    now = 100.0

    def sleep(_: float) -> None:
        nonlocal now
        now += 1
        assert now < 200

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: now)
    for module in (front_call, dial):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setenv("PYKOCLAW_DAEMON_TIMEOUT", "5")
    secure_directory(places.directory)
    with open(os.path.join(places.directory, SPAWN_LOCK), "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StartupError, match="another process starts is not ready after 5 s"):
            next(follow(places, "_m", {}, start=True, served=True))
    assert now == 105


def test_long_prompt_of_any_script_is_taken(places: Places) -> None:
    prompt = "щ" * (MAX_PROMPT_EARLY // 2 - 1)
    assert not unfit(prompt)
    assert unfit(prompt + "щ")

    lines: list[bytes] = []

    def serve(daemon: Daemon) -> None:
        connection = daemon.accept()
        lines.append(connection.line())
        connection.send(encode({"jsonrpc": "2.0", "id": 1, "result": {}}))

    with Daemon(places) as daemon:
        thread = threading.Thread(target=serve, args=(daemon,))
        thread.start()
        call(places, "_m", {"text": prompt})
        thread.join(WAIT)
    assert json.loads(lines[0])["params"]["text"] == prompt
    assert len(lines[0]) < MAX_LINE_EARLY


def test_bytes_that_are_no_text_are_refused_unsent(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = b"/tmp/caf\xe9".decode(errors="surrogateescape")
    with Daemon(places), pytest.raises(CommandFailed, match=r"not valid UTF-8; nothing was sent"):
        call(places, "_m", {"path": name}, timeout=WAIT)
    assert "not valid UTF-8" in unfit(name)
    monkeypatch.setenv("HTTPS_PROXY", name)
    assert given_environment()["HTTPS_PROXY"] == "/tmp/caf?"
