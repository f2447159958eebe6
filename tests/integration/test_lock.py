"""The data directory's lock: one server, however it ends, and nothing touched by the one that comes
second.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import pykoclaw_acp
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import ConfigurationError, DataDirectoryLocked, DirectoryUnusable
from pykoclaw_acp.link.places import LOCK_NAME, Places
from pykoclaw_acp.pool.local_whereabouts import is_held
from pykoclaw_acp.server import data_directory
from pykoclaw_acp.store.lock import DataLock
from tests.groups import shared_with

HOLD = (
    "import sys, pathlib\n"
    "from pykoclaw_acp.errors import DataDirectoryLocked\n"
    "from pykoclaw_acp.store.lock import DataLock\n"
    "sys.stdin.readline()\n"
    "try:\n"
    "    lock = DataLock.acquire(pathlib.Path(sys.argv[1]))\n"
    "except DataDirectoryLocked as error:\n"
    "    print('refused', error, flush=True)\n"
    "else:\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.readline()\n"
)


def start_holder(data_dir: Path) -> subprocess.Popen[str]:
    """A process that locks `data_dir` when it reads a line, says what came of it, and ends at the
    next one.
    """
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(data_dir)],
        env={**os.environ, "PYTHONPATH": str(Path(pykoclaw_acp.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def tell(holder: subprocess.Popen[str]) -> None:
    assert holder.stdin is not None
    holder.stdin.write("\n")
    holder.stdin.flush()


def answer(holder: subprocess.Popen[str]) -> str:
    assert holder.stdout is not None
    return holder.stdout.readline().strip()


def snapshot(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        entry.name: (entry.read_bytes(), entry.stat().st_mtime_ns, entry.stat().st_mode)
        for entry in sorted(directory.iterdir())
    }


def test_the_directory_and_the_lock_are_private(tmp_path: Path) -> None:
    data_dir = tmp_path / "share" / "pykoclaw"
    lock = DataLock.acquire(data_dir)
    try:
        assert data_dir.stat().st_mode & 0o777 == 0o700
        assert (data_dir / LOCK_NAME).stat().st_mode & 0o777 == 0o600
        assert (data_dir / LOCK_NAME).read_text() == f"{os.getpid()}\n"
    finally:
        lock.release()


def test_second_server_names_first_and_touches_nothing(tmp_path: Path) -> None:
    with start_holder(tmp_path) as holder:
        tell(holder)
        assert answer(holder) == "held"
        before = snapshot(tmp_path)
        with pytest.raises(DataDirectoryLocked) as refusal:
            DataLock.acquire(tmp_path)
        assert f"pid {holder.pid}" in str(refusal.value)
        assert str(tmp_path) in str(refusal.value)
        assert refusal.value.exit_code == 75
        assert snapshot(tmp_path) == before
        tell(holder)


def test_a_killed_server_leaves_no_lock(tmp_path: Path) -> None:
    with start_holder(tmp_path) as holder:
        tell(holder)
        assert answer(holder) == "held"
        holder.kill()
        holder.wait(30)
    (tmp_path / LOCK_NAME).write_text("a pid that is longer than any\n")
    lock = DataLock.acquire(tmp_path)
    assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"
    lock.release()


def test_of_several_that_start_at_once_one_wins(tmp_path: Path) -> None:
    holders = [start_holder(tmp_path / "new") for _ in range(4)]
    for holder in holders:
        tell(holder)
    answers = [answer(holder) for holder in holders]
    for holder in holders:
        holder.communicate("\n", timeout=30)
    assert sorted(text.split()[0] for text in answers) == ["held", "refused", "refused", "refused"]


def test_release_admits_next_server_while_child_lives(tmp_path: Path) -> None:
    lock = DataLock.acquire(tmp_path)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False):
        lock.release()
        lock.release()
        DataLock.acquire(tmp_path).release()


@pytest.mark.parametrize("mode", [0o702, 0o1777])
def test_a_directory_that_everybody_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ConfigurationError, match="can write to the data directory") as refusal:
        DataLock.acquire(tmp_path)
    assert str(tmp_path) in str(refusal.value)
    assert tmp_path.stat().st_mode & 0o7777 == mode
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o770, 0o1770])
def test_directory_that_group_members_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    shared_with(monkeypatch, "colleague")
    for above in (*reversed(tmp_path.parents), tmp_path):  # nothing above closes it to them
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & stat.S_ISVTX:
            above.chmod(above.stat().st_mode | 0o055)
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    with pytest.raises(ConfigurationError, match=r"Others \(colleague\) can write"):
        DataLock.acquire(data)
    DataLock.acquire(data, group=os.getegid()).release()


@pytest.mark.parametrize("there_is_a_file", [True, False])
def test_disk_without_room_is_locked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, there_is_a_file: bool
) -> None:
    """A daemon that starts on a full or read-only disk shows the history, and is the only one."""
    if there_is_a_file:
        DataLock.acquire(tmp_path).release()
    before = snapshot(tmp_path)
    opened = os.open

    def refuses_new_ones(path: Any, flags: int, *mode: int, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(path, flags, *mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuses_new_ones)
    lock = DataLock.acquire(tmp_path)
    with pytest.raises(DataDirectoryLocked):
        DataLock.acquire(tmp_path)
    lock.release()
    DataLock.acquire(tmp_path).release()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
async def test_unmakeable_state_directory_is_fatal_unless_disks_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    places = Places(tmp_path / "data", tmp_path / "state", tmp_path / "socket")

    def fails(path: str) -> None:
        raise ConfigurationError(f"{path} cannot be made.") from OSError(number, "so")

    monkeypatch.setattr(data_directory, "secure_directory", fails)
    settings = Settings(data=tmp_path / "data")
    async with AsyncExitStack() as undo:
        if number == errno.EACCES:
            with pytest.raises(DirectoryUnusable, match="PYKOCLAW_STATE"):
                data_directory.take(settings, places, undo, resident=True)
        else:
            _, spare = data_directory.take(settings, places, undo, resident=True)
            assert str(spare[0]) == places.directory


def test_directory_readable_by_others_stays_unchanged(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    DataLock.acquire(tmp_path).release()
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_another_users_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigurationError, match=f"belongs to user {owner}"):
        DataLock.acquire(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_file_in_place_of_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    for path in (tmp_path / "data", tmp_path / "data" / "below"):
        assert not is_held(str(path))
        with pytest.raises(ConfigurationError, match="cannot be used: a file is in its place"):
            DataLock.acquire(path)


def test_symbolic_link_in_place_of_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / LOCK_NAME).symlink_to(tmp_path / "precious")
    with pytest.raises(ConfigurationError):
        DataLock.acquire(tmp_path)
    assert (tmp_path / "precious").read_text() == "kept"
