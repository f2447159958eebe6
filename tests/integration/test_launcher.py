"""The launcher of local processes, when no fork server can run any more."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sys
from pathlib import Path

import pytest

from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import LaunchFailed, RestartWanted
from pykoclaw_acp.pool.local import LocalLauncher
from pykoclaw_acp.pool.local_forkserver import MAX_LOG, ForkServer
from pykoclaw_acp.system import reaper
from tests.workers import spec


@pytest.mark.parametrize("python", ["/bin/false", "/nonexistent/python"])
async def test_removed_installation_asks_for_restart(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by an upgrade in place; the first failures may be of the moment."""
    monkeypatch.setattr(sys, "executable", python)
    launcher = LocalLauncher(tmp_path, tmp_path, resident=True)
    for _ in range(3):
        await launcher.probe()
        with pytest.raises(
            LaunchFailed, match=r"workers\.log|/nonexistent/python cannot be executed"
        ):
            await launcher.launch(spec(tmp_path))
    with pytest.raises(RestartWanted):
        await launcher.probe()
    await launcher.close()


async def test_launch_truncates_oversized_workers_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also under a fork server that runs since long."""
    launcher = LocalLauncher(tmp_path, tmp_path, resident=True)

    async def refuse(_: ForkServer) -> None:
        raise OSError("no")

    monkeypatch.setattr(ForkServer, "ensure", refuse)
    for size, kept in ((MAX_LOG, MAX_LOG), (MAX_LOG + 1, 0)):
        (tmp_path / "workers.log").touch()
        os.truncate(tmp_path / "workers.log", size)
        with pytest.raises(LaunchFailed):
            await launcher.launch(spec(tmp_path))
        assert (tmp_path / "workers.log").stat().st_size == kept


async def test_directories_removed_under_the_server_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    launcher = LocalLauncher(tmp_path, state, resident=True)

    async def refuse(*_: object) -> None:
        raise LaunchFailed(ErrorKind.START_FAILED, "no more is needed")

    monkeypatch.setattr(ForkServer, "fork", refuse)
    one = spec(tmp_path)
    for _ in range(2):
        with pytest.raises(LaunchFailed, match="no more is needed"):
            await launcher.launch(one)
        (instance,) = (path for path in state.iterdir() if path.is_dir())
        places = [instance / name for name in ("sockets", "spool")]
        assert [place.stat().st_mode & 0o777 for place in (instance, *places)] == [0o700] * 3
        shutil.rmtree(state)


@pytest.mark.parametrize("there", ["directory", "link", "pipe"])
async def test_unusable_worker_log_costs_only_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    path, target = tmp_path / "workers.log", tmp_path / "target"
    target.write_text("kept")
    os.truncate(target, MAX_LOG + 1)
    if there == "directory":
        path.mkdir()
    elif there == "link":
        path.symlink_to(target)
    else:
        os.mkfifo(path)
    warm, pids = ForkServer.warm, list[int | None]()

    async def warmed(server: ForkServer) -> None:
        await warm(server)
        pids.append(server.pid)

    monkeypatch.setattr(ForkServer, "warm", warmed)
    launcher = LocalLauncher(tmp_path, tmp_path, resident=False)
    await asyncio.wait_for(launcher.warm(), 60)
    (pid,) = pids
    assert pid is not None
    await launcher.close()
    assert target.stat().st_size == MAX_LOG + 1


async def test_files_left_for_lack_of_descriptors_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clean-up is tried again then; what can never be removed is left at once."""
    launcher = LocalLauncher(tmp_path, tmp_path, resident=True)
    one = spec(tmp_path)
    place = Path(WorkerFiles.of(tmp_path / one.instance, one).temporary)
    (place / "of-a-tool").mkdir(parents=True)

    async def none_left(*_: object) -> list[reaper.Stray]:
        return []

    monkeypatch.setattr(reaper, "end", none_left)
    lacking = OSError(errno.EACCES, "Permission denied")

    def refuse(*_: object, **__: object) -> int:
        raise lacking

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        await launcher.clean(one, 0)
        lacking = OSError(errno.EMFILE, "Too many open files")
        with pytest.raises(OSError, match="Too many open files"):
            await launcher.clean(one, 0)
    assert os.listdir(place) == ["of-a-tool"]
    await launcher.clean(one, 0)
    assert place.name not in os.listdir(place.parent)
    await launcher.close()
