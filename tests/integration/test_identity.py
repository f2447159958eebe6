"""Which instance a server is: what it writes down, whose name it takes, and what it makes of what
others left.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import ConfigurationError, DatabaseMissing, DataDirectoryLocked
from pykoclaw_acp.link import records
from pykoclaw_acp.link.places import DATABASE, Places
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.limit_waits import LimitWait
from pykoclaw_acp.model.scheduled import Task, TaskRun
from pykoclaw_acp.pool.local_whereabouts import LocalWhereabouts
from pykoclaw_acp.server import instance_name, notices
from pykoclaw_acp.server.app import App
from pykoclaw_acp.server.identity import Identity, settle
from pykoclaw_acp.server.instance_name import InstanceName, claim
from pykoclaw_acp.store import instance, limit_waits, tasks
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.instance import InstanceRow
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.system import processes
from tests.integration.scheduling import blocked_by_cron

CHILD = (
    "import asyncio, sys\n"
    "from pykoclaw_acp.server import instance_name\n"
    "async def main():\n"
    "    held = await instance_name.claim(sys.argv[1], '/none')\n"
    "    print('held' if held else 'taken', flush=True)\n"
    "    await asyncio.sleep(1000)\n"
    "asyncio.run(main())\n"
)

# Another user, who has read the name in /proc/net/unix.
OTHER_USER = """
import os, socket, sys, time
address = f"\\0pykoclaw-acp/{os.geteuid()}/{sys.argv[1]}"
os.setuid(65534)
taken = socket.socket(socket.AF_UNIX)
taken.bind(address)
if sys.argv[2] != "is silent":
    taken.listen(0)
if sys.argv[2] == "is busy":
    asking = socket.socket(socket.AF_UNIX)
    asking.connect(address)
print("held", flush=True)
time.sleep(1000)
"""


@contextmanager
def held(name: str, program: str = CHILD, *how: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the instance's name."""
    command = [sys.executable, "-c", program, name, *how]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            yield other
        finally:
            other.kill()


def places_of(path: Path, data: str = "data") -> Places:
    return Places(path / data, path / "state", path / "socket")


@asynccontextmanager
async def server(places: Places) -> AsyncIterator[App]:
    app = await App.start(
        Settings(data=Path(places.data), state=Path(places.state)), places, resident=True
    )
    try:
        yield app
    finally:
        await app.detach()


async def served_instance(places: Places) -> InstanceRow:
    """The instance of a data directory that a server has served."""
    async with server(places) as app:
        known = await instance.read(app.database)
    assert known is not None
    return known


@asynccontextmanager
async def database(places: Places) -> AsyncIterator[Database]:
    os.makedirs(places.data, exist_ok=True)
    opened = await Database.open(Path(places.data, DATABASE))
    try:
        yield opened
    finally:
        await opened.close()


async def settled(opened: Database, places: Places) -> Identity:
    found = await settle(opened, places, LocalWhereabouts())
    found.release()
    return found


async def execute(opened: Database, sql: str, *parameters: object) -> None:
    await opened.commit(Unit(statements=(Statement(sql, parameters),)))


async def add_session(opened: Database) -> None:
    await execute(
        opened,
        "INSERT INTO acp_sessions (acp_session_id, conversation_name, epoch, last_seq, created_at, updated_at)"
        " VALUES ('s', 'c', 1, 5, 0, 0)",
    )


async def add_worker(opened: Database, process: subprocess.Popen[bytes], socket: Path) -> None:
    await execute(
        opened,
        "INSERT INTO acp_workers (acp_session_id, epoch, pid, start_time, boot_id, socket, protocol, created_at)"
        " VALUES ('s', 1, ?, ?, ?, ?, 1, 0)",
        process.pid, processes.start_time(process.pid), processes.boot_id(), str(socket),
    )  # fmt: skip


@pytest.fixture
def old(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of a version without ids: it holds no directory, and listens to nobody."""
    environment = {**os.environ, "PYKOCLAW_DATA": str(tmp_path / "data")}
    process = subprocess.Popen(["sleep", "1000"], env=environment)
    yield process
    process.kill()
    process.wait()


async def test_instance_id_is_stable_and_record_is_private(tmp_path: Path) -> None:
    places = places_of(tmp_path)
    async with server(places) as app:
        first = await instance.read(app.database)
    assert first is not None
    async with server(places) as app:
        assert await instance.read(app.database) == first
    path = records.path_of(places.state, first.instance)
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["data"] == places.data
    assert [one.instance for one in records.at(places.state, places.data)] == [first.instance]


async def test_unwritable_record_does_not_prevent_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(state: str, record: records.InstanceRecord) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(records, "write", refuse)
    async with server(places_of(tmp_path)) as app:
        assert await instance.read(app.database) is not None


def modes(directory: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in (directory, *directory.glob("*/"))}


def put_in_the_way(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.write_text("in the way")


def open_to_others(directory: Path, mode: int) -> None:
    if directory.is_file():
        directory.unlink()
    directory.mkdir(exist_ok=True)
    directory.chmod(mode)


async def test_worker_directories_are_private_and_optional_for_start(tmp_path: Path) -> None:
    places = places_of(tmp_path)
    known = await served_instance(places)
    directory = Path(places.state, known.instance)
    assert modes(directory) == {0o700}
    put_in_the_way(directory)
    async with server(places) as app:
        assert await instance.read(app.database) == known
    open_to_others(directory, 0o755)  # as the CLI makes it, if it was removed
    async with server(places):
        assert modes(directory) == {0o700}
    open_to_others(directory, 0o777)
    with pytest.raises(ConfigurationError, match="Others can use"):
        async with server(places):
            pass


def test_a_damaged_record_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    for damaged in (
        "",
        "{}",
        "[]",
        '{"instance": "y", "data": "/", "device": 1, "inode": 1, "boot": "b"}',
    ):
        (tmp_path / "x" / records.NAME).write_text(damaged)
        assert records.find(str(tmp_path), "x") is None
        assert records.at(str(tmp_path), "/") == []


async def test_instance_name_is_exclusive_until_process_death(tmp_path: Path) -> None:
    places = places_of(tmp_path)
    known = await served_instance(places)
    with held(known.instance) as other:
        async with database(places) as opened:
            with pytest.raises(DataDirectoryLocked, match="its lock file there was removed"):
                await settled(opened, places)
            other.send_signal(signal.SIGKILL)
            await asyncio.to_thread(other.wait)
            assert (await settled(opened, places)).standing.id == known.instance


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("how", ["listens", "is silent", "is busy"])
async def test_another_user_holding_the_name_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(instance_name, "NAME_WAIT", 0.2)
    places = places_of(tmp_path)
    known = await served_instance(places)
    with held(known.instance, OTHER_USER, how):
        async with server(places) as app:
            assert await instance.read(app.database) == known
            # a second one of ours, without the lock file, is still kept out
            with pytest.raises(DataDirectoryLocked, match="its lock file there was removed"):
                await settled(app.database, places)
        async with database(places) as opened:
            assert (await settled(opened, places)).standing.id == known.instance


async def test_server_without_name_still_excludes_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever had the name when it started has given it back."""
    monkeypatch.setattr(instance_name, "NAME_WAIT", 0.2)
    places = places_of(tmp_path)
    known = await served_instance(places)
    first = InstanceName(known.instance, places.state)
    assert first.lock()
    assert await claim(known.instance, places.state) is None
    first.release()
    again = await claim(known.instance, places.state)
    assert again is not None
    again.release()


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
@pytest.mark.parametrize(
    "served", [pytest.param(True, marks=pytest.mark.long), False], ids=["served", "at rest"]
)
async def test_link_to_another_directorys_database_is_refused(
    tmp_path: Path, link: Callable[[Path, Path], None], *, served: bool
) -> None:
    here, there = places_of(tmp_path), places_of(tmp_path, "linked")
    known = await served_instance(here)
    Path(there.data).mkdir(mode=0o700)  # noqa: ASYNC240
    link(Path(here.data) / DATABASE, Path(there.data) / DATABASE)
    with held(known.instance) if served else nullcontext():
        async with database(there) as opened:
            with pytest.raises(ConfigurationError, match="the same file as"):
                await settled(opened, there)
            assert await instance.read(opened) == known
    async with server(here) as app:
        assert await instance.read(app.database) == known


async def test_older_database_has_only_its_own_workers(
    tmp_path: Path, old: subprocess.Popen[bytes]
) -> None:
    here, there = places_of(tmp_path), places_of(tmp_path, "copy")
    for places in (here, there):
        async with database(places) as opened:
            await add_session(opened)
            await add_worker(opened, old, Path(here.directory, "sockets", "name"))
            found = (await settled(opened, places)).standing
            assert found.id not in (here.hash, there.hash)
            assert (here.hash in found.names) == (places is here)
            assert found.copied_from == (None if places is here else str(tmp_path / "data"))


async def test_silent_worker_marks_databases_elsewhere_as_copies(
    tmp_path: Path, old: subprocess.Popen[bytes]
) -> None:
    places, elsewhere = places_of(tmp_path), places_of(tmp_path, "copy")
    async with server(places) as app:
        known = await instance.read(app.database)
        assert known is not None
    async with database(places) as opened:
        await add_session(opened)
        await add_worker(opened, old, Path(places.state, known.instance, "sockets", "name"))
        assert (await settled(opened, places)).standing.copied_from is None
    await asyncio.to_thread(subprocess.run, ["cp", "-a", places.data, elsewhere.data], check=True)
    await asyncio.to_thread(subprocess.run, ["rm", "-r", places.data], check=True)
    async with database(elsewhere) as opened:
        assert (await settled(opened, elsewhere)).standing.copied_from == places.data


async def test_copy_leaves_notices_to_its_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "run", AsyncMock())  # the setting names nobody
    here, there = places_of(tmp_path), places_of(tmp_path, "copy")
    async with server(here) as app:
        rows = (
            "INSERT INTO acp_notices VALUES ('turn-1', 'session', 'turn_ended', '{}', 1, 1)",
            "INSERT INTO acp_notifications (notice_id, target, next_clock) VALUES ('turn-1', 'x', 0)",
        )
        await app.database.commit(Unit(tuple(Statement(sql) for sql in rows)))
    await asyncio.to_thread(subprocess.run, ["cp", "-a", here.data, there.data], check=True)
    for places, outcome in ((there, "removed"), (here, None)):
        async with server(places) as app:
            found = await app.database.read("SELECT outcome FROM acp_notifications")
            assert found == [(outcome,)]


async def test_copy_leaves_waits_and_runs_to_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would do the same work in the same directories."""
    blocked = blocked_by_cron(monkeypatch)
    here, there = places_of(tmp_path), places_of(tmp_path, "copy")
    async with server(here) as app:
        session = await app.sessions.create(str(tmp_path), (), ())
        wait = limit_waits.add(LimitWait(session.id, "stopped", 2**33))
        now = time.time_ns() // 1_000_000
        daily = ("cron", "0 9 * * *")
        task = Task("t", "c", "say 1", *daily, "group", None, None, None, None, "active", "")
        run = tasks.claim(TaskRun("run", task, None, manual=False, started_at=now), 0)
        await app.database.commit(Unit((wait, run[1])))
    await asyncio.to_thread(subprocess.run, ["cp", "-a", here.data, there.data], check=True)
    async with database(here) as opened:
        assert [one.turn_id for one in await limit_waits.every(opened)] == ["stopped"]
        assert [one.turn_id for one in (await tasks.unfinished(opened))[0]] == ["run"]
    async with server(there) as app:
        assert await limit_waits.every(app.database) == []
        assert await tasks.unfinished(app.database) == ([], [])
        assert blocked == [False]
        ((state, error),) = await app.database.read("SELECT status, error FROM task_run_logs")
        assert (state, here.data in error) == ("error", True)
        (logged,) = await SessionJournal(app.database).read(session.id, 0, 10)
        assert isinstance(logged.event, Text)
        assert f"copy of the data directory {here.data}" in logged.event.text


async def test_older_database_without_id_is_the_local_instance(tmp_path: Path) -> None:
    places = places_of(tmp_path)
    async with server(places) as app:
        known = await instance.read(app.database)
        assert known is not None
    async with database(places) as opened:
        await add_session(opened)
        await execute(opened, "DELETE FROM acp_instance")
        assert (await settled(opened, places)).standing.id == known.instance


async def test_foreign_new_database_is_not_the_local_instance(tmp_path: Path) -> None:
    places = places_of(tmp_path)
    async with server(places):
        pass
    for path in Path(places.data).glob("pykoclaw.db*"):  # noqa: ASYNC240
        path.unlink()
    async with database(places):
        pass
    with pytest.raises(DatabaseMissing, match="without any conversation"):
        async with server(places):
            pass


def test_leftovers_of_version_without_ids_reveal_missing_database(tmp_path: Path) -> None:
    places = places_of(tmp_path)
    spool = Path(places.directory, "spool", "name.ndjson")
    spool.parent.mkdir(parents=True, mode=0o700)
    spool.write_text("{}\n")
    spool.parents[1].chmod(0o700)
    with pytest.raises(DatabaseMissing, match=places.hash):
        records.require_database(places, lambda data: False)
    spool.write_text("")
    records.require_database(places, lambda data: False)
    with pytest.raises(DatabaseMissing, match="end its workers"):
        records.require_database(places, lambda data: data == places.data)
