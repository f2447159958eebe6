"""`restart` and `hand-over`: no client starts a daemon in between."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp import __version__
from pykoclaw_acp.commands import hand_over, stopping
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.link import places
from pykoclaw_acp.link.places import SPAWN_LOCK, Places


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    found = Places(
        str(tmp_path / "data"), str(tmp_path / "state"), str(tmp_path / "run" / "acp.sock")
    )
    for name in ("data", "state", "socket"):
        monkeypatch.setenv(f"PYKOCLAW_{name.upper()}", getattr(found, name))
    return found


def may_start(here: Places) -> bool:
    """Whether a client could start a daemon now."""
    lock = places.try_lock(os.path.join(here.directory, SPAWN_LOCK))
    if lock is not None:
        os.close(lock)
    return lock is not None


@pytest.fixture
def version(here: Places, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """That of the daemon which goes on; while one ends and the next one starts, no other can be
    started.
    """
    versions = [__version__]

    def end(pid: int) -> None:
        assert pid == 7
        assert not may_start(here)

    def ask(method: str, *, timeout: float, lock: int) -> Any:
        assert not may_start(here)
        os.close(lock)
        return {"workers": [], "daemon": {"pid": 8, "version": versions[-1]}}

    monkeypatch.setattr(places, "lock_holder", lambda _: (7, "/socket"))
    monkeypatch.setattr(stopping, "require_operator", lambda: None)
    monkeypatch.setattr(stopping, "end", end)
    monkeypatch.setattr(stopping, "ask", ask)
    return versions


def test_restart_keeps_others_from_starting_daemons(
    here: Places, version: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stopping.restart()
    assert (
        capsys.readouterr().out == "The daemon (pid 7) has ended; pid 8 goes on with 0 workers.\n"
    )
    assert may_start(here)


def test_restart_to_another_version_is_an_error(version: list[str]) -> None:
    version.append("0.0.1")
    with pytest.raises(CommandFailed, match=rf"It is pykoclaw-acp 0\.0\.1, .* is {__version__}"):
        stopping.restart()


def test_failed_restart_lets_clients_start_again(
    here: Places, version: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(pid: int) -> None:
        raise CommandFailed("It does not end.")

    monkeypatch.setattr(stopping, "end", end)
    with pytest.raises(CommandFailed, match="does not end"):
        stopping.restart()
    assert may_start(here)


@pytest.fixture
def hanging(
    here: Places, version: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[int]]:
    """A client waits for the daemon that it has started, until that has ended; the daemons that
    were ended.
    """
    places.secure_directory(here.directory)
    lock = places.try_lock(os.path.join(here.directory, SPAWN_LOCK))
    assert lock is not None
    ended = list[int]()

    def end(pid: int) -> None:
        if not ended:
            os.close(lock)
        ended.append(pid)

    monkeypatch.setattr(stopping, "READY_WAIT", 0.1)
    monkeypatch.setattr(stopping, "end", end)
    yield ended
    if not ended:
        os.close(lock)


def test_daemon_that_hangs_in_start_is_restarted(
    hanging: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    stopping.restart()
    assert set(hanging) == {7}
    assert "pid 8 goes on" in capsys.readouterr().out


def test_daemons_that_hang_one_after_another_are_ended(
    here: Places, version: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client starts the second one before anybody else has the lock."""
    places.secure_directory(here.directory)
    lock = places.try_lock(os.path.join(here.directory, SPAWN_LOCK))
    assert lock is not None
    starting, ended = [7, 9], list[int]()

    def end(pid: int) -> None:
        ended.append(pid)
        starting.remove(pid)
        if pid == 9:
            os.close(lock)
            starting.append(11)  # ready at once

    monkeypatch.setattr(places, "lock_holder", lambda data: (starting[0], "socket"))
    monkeypatch.setattr(stopping, "READY_WAIT", 0.1)
    monkeypatch.setattr(stopping, "end", end)
    stopping.restart()
    assert ended == [7, 9, 11], "the one that holds the data at last, too"


def test_installer_ends_daemon_that_hangs_in_start(
    hanging: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def holder(data: str) -> tuple[int, str] | None:
        return None if hanging else (7, "socket")

    monkeypatch.setattr(places, "lock_holder", holder)
    monkeypatch.setattr(hand_over, "require_operator", lambda: None)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO()))
    hand_over.main(0)
    assert hanging == [7]
    assert capsys.readouterr().out == "found 7\nended 0\n"


def test_installer_blocks_clients_also_without_daemon(here: Places) -> None:
    """Else a client could start one between the look and the start of the service."""
    command = [sys.executable, "-m", "pykoclaw_acp", "hand-over"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as handing:
        assert handing.stdin is not None
        assert handing.stdout is not None
        assert handing.stdout.readline() == b"ended 0\n"
        assert not may_start(here)
        handing.stdin.close()
        assert handing.wait(60) == 0
    assert may_start(here)
