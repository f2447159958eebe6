"""The daemon's socket: its file may go, and clients come in again."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.link import places
from pykoclaw_acp.server import listening
from pykoclaw_acp.server.listening import Listening
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "LOOK", 0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "pykoclaw" / "acp.sock"


@asynccontextmanager
async def serving(
    path: Path, inherited: list[socket.socket], told: list[str]
) -> AsyncIterator[list[socket.socket]]:
    """A daemon's listening; yields the connections that it takes."""
    accepted: list[socket.socket] = []

    async def accept(listener: socket.socket) -> None:
        listener.setblocking(False)
        while True:
            accepted.append((await asyncio.get_running_loop().sock_accept(listener))[0])

    one = Listening(inherited, str(path), lost=told.append)
    one.begin()
    task = asyncio.create_task(one.serve(accept))
    try:
        yield accepted
    finally:
        task.cancel()
        await asyncio.wait([task])
        one.end()
        for connection in accepted:
            connection.close()


def lose(path: Path, what: str) -> None:
    if what == "directory":
        shutil.rmtree(path.parent.parent)
        path.parent.parent.mkdir(mode=0o700)
    elif what == "file":
        path.unlink()
    else:
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(f"{path}.other")
        os.replace(f"{path}.other", path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def connects(path: Path) -> bool:
    try:
        places.connect(str(path)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("what", ["file", "directory", "replaced"])
async def test_socket_whose_file_is_gone_is_made_anew(path: Path, what: str) -> None:
    path.parent.parent.mkdir(mode=0o700)
    told: list[str] = []
    async with serving(path, [], told) as accepted:
        assert connects(path)
        await eventually(lambda: len(accepted) == 1)
        lose(path, what)
        await eventually(lambda: connects(path))
        await eventually(lambda: len(accepted) == 2)
        assert [mode(path), mode(path.parent)] == [0o600, 0o700]
        assert told == []
    assert not connects(path)


async def test_socket_is_made_once_that_is_possible(path: Path) -> None:
    """As of a user who has logged out, and is back."""
    path.parent.parent.mkdir(mode=0o700)
    told: list[str] = []
    async with serving(path, [], told) as accepted:
        shutil.rmtree(path.parent)
        path.parent.write_text("in its place")
        await eventually(lambda: told)
        path.parent.unlink()
        await eventually(lambda: connects(path))
        await eventually(lambda: accepted)
        assert len(told) == 1


async def test_lost_socket_of_systemd_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "acp.sock"
    seen: list[str] = []
    stat = os.stat

    def look(looked_at: Any, **how: Any) -> os.stat_result:
        if looked_at == str(path):
            seen.append(looked_at)
        return stat(looked_at, **how)

    monkeypatch.setattr(os, "stat", look)
    given = socket.socket(socket.AF_UNIX)
    given.bind(str(path))
    given.listen(1)
    told: list[str] = []
    async with serving(path, [given], told):
        path.unlink()
        await eventually(lambda: told)
        looks = len(seen)
        await eventually(lambda: len(seen) > looks + 3)
        assert len(told) == 1
        assert str(path) in told[0]
        assert not connects(path)
