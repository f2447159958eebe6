"""Who may open the files of a real server: nobody but its user, or a group that is set."""

from __future__ import annotations

import asyncio
import grp
import os
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from pykoclaw_acp.cli import cli
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.server import data_directory
from pykoclaw_acp.server.app import App
from pykoclaw_acp.sessions import folders
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.system.turn_lock import TurnLock


def settings_in(path: Path, group: str | None = None) -> Settings:
    return Settings(
        data=path / "data", state=path / "state", socket=path / "run" / "s", group=group
    )


@asynccontextmanager
async def server(settings: Settings) -> AsyncIterator[App]:
    app = await App.start(
        settings, Places(settings.data, settings.state, settings.socket), resident=True
    )
    try:
        yield app
    finally:
        await app.detach()


def modes(directory: Path) -> dict[str, int]:
    return {one.name: stat.S_IMODE(one.stat().st_mode) for one in directory.glob("pykoclaw.db*")}


@pytest.mark.parametrize("mode", [0o644, 0o664, 0o666, 0o400 | 0o200])
async def test_an_adopted_database_is_closed_to_others(tmp_path: Path, mode: int) -> None:
    """Made by another program, which has it open, in WAL mode."""
    (tmp_path / "data").mkdir()
    path = tmp_path / "data/pykoclaw.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE conversations (name TEXT PRIMARY KEY, session_id TEXT, cwd TEXT,"
                      " created_at TEXT NOT NULL, system_prompt_hash TEXT)")  # fmt: skip
        other.commit()
        for one in (tmp_path / "data").glob("pykoclaw.db*"):
            one.chmod(mode)
        async with server(settings_in(tmp_path)):
            assert set(modes(tmp_path / "data")) >= {
                "pykoclaw.db",
                "pykoclaw.db-wal",
                "pykoclaw.db-shm",
            }
            assert set(modes(tmp_path / "data").values()) == {0o600}


async def test_file_behind_a_link_is_closed(tmp_path: Path) -> None:
    """SQLite's own files are beside that, not beside the link."""
    for name in ("data", "elsewhere"):
        (tmp_path / name).mkdir(mode=0o700)
    path = tmp_path / "elsewhere/pykoclaw.db"
    (tmp_path / "data/pykoclaw.db").symlink_to(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE conversations (name TEXT PRIMARY KEY, session_id TEXT, cwd TEXT,"
                      " created_at TEXT NOT NULL, system_prompt_hash TEXT)")  # fmt: skip
        other.commit()
        for one in path.parent.iterdir():
            one.chmod(0o644)
        async with server(settings_in(tmp_path)):
            found = modes(path.parent)
    assert set(found) >= {"pykoclaw.db", "pykoclaw.db-wal", "pykoclaw.db-shm"}
    assert set(found.values()) == {0o600}


def test_the_command_closes_a_database_that_it_adopts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pykoclaw.db"
    monkeypatch.setenv("PYKOCLAW_DATA", str(tmp_path))
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE photos (x)")
        other.commit()
        for one in tmp_path.iterdir():
            one.chmod(0o644)
        result = CliRunner().invoke(cli, ["adopt"])
        assert result.exit_code == 0, result.output
        assert set(modes(tmp_path).values()) == {0o600}
    assert f"is no longer: {path}. Set PYKOCLAW_GROUP" in result.output


@pytest.mark.parametrize("umask", [0o000, 0o277])
async def test_no_umask_matters(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        async with server(settings_in(tmp_path)) as app:
            await app.database.read("SELECT 1 FROM acp_sessions")
            await folders.of_conversation(tmp_path / "data", "of-a-task")
            lock = TurnLock.take(str(tmp_path / "data"), "of-a-task", "test")
            assert isinstance(lock, TurnLock)
            lock.release()
    finally:
        os.umask(before)
    for top in (tmp_path / "data", tmp_path / "state"):
        for path in (top, *(one for one in top.rglob("*") if one.is_dir())):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert (tmp_path / "data/conversations/of-a-task").is_dir()
    assert set(modes(tmp_path / "data").values()) == {0o600}


def test_directories_of_conversations_that_are_there_stay(tmp_path: Path) -> None:
    """A program of pykoclaw's has made them, for whom it likes."""
    there = tmp_path / "conversations/there"
    there.mkdir(parents=True)
    for one in (there, there.parent):
        one.chmod(0o755)
    for name in ("there", "new"):
        asyncio.run(folders.of_conversation(tmp_path, name))
    found = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.rglob("*")}
    assert found == {"conversations": 0o755, "there": 0o755, "new": 0o700}


def test_the_group_shares_directories_of_conversations(tmp_path: Path) -> None:
    group = 4711 if os.geteuid() == 0 else max(os.getgroups(), default=os.getegid())
    os.chown(tmp_path, -1, group)
    tmp_path.chmod(0o2770)
    asyncio.run(folders.of_conversation(tmp_path, "new"))
    made = [one.stat() for one in tmp_path.rglob("*")]
    assert {(stat.S_IMODE(one.st_mode), one.st_gid) for one in made} == {(0o2770, group)}
    assert len(made) == 2


async def test_start_warns_of_directory_that_others_cannot_reach(tmp_path: Path) -> None:
    """As an upgrade finds it: refused, it would take the user's conversations away."""
    weak = tmp_path / "closed/weak"
    for path, mode in ((weak.parent, 0o700), (weak, 0o777)):
        path.mkdir()
        path.chmod(mode)
    with capture_logs() as logged:
        async with server(settings_in(weak)) as app:
            assert await app.database.read("SELECT 1 FROM acp_sessions") == []
    (warning,) = [one for one in logged if one.get("action") == "directory_weak"]
    assert warning["log_level"] == "warning"
    assert warning["directory"] == str(weak)
    assert f"chmod o-w {weak}" in warning["advice"]


async def test_a_group_that_is_set_shares_it(tmp_path: Path) -> None:
    name = grp.getgrgid(os.getegid()).gr_name
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with pytest.raises(ConfigurationError, match=f"chgrp {name} {data} && chmod 2770 {data}"):
        async with server(settings_in(tmp_path, group=name)):
            pass
    data.chmod(0o2770)
    async with server(settings_in(tmp_path, group=name)):
        assert set(modes(data).values()) == {0o660}
        assert {one.stat().st_gid for one in data.glob("pykoclaw.db*")} == {os.getegid()}


async def test_a_group_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such group"):
        async with server(settings_in(tmp_path, group="of-nobody")):
            pass
    assert not (tmp_path / "data").exists()


async def test_a_temporary_directory_of_others_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and directory not in (Path("/"), Path("/tmp")):
            directory.chmod(directory.stat().st_mode | 0o055)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    places = Places(tmp_path / "data", tmp_path / "state", tmp_path / "s")
    for mode, used in ((0o755, [shared]), (0o1777, [shared]), (0o777, [])):
        shared.chmod(mode)
        assert data_directory.warn_of_weak_places(tmp_path / "data", places, None) == used
