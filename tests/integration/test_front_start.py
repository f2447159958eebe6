"""Fronts that start a daemon: exactly one, detached, and with clear words when there
will be none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pykoclaw_acp import __version__
from pykoclaw_acp.errors import StartupError
from pykoclaw_acp.front import spawn
from pykoclaw_acp.front.call import NoDaemon, call
from pykoclaw_acp.front.dial import MAX_START_ATTEMPTS
from pykoclaw_acp.link import records
from pykoclaw_acp.link.places import LOCK_NAME, Places, lock_holder
from pykoclaw_acp.system import processes
from tests.integration.front_harness import FAKE_START, WAIT, Client
from tests.waiting import eventually_sync

INITIALIZE = {"protocolVersion": 1}


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """Where a fake daemon may run; it ends after the test."""
    places = Places(
        str(tmp_path / "data"), str(tmp_path / "state"), str(tmp_path / "run" / "acp.sock")
    )
    yield places
    holder = lock_holder(places.data)
    Path(places.lock).unlink(missing_ok=True)
    if holder is not None:
        eventually_sync(lambda: has_ended(holder[0]))


def has_ended(pid: int) -> bool:
    """Whether it is gone, or a zombie."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def starter(places: Places, mode: str, **variables: str) -> Client:
    """A front whose daemon is front_with_fake_daemon.py in this mode."""
    return Client(places, str(FAKE_START), mode, **variables)


def starts(places: Places) -> list[str]:
    return Path(places.data, "starts").read_text().splitlines()


def test_front_inside_session_does_not_start_its_daemon(places: Places, tmp_path: Path) -> None:
    """It would be refused by it; a daemon of another database is its own matter."""
    settings = tmp_path / ".local/share/pykoclaw/.env"
    os.makedirs(places.data)
    directory = Path(places.state, "0123456789ab")
    directory.mkdir(parents=True)
    record = records.InstanceRecord(directory.name, records.Site.of(places.data))
    inside = {
        "HOME": str(tmp_path),
        "PYKOCLAW_WORKER": f"{directory.name}:the:session:3",
        "PYKOCLAW_NESTED_ACCESS": "all",  # by a tool
    }
    records.write(places.state, record)
    with starter(places, "serve", **inside) as client:
        request_id = client.request("initialize", INITIALIZE)
        error = client.message()
        assert error["id"] == request_id
        assert error["error"]["data"] == {"errorKind": "nested_caller"}
        assert "inside of session the:session: " in error["error"]["message"]
        assert "PYKOCLAW_NESTED_ACCESS=clients" in error["error"]["message"]
    assert not Path(places.data, "starts").exists()
    settings.parent.mkdir(parents=True)
    settings.write_text("PYKOCLAW_NESTED_ACCESS=clients\n")
    with starter(places, "serve", **inside) as client:
        client.request("session/new")
        pid = client.message()["result"]
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert not any(one.startswith(b"PYKOCLAW_NESTED_ACCESS=") for one in environment)
    assert len(starts(places)) == 1


def test_patience_of_months_is_waited(places: Places) -> None:
    with starter(places, "serve", PYKOCLAW_DAEMON_TIMEOUT="9999999") as client:
        client.request("session/new")
        assert "result" in client.message()


def test_a_front_starts_a_daemon_that_outlives_it(places: Places) -> None:
    with starter(
        places, "serve", CLAUDECODE="1", NOTIFY_SOCKET="/nowhere", PYKOCLAW_WORKER="i:s:1"
    ) as client:
        client.request("initialize", INITIALIZE)
        client.message()
        client.request("session/new")
        pid = client.message()["result"]
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert os.getsid(pid) != os.getsid(client.process.pid)
        assert processes.children(client.process.pid) == []
        client.process.kill()
        client.process.wait()
    with Client(places) as client:
        client.request("session/new")
        assert client.message()["result"] == pid
    assert starts(places) == [f"{pid} / [0, 1, 2]"]
    assert Path(places.log).stat().st_mode & 0o777 == 0o600
    assert f"PYKOCLAW_SOCKET={places.socket}".encode() in environment
    marks = (b"CLAUDECODE=", b"NOTIFY_SOCKET=", b"PYKOCLAW_WORKER=")
    assert not any(variable.startswith(marks) for variable in environment)


def test_the_client_is_told_once_what_happens(places: Places) -> None:
    with starter(places, "serve") as client:
        client.request("session/new")
        client.message()
        client.end()
        assert client.said() == [
            f"pykoclaw-acp {__version__}: starting the daemon at {places.socket}"
        ]


def test_ten_fronts_at_once_start_one_daemon(places: Places) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(starter(places, "serve")) for _ in range(10)]
        for client in clients:
            client.request("session/new")
        assert len({client.message()["result"] for client in clients}) == 1
    assert len(starts(places)) == 1


def test_one_of_ten_fronts_restarts_killed_daemon(places: Places) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(starter(places, "serve")) for _ in range(10)]
        for client in clients:
            client.request("session/new")
        (first,) = {client.message()["result"] for client in clients}
        os.kill(first, 9)
        for client in clients:
            client.request("session/new")
        (second,) = {client.message()["result"] for client in clients}
        assert second != first
        eventually_sync(lambda: has_ended(first))
    assert len(starts(places)) == 2


def test_stale_socket_and_stale_lock_are_ignored(places: Places) -> None:
    os.makedirs(places.data)
    Path(places.data, LOCK_NAME).write_text(f"{os.getpid()}\n{places.socket}\n")
    with starter(places, "serve") as client:
        client.request("session/new")
        assert client.message()["result"] in {int(line.split()[0]) for line in starts(places)}


def test_a_long_log_begins_anew(places: Places) -> None:
    os.makedirs(places.directory, mode=0o700)
    Path(places.log).write_bytes(b"x" * (10 * 1024 * 1024 + 1))
    with starter(places, "serve") as client:
        client.request("session/new")
        client.message()
    assert Path(places.log).stat().st_size < 10 * 1024


def test_silently_dying_daemon_is_started_again(places: Places) -> None:
    with starter(places, "die-once") as client:
        client.request("session/new")
        assert client.message()["result"]
    assert len(starts(places)) == 2


@pytest.mark.parametrize(
    ("mode", "status", "reason", "count"),
    [
        ("die", 1, "ended before it was ready, 4 times.", 4),
        ("failed 78 PYKOCLAW_MODEL is no model.", 78, "PYKOCLAW_MODEL is no model.", 1),
    ],
)
def test_daemon_that_cannot_start_is_final_error(
    places: Places, mode: str, status: int, reason: str, count: int
) -> None:
    with starter(places, mode) as client:
        request_id = client.request("session/new")
        error = client.message()
        assert client.line() == b""
        assert client.process.wait(WAIT) == status
        assert error["id"] == request_id
        assert error["error"]["code"] == -32010
        assert error["error"]["data"] == {"errorKind": "daemon_not_started"}
        assert reason in error["error"]["message"]
        assert places.log in error["error"]["message"]
        assert client.said()[1:] == [f"pykoclaw-acp: {error['error']['message']}"]
    assert len(starts(places)) == count


def test_greeted_client_gets_start_error_with_next_request(places: Places) -> None:
    with starter(places, "die") as client:
        client.request("initialize", INITIALIZE)
        first = client.message()
        if "result" in first:
            second = client.request("session/new")
            error = client.message()
            assert (error["id"], error["error"]["code"]) == (second, -32010)
        assert client.process.wait(WAIT) == 1


def test_a_locked_data_directory_is_tried_again(places: Places) -> None:
    with starter(places, "failed 75 Another server (pid 7) has it.") as client:
        client.request("session/new")
        assert client.message()["result"]
    assert len(starts(places)) == 2


def database_is_moved_behind(client: Client, places: Places) -> Path:
    """Its daemon ends, and the next one finds no database; where that is now."""
    client.request("session/new")
    client.message()
    aside = Path(places.data, "aside")
    Path(places.data, "pykoclaw.db").rename(aside)
    Path(places.lock).unlink()
    eventually_sync(lambda: len(starts(places)) == 2)
    second = Path("/proc", starts(places)[1].split()[0])
    eventually_sync(lambda: has_ended(int(second.name)))
    return aside


@pytest.fixture
def database(places: Places) -> Path:
    os.makedirs(places.data)
    found = Path(places.data, "pykoclaw.db")
    found.touch()
    return found


def test_front_waits_for_database_moved_under_its_daemon(places: Places, database: Path) -> None:
    with starter(places, "find") as client:
        aside = database_is_moved_behind(client, places)
        request_id = client.request("session/new")
        aside.rename(database)
        assert client.message()["id"] == request_id
    assert len(starts(places)) == 3, "no daemon is started while the file is missing"


def test_database_returning_as_absence_is_reported_is_used(places: Places, database: Path) -> None:
    with starter(places, "find-late") as client:
        database_is_moved_behind(client, places)
        client.request("session/new")
        assert "result" in client.message()
    assert len(starts(places)) == 3


def test_database_that_stays_missing_is_finally_named(places: Places, database: Path) -> None:
    with starter(places, "find", PYKOCLAW_DAEMON_TIMEOUT="5") as client:
        database_is_moved_behind(client, places)
        client.request("session/new")
        assert "The database is missing." in client.message()["error"]["message"]
        assert client.process.wait(WAIT) == 78


def daemon_ends(client: Client, places: Places) -> None:
    """After it has served."""
    client.request("session/new")
    pid = client.message()["result"]
    Path(places.lock).unlink()
    eventually_sync(lambda: has_ended(pid))


def test_older_front_goes_on_with_newer_daemon(places: Places, database: Path) -> None:
    with starter(places, "outdated") as older:
        daemon_ends(older, places)
        eventually_sync(lambda: len(starts(places)) == 2)
        request_id = older.request("session/new")
        with starter(places, "serve") as newer:
            newer.request("session/new")
            pid = newer.message()["result"]
            answer = older.message()
            assert (answer["id"], answer["result"]) == (request_id, pid)


def test_front_of_older_version_finally_says_why(places: Places, database: Path) -> None:
    with starter(places, "outdated", PYKOCLAW_DAEMON_TIMEOUT="5") as older:
        daemon_ends(older, places)
        older.request("session/new")
        error = older.message()["error"]
        assert "A newer version has it." in error["message"]
        assert error["data"] == {"errorKind": "database_unusable"}
        assert older.process.wait(WAIT) == 78


def test_front_waits_while_its_python_is_replaced(places: Places, tmp_path: Path) -> None:
    python, away = tmp_path / "python", tmp_path / "away"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    with starter(places, "serve", FAKE_PYTHON=str(python)) as client:
        client.request("session/new")
        assert client.message()["result"]
        python.rename(away)
        Path(places.lock).unlink()
        log = Path(places.log)
        eventually_sync(lambda: log.read_text().count("cannot be executed") > MAX_START_ATTEMPTS)
        away.rename(python)
        client.request("session/new")
        assert client.message()["result"]


def test_front_waits_while_its_package_is_replaced(places: Places) -> None:
    with starter(places, "die-between") as client:
        daemon_ends(client, places)
        client.request("session/new")
        assert client.message()["result"]
    assert len(starts(places)) == 7 > 1 + MAX_START_ATTEMPTS


def test_call_starts_daemon_only_if_allowed(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoDaemon, match="No daemon runs"):
        call(places, "m", {})
    assert not Path(places.state).exists()
    command = [sys.executable, str(FAKE_START), "daemon", "serve"]
    monkeypatch.setattr(spawn, "command_line", lambda places, *, scope: command)
    for name in ("data", "state", "socket"):
        monkeypatch.setenv(f"PYKOCLAW_{name.upper()}", getattr(places, name))
    pid = call(places, "m", {}, start=True)
    assert call(places, "m", {}) == pid
    assert starts(places) == [f"{pid} / [0, 1, 2]"]
    Path(places.lock).unlink()
    eventually_sync(lambda: has_ended(pid))


def test_a_call_says_why_there_is_no_daemon(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, str(FAKE_START), "daemon", "failed 78 No."]
    monkeypatch.setattr(spawn, "command_line", lambda places, *, scope: command)
    with pytest.raises(StartupError, match=r"^No\. The daemon's log is ") as failed:
        call(places, "m", {}, start=True)
    assert failed.value.exit_code == 78
    pid = int(starts(places)[0].split()[0])
    eventually_sync(lambda: has_ended(pid))
