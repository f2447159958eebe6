"""While the database cannot be written nothing is lost, told too early or run twice, and nobody
waits to read.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from uuid import uuid4

import msgspec
import pytest

from pykoclaw_acp import crash_points, retries
from pykoclaw_acp.channel.frames import Interrupt
from pykoclaw_acp.errors import RowRefused, SessionNotFound, StoreUnavailable, StoreUncertain
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import OpenTools, Text
from pykoclaw_acp.model.permissions import Decision, PermissionRequest
from pykoclaw_acp.model.turns import PromptKeys, SessionRecord, Turn
from pykoclaw_acp.sessions import opening, registry
from pykoclaw_acp.store import batch, checkpoints, history_copy, preflight, turns
from pykoclaw_acp.store.batch import BatchWriter
from pykoclaw_acp.store.condition import KeptOrNot, unavailable
from pykoclaw_acp.store.database import ABANDONED, Database, Statement, Unit
from pykoclaw_acp.store.open_file import GoneAfterCommit, OpenFile
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.sqlite import sqlite3
from tests.databases import close_files, on_writer, opened
from tests.integration import wires
from tests.integration.callers import caller
from tests.integration.linked import front, words
from tests.integration.rig import TIMES, Client, Rig, hanging, rig
from tests.integration.rows import create
from tests.statements import watched
from tests.waiting import eventually, not_within, running

DATABASE = "pykoclaw.db"


async def close_abandoned() -> None:
    """What the end of the process does."""
    while ABANDONED:
        await close_files(ABANDONED.pop())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program holds the write lock."""
    other = sqlite3.connect(path / DATABASE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()


class Disk:
    """Every transaction fails while `error` is set, the probes too."""

    def __init__(self) -> None:
        self.error: sqlite3.Error | None = None

    def fails(self, code: int, words: str) -> None:
        self.error = sqlite3.OperationalError(words)
        self.error.sqlite_errorcode = code

    def check(self, *_: Any) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(OpenFile, "check", disk.check)
    return disk


FAULTS = [
    (sqlite3.SQLITE_FULL, "database or disk is full", "blocked"),
    (sqlite3.SQLITE_READONLY, "attempt to write a readonly database", "blocked"),
    (sqlite3.SQLITE_IOERR, "disk I/O error", "blocked"),
    (sqlite3.SQLITE_CORRUPT, "database disk image is malformed", "damaged"),
    (sqlite3.SQLITE_BUSY, "database is locked", "locked"),
]


async def state_of(r: Rig, turn: Turn) -> str:
    return (await r.states())[turn.turn_id]


async def test_cancel_is_reported_only_once_journaled(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, running, channel = await hanging(r)
        waiting = await r.prompt(session, "say 1")
        with locked(tmp_path):
            session.cancel(waiting)
            await not_within(waiting.ended.done)
            assert await state_of(r, waiting) == "queued"
            assert waiting in session.turns  # one that comes again joins it
        assert (await asyncio.wait_for(waiting.ended, 30))[0].state == "cancelled"
        assert await state_of(r, waiting) == "cancelled"
        channel.say(channel.ended(running.turn_id))
        await session.idle()
        assert channel.prompts == ["hang"]


async def test_session_that_was_hidden_is_deleted_whatever_happens(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full from the moment on in which a deletion is in the database."""

    def reached(step: str) -> None:
        if step == "session_hidden":
            disk.fails(sqlite3.SQLITE_FULL, "database or disk is full")

    monkeypatch.setattr(crash_points, "reached", reached)
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        await session.idle()
        await asyncio.wait_for(r.sessions.delete(session), 30)
        with pytest.raises(SessionNotFound):
            await r.sessions.get(session.id)
        assert await r.states() != {}
        disk.error = None

        async def is_gone() -> Any:
            return not await r.states()

        await eventually(is_gone)


async def test_deletion_outlasts_reads_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read after the session is hidden fails once, as another program locks readers out."""
    read, failed = Database.read, set[str]()

    async def locked(database: Database, sql: str, *more: Any) -> list[tuple[Any, ...]]:
        if hidden and sql not in failed:
            failed.add(sql)
            raise unavailable(DatabaseState.LOCKED, "Another program keeps it locked.")
        return await read(database, sql, *more)

    hidden: list[str] = []
    monkeypatch.setattr(crash_points, "reached", hidden.append)
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.0)
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        await session.idle()
        hidden.clear()
        monkeypatch.setattr(Database, "read", locked)
        await asyncio.wait_for(r.sessions.delete(session), 60)
        monkeypatch.undo()
        assert len(failed) > 10
        for table in ("acp_log", "acp_turns", "acp_log_leftovers"):
            assert await r.database.read(f"SELECT COUNT(*) FROM {table}") == [(0,)], table


@pytest.mark.parametrize(("code", "words", "state"), FAULTS)
async def test_requests_are_refused_at_once_while_events_wait(
    tmp_path: Path, disk: Disk, code: int, words: str, state: str
) -> None:
    async with rig(tmp_path) as r:
        session, running, channel = await hanging(r)
        disk.fails(code, words)
        channel.say(
            channel.event(running.turn_id, "said on a full disk"), channel.ended(running.turn_id)
        )
        await eventually(lambda: r.database.condition.state == state)
        tried = []
        for request in (
            r.session(),
            session.submit(Turn(str(uuid4()), session.id, [{"type": "text", "text": "say 1"}])),
            session.choosing.choose("mode", mode="plan"),
            r.sessions.catalogue.set_title(session.id, "new"),
            r.sessions.delete(session),
            r.sessions.close(session),
            r.sessions.requests.decide("x", "deny", by="cli"),
        ):
            with pytest.raises(StoreUnavailable) as refused:
                await request
            tried.append(refused.value.data)
        reason = r.database.condition.reason
        assert words in reason or state == "locked"
        assert tried == [{"errorKind": f"store_{state}", "retryable": True, "reason": reason}] * 7
        await not_within(running.ended.done)
        assert channel in r.launcher.live
        assert channel.acked < channel.last
        disk.error = None
        assert (await asyncio.wait_for(running.ended, 30))[0].state == "done"
        assert await said(r, session.id) == ["said on a full disk"]
        await eventually(lambda: channel.acked == channel.last)
        assert (await r.run(session, "say 1")).state == "done"
        assert len(r.launcher.launched) == 1


async def said(r: Rig, session_id: str) -> list[str]:
    session = await r.sessions.get(session_id)
    logged = await SessionJournal(r.database).read(session.id, 0, 1000)
    assert [seq for one in logged for seq in range(one.first, one.seq + 1)] == list(
        range(1, session.last_seq + 1)
    )
    return [one.event.text for one in logged if isinstance(one.event, Text)]


async def test_history_is_read_and_sessions_are_opened_meanwhile(
    tmp_path: Path, disk: Disk
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 2")
        disk.fails(sqlite3.SQLITE_FULL, "database or disk is full")
        client = Client()
        found = await r.sessions.get(session.id)
        await r.sessions.reopen(found, "/", ("/more",), ())
        subscription = session.subscribe(client, 0)
        await subscription.reached(session.last_seq)
        assert client.text == "0 1 "
        subscription.close()
        disk.error = None
        await eventually(lambda: r.database.condition.is_writable)

        async def kept() -> bool:
            return (await r.database.read("SELECT additional_directories FROM acp_sessions")) == [
                ('["/more"]',)
            ]

        stored: bool = await eventually(kept)
        assert stored


async def test_what_reads_waits_only_until_lock_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an opened session writes, and the client's place, are written later."""
    monkeypatch.setattr(registry, "WRITE_WAIT", 600.0)
    monkeypatch.setattr(opening, "PLACE_WAIT", 600.0)
    async with rig(tmp_path) as r, wires.client(r) as wire:
        session = await wires.new(wire)
        await wire.call("session/prompt", **wires.prompt(session, "say 1"))
        with locked(tmp_path):
            async with asyncio.timeout(60):
                for method in ("session/load", "session/resume", "session/load"):
                    params = {"sessionId": session, "cwd": "/", "mcpServers": []}
                    assert "result" in await wire.call(method, **params)
            assert r.database.condition.state == "locked"
            assert wire.text() == "0 0 0 "


@pytest.mark.parametrize("method", ["session/prompt", "session/set_mode"])
async def test_session_closed_elsewhere_is_refused_for_disk(
    tmp_path: Path, disk: Disk, method: str
) -> None:
    """What a client asks of it opens it again, and is refused as it may be sent again."""
    async with rig(tmp_path) as r, wires.client(r, "zed") as zed, wires.client(r, "toad") as toad:
        session = await wires.new(zed)
        await wires.load(toad, session)
        await toad.call("session/close", sessionId=session)
        disk.fails(sqlite3.SQLITE_FULL, "database or disk is full")
        await toad.call("session/new", cwd="/", mcpServers=[])
        assert r.database.condition.state == "blocked"
        given = {"sessionId": session, "modeId": "plan", **wires.prompt(session, "say 1")}
        refused = (await zed.call(method, **given))["error"]
        assert refused["data"]["errorKind"] == "store_blocked"
        disk.error = None


async def test_what_reads_never_waits_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, wires.client(r) as wire, caller(r, tmp_path) as cli:
        session = await wires.new(wire)
        await wire.call("session/prompt", **wires.prompt(session, "say 1"))
        with locked(tmp_path):
            refused = await wire.call("session/new", cwd="/", mcpServers=[])
            assert refused["error"]["data"]["retryable"]
            assert r.database.condition.state == "locked"
            monkeypatch.setattr(batch, "LOCK_WAIT", 600.0)
            await on_writer(r.database, lambda it: it.execute("PRAGMA busy_timeout=600000"))
            async with asyncio.timeout(60):
                assert (await cli.call("status"))["database"]["condition"] == "locked"
                assert "result" in await wire.call("session/list")
                for method in ("session/load", "session/resume"):
                    params = {"sessionId": session, "cwd": "/", "mcpServers": []}
                    assert "result" in await wire.call(method, **params)
                assert wire.text() == "0 0 "
                refused = await wire.call("session/new", cwd="/", mcpServers=[])
            assert refused["error"]["data"]["retryable"]


async def test_cancel_interrupts_at_once_only_its_end_waits(tmp_path: Path, disk: Disk) -> None:
    async with rig(tmp_path) as r:
        session, running, channel = await hanging(r)
        disk.fails(sqlite3.SQLITE_IOERR, "disk I/O error")
        (leaving,) = session.cancel(running)
        await eventually(lambda: any(isinstance(one, Interrupt) for one in channel.got))
        await not_within(lambda: running.ended.done() or leaving.done())
        disk.error = None
        assert (await asyncio.wait_for(running.ended, 30))[0].state == "cancelled"
        await asyncio.wait_for(leaving, 30)
        assert await r.database.read("SELECT cancel_asked FROM acp_turns") == [(1,)]


async def test_accepted_prompt_waits_for_disk_and_runs_once(tmp_path: Path, disk: Disk) -> None:
    async with rig(tmp_path, worker_start_timeout=0.1) as r:
        session = await r.session()
        r.launcher.slow = True
        turn = await r.prompt(session, "say 1")
        await eventually(lambda: r.launcher.launched)
        disk.fails(sqlite3.SQLITE_FULL, "database or disk is full")
        r.launcher.launched[0].ready()
        await not_within(turn.ended.done)
        disk.error = None
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "done"
        assert [channel.prompts for channel in r.launcher.launched] == [["say 1"]]


async def test_question_answer_is_kept_and_applied_later(tmp_path: Path, disk: Disk) -> None:
    async with rig(tmp_path) as r:
        session, running, channel = await hanging(r)
        for subscription in list(session.subscriptions):
            subscription.close()
        channel.last += 1
        asked = {
            "ask_id": "q",
            "turn_id": running.turn_id,
            "tool_call_id": "t",
            "title": "rm",
            "tool_kind": "execute",
        }
        channel.say(msgspec.convert({"epoch": 1, "n": channel.last, **asked}, PermissionRequest))
        await eventually(lambda: session.permissions.pending_ids == ["q"])
        disk.fails(sqlite3.SQLITE_FULL, "database or disk is full")
        answering = asyncio.ensure_future(
            session.permissions.decide("q", Decision("selected", "allow_once", "test"))
        )
        await not_within(answering.done)
        assert channel.answers == []
        disk.error = None
        await asyncio.wait_for(answering, 30)
        await eventually(lambda: [one.ask_id for one in channel.answers] == ["q"])


async def test_turn_of_dead_worker_ends_once_writable(tmp_path: Path, disk: Disk) -> None:
    async with rig(tmp_path) as r:
        session, running, channel = await hanging(r)
        waiting = await r.prompt(session, "say 1")
        disk.fails(sqlite3.SQLITE_FULL, "database or disk is full")
        told = channel.event(running.turn_id, "last words")
        channel.say(told)
        r.launcher.spools[channel.spec.cookie] = [[channel.event(running.turn_id, " of the spool")]]
        channel.kill()
        await not_within(running.ended.done)
        assert len(r.launcher.launched) == 1
        disk.error = None
        assert (await asyncio.wait_for(running.ended, 30))[0].state == "failed"
        assert (await asyncio.wait_for(waiting.ended, 30))[0].state == "done"
        assert await said(r, session.id) == ["last words of the spool", "0 "]


async def test_a_file_that_was_moved_away_acknowledges_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, running, channel = await hanging(r)
        path, away = tmp_path / DATABASE, tmp_path / "moved.db"
        path.rename(away)
        with pytest.raises(StoreUnavailable) as refused:
            await r.session()
        assert refused.value.state == "gone"
        assert str(path) in refused.value.message
        channel.say(channel.ended(running.turn_id))
        await not_within(running.ended.done)
        away.rename(path)
        assert (await asyncio.wait_for(running.ended, 30))[0].state == "done"
        assert (await r.run(session, "say 1")).state == "done"
        assert not r.database.reopen_wanted.is_set()


async def test_log_beside_another_file_is_to_be_moved(tmp_path: Path) -> None:
    """SQLite would apply it to that one when the daemon starts again."""
    async with rig(tmp_path) as r:
        session = await r.session()
        path = tmp_path / DATABASE
        path.rename(tmp_path / "first.db")
        shutil.copy(tmp_path / "first.db", path)
        with pytest.raises(StoreUnavailable, match="replaced while it was in use") as refused:
            await r.prompt(session, "say 1")
        assert f"stop the daemon, move {path}-wal and {path}-shm away," in refused.value.message


async def test_other_file_at_path_is_named_and_untouched(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        path = tmp_path / DATABASE
        for suffix in ("", "-wal", "-shm"):
            path.with_name(DATABASE + suffix).rename(tmp_path / f"moved.db{suffix}")
        other = await opened(path)
        with pytest.raises(StoreUnavailable) as refused:
            await r.prompt(session, "say 1")
        assert refused.value.state == "gone"
        assert f"inode {path.stat().st_ino}" in refused.value.message
        assert f"The first one is {tmp_path / 'moved.db'} now" in refused.value.message
        assert "stop the daemon and start it again" in refused.value.message
        await other.commit(
            Unit(
                (
                    Statement(
                        "INSERT INTO conversations (name, created_at) VALUES ('theirs', 'now')"
                    ),
                )
            )
        )
        await r.database.close()
        assert r.database in ABANDONED
        assert await other.read("SELECT name FROM conversations") == [("theirs",)]
        wal = path.with_name(f"{DATABASE}-wal")
        assert wal.exists()
        await other.close()
    await close_abandoned()


@pytest.mark.parametrize("suffix", ["", "-wal"])
async def test_move_during_commit_makes_server_reopen_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    async with rig(tmp_path) as r:
        check = OpenFile.check_after_commit
        path, away = tmp_path / f"{DATABASE}{suffix}", tmp_path / "moved"

        def move(self: OpenFile) -> None:
            path.rename(away)
            monkeypatch.setattr(OpenFile, "check_after_commit", check)
            check(self)

        monkeypatch.setattr(OpenFile, "check_after_commit", move)
        with pytest.raises(StoreUncertain) as refused:
            await r.session()
        assert isinstance(refused.value.__cause__, GoneAfterCommit)
        away.rename(path)
        await asyncio.wait_for(r.database.reopen_wanted.wait(), 30)
        with pytest.raises(StoreUnavailable):
            await r.session()


class Unsynced:
    """SQLite's connection where COMMIT fails, and `after` that what begins a transaction."""

    in_transaction = False

    def __init__(self, after: sqlite3.Error | None) -> None:
        self._after = after
        self._failed = False

    def execute(self, sql: str, *_: Any) -> None:
        if sql == "COMMIT" and not self._failed:
            self._failed = True
            raise failure(sqlite3.SQLITE_IOERR)
        if sql.startswith("BEGIN") and self._failed and self._after is not None:
            raise self._after


def failure(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize("units", [1, 3])
@pytest.mark.parametrize("stays", [True, False], ids=["the disk stays so", "once"])
def test_commit_a_crash_revives_is_not_called_refused(units: int, *, stays: bool) -> None:
    """If the fsync fails, the transaction counts after a crash, unless another takes its place."""
    path = Path("/nowhere")
    writer = BatchWriter(OpenFile(path), relaxed=False)
    connection: Any = Unsynced(failure(sqlite3.SQLITE_IOERR) if stays else None)
    outcomes = writer.write(connection, [Unit()] * units)
    if stays:
        assert [isinstance(one, KeptOrNot) for one in outcomes] == [True] * units
    else:  # alone it was refused; among others it is tried once more
        assert not any(isinstance(one, KeptOrNot) for one in outcomes)
        assert [one == [] for one in outcomes] == [units > 1] * units


async def test_prompt_possibly_kept_is_not_called_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = watched(monkeypatch)
    async with rig(tmp_path) as r:
        session = await r.session()

        def fails(_: sqlite3.Connection, sql: str, __: object) -> None:
            """From the next COMMIT on."""
            if sql == "COMMIT" or (failed and sql == "BEGIN IMMEDIATE"):
                failed.append(sql)
                raise failure(sqlite3.SQLITE_IOERR)

        failed: list[str] = []
        statements.before = fails
        with pytest.raises(StoreUncertain, match="is not known") as refused:
            await r.prompt(session, "say 1")
        told = refused.value.data or {}
        assert (told["errorKind"], told["retryable"]) == ("store_uncertain", False)
        with pytest.raises(StoreUnavailable, match="nothing of it was kept"):
            await r.prompt(session, "say 1")
        statements.before = lambda *_: None
        await asyncio.wait_for(r.database.condition.writable(), 30)
        await r.prompt(session, "say 1")


async def test_unit_too_large_blocks_no_other_unit(tmp_path: Path) -> None:
    database = await opened(tmp_path / DATABASE)
    try:
        ((pages,),) = await database.read("PRAGMA page_count")
        await on_writer(
            database, lambda connection: connection.execute(f"PRAGMA max_page_count={pages + 20}")
        )
        small, large = (Statement("INSERT INTO conversations (name, created_at) VALUES (?, 'now')", (name,))
                        for name in ("small", "x" * 1_000_000))  # fmt: skip
        outcomes = await asyncio.gather(
            database.commit(Unit((small,))), database.commit(Unit((large,))), return_exceptions=True
        )
        assert outcomes[0] == []
        assert isinstance(outcomes[1], StoreUnavailable)
        await asyncio.wait_for(database.condition.writable(), 30)
    finally:
        await database.close()


async def test_a_locked_database_is_opened_for_reading(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.run(await r.session(), "say 1")
    with locked(tmp_path):
        database = await opened(tmp_path / DATABASE)
        assert database.condition.state == "locked"
        assert await database.read("SELECT state FROM acp_turns") == [("done",)]
    await asyncio.wait_for(database.condition.writable(), 30)
    await database.close()


async def test_history_is_read_from_copy_if_open_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        await r.run(await r.session(), "say 1")
    path, spare = tmp_path / DATABASE, tmp_path / "spare"
    spare.mkdir(mode=0o700)
    connect, refused = sqlite3.connect, sqlite3.OperationalError("unable to open database file")
    refused.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN

    def cannot(file: Any, *given: Any, **named: Any) -> Any:
        if file == path:
            raise refused
        return connect(file, *given, **named)

    with monkeypatch.context() as broken:
        broken.setattr(sqlite3, "connect", cannot)
        with pytest.raises(Exception, match="no room for a copy"):
            await opened(path, [tmp_path / "none"])
        database = await opened(path, [spare])
        assert database.limited
        assert await database.read("SELECT state FROM acp_turns") == [("done",)]
        copied = spare / history_copy.name_of(path)
        assert copied.stat().st_mode & 0o777 == 0o700
        assert {file.stat().st_mode & 0o077 for file in copied.iterdir()} == {0}
        with pytest.raises(StoreUnavailable):
            await database.commit(Unit())
        assert not database.reopen_wanted.is_set()
    await asyncio.wait_for(database.reopen_wanted.wait(), 30)
    await database.close()
    assert not copied.exists()


async def test_first_start_goes_on_once_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is pykoclaw's: none of our tables are in it yet."""
    path, spare = tmp_path / DATABASE, tmp_path / "spare"
    create(path, "delete")
    spare.mkdir(mode=0o700)
    main = "SELECT file FROM pragma_database_list WHERE name = 'main'"

    def full(connection: sqlite3.Connection, sql: str, _: object) -> None:
        if "CREATE TABLE" in sql and connection.execute(main).fetchall() == [(str(path),)]:
            raise failure(sqlite3.SQLITE_FULL)

    statements = watched(monkeypatch)
    statements.before = full
    database = await opened(path, [spare])
    statements.before = lambda *_: None
    assert database.limited
    assert await database.read("SELECT COUNT(*) FROM conversations") == [(200,)]
    await asyncio.wait_for(database.reopen_wanted.wait(), 30)
    await database.close()
    database = await opened(path, [spare])
    await database.commit(Unit())
    await database.close()


def test_probe_of_a_copied_database_writes_a_page(tmp_path: Path) -> None:
    path = tmp_path / DATABASE
    create(path, "wal")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA user_version = 7")
        before = Path(f"{path}-wal").stat().st_size
        assert history_copy.probe(path) is None
        assert Path(f"{path}-wal").stat().st_size > before
        assert other.execute("PRAGMA user_version").fetchall() == [(7,)]
        other.execute("BEGIN IMMEDIATE")
        refused = history_copy.probe(path)
        assert refused is not None
        assert "locked" in str(refused)


async def test_write_probe_really_writes_a_page(tmp_path: Path) -> None:
    """A full disk lets a transaction begin, and fails only what is written."""
    database = await opened(tmp_path / DATABASE)
    try:
        before = (tmp_path / f"{DATABASE}-wal").stat().st_size
        database.condition.failed(DatabaseState.BLOCKED, "The disk is full.")
        await asyncio.wait_for(database.condition.writable(), 30)
        assert (tmp_path / f"{DATABASE}-wal").stat().st_size > before
    finally:
        await database.close()


# --- who stands behind a prompt that a new daemon found waiting ---


PATIENT = replace(TIMES, rejoin_window=60.0)


async def requeued(r: Rig, **of: Any) -> tuple[Any, Turn]:
    """A session with a prompt of client `mitto` that another daemon had accepted."""
    session = await r.session()
    return session, await accepted(r, session.id, **of)


async def accepted(r: Rig, session: str, **of: Any) -> Turn:
    turn = Turn(str(uuid4()), session, [{"type": "text", "text": "say 1"}], client="mitto", **of)
    await SessionJournal(r.database).accept(turn)
    return turn


async def test_with_nobody_behind_it_it_ends_with_words(tmp_path: Path) -> None:
    async with rig(tmp_path, times=replace(TIMES, rejoin_window=0.05)) as r:
        session, turn = await requeued(r)
        session.requeue(turn)
        outcome, _ = await asyncio.wait_for(turn.ended, 30)
        assert (outcome.state, outcome.failure and outcome.failure.kind) == (
            "cancelled",
            "not_started",
        )
        kinds = await r.database.read("SELECT kind FROM acp_log ORDER BY seq")
        assert kinds == [("user_message",), ("title_changed",), ("failure",)]
        assert not r.launcher.launched
        assert (await r.run(session, "say 1")).state == "done"


async def test_claim_window_starts_after_adopted_turn_ends(tmp_path: Path) -> None:
    async with rig(tmp_path, times=replace(TIMES, rejoin_window=0.05)) as r:
        session, turn = await requeued(r)
        adopted = Turn(str(uuid4()), session.id, [])
        session.adopt(1, [adopted], {}, OpenTools())
        session.requeue(turn)
        await not_within(turn.ended.done)
        adopted.ended.set_result((None, 0))  # type: ignore[arg-type]
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "cancelled"


@pytest.mark.parametrize("of", [{"detached": True}, {"keys": PromptKeys("task:1")}])
async def test_what_nobody_was_to_wait_for_runs(tmp_path: Path, of: dict[str, Any]) -> None:
    async with rig(tmp_path, times=PATIENT) as r:
        session, turn = await requeued(r, unattended=True, **of)
        session.requeue(turn)
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "done"


async def test_prompt_of_dead_command_never_runs(tmp_path: Path) -> None:
    async with rig(tmp_path, times=replace(TIMES, rejoin_window=0.05)) as r:
        session, turn = await requeued(r, unattended=True)
        session.requeue(turn)
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "cancelled"
        assert not r.launcher.launched


async def test_command_that_sends_again_starts_its_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path, times=PATIENT) as r:
        of: dict[str, Any] = {"unattended": True, "keys": PromptKeys(idempotency="mine")}
        session, turn = await requeued(r, **of)
        session.requeue(turn)
        again = Turn(str(uuid4()), session.id, turn.content, **of)
        assert await session.accept_unattended(again) is turn
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "done"


async def test_joined_detached_prompt_runs_after_second_death(tmp_path: Path) -> None:
    of: dict[str, Any] = {"unattended": True, "keys": PromptKeys(idempotency="mine")}
    async with rig(tmp_path, times=PATIENT) as r:
        session, turn = await requeued(r, **of)
        await session.suspend()
        session.requeue(turn)
        again = Turn(str(uuid4()), session.id, turn.content, detached=True, **of)
        assert await session.accept_unattended(again) is turn
        (later,) = await turns.unfinished(r.database)
        assert later.turn.alone


async def test_answered_steering_runs_once_its_front_is_back(tmp_path: Path) -> None:
    """The front does not send again what was answered."""
    async with rig(tmp_path, times=PATIENT) as r:
        session, turn = await requeued(r, unattended=True, keys=PromptKeys("front-1:2"))
        session.requeue(turn)
        async with front(r, sessions={session.id: {"seq": 0, "opened": {"cwd": "/"}}}):
            assert (await asyncio.wait_for(turn.ended, 30))[0].state == "done"


async def test_a_cancelled_one_ends_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path, times=PATIENT) as r:
        session, turn = await requeued(r)
        session.requeue(turn)
        session.cancel(turn)
        assert (await asyncio.wait_for(turn.ended, 30))[0].stop_reason == "cancelled"
        assert not r.launcher.launched


async def test_prompt_superseded_by_same_fronts_newer_is_cancelled(tmp_path: Path) -> None:
    async with rig(tmp_path, times=PATIENT) as r:
        session, turn = await requeued(r, keys=PromptKeys("front-1:1"))
        steering = await accepted(
            r, session.id, unattended=True, keys=PromptKeys("front-1:2")
        )  # which it had the answer of
        for one in (turn, steering):
            session.requeue(one)
        newer = Turn(
            str(uuid4()), session.id, [{"type": "text", "text": "say 2"}], PromptKeys("front-1:3")
        )
        await session.accept(newer, session.subscribe(Client(), 0))
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "cancelled"
        for one in (steering, newer):
            assert (await asyncio.wait_for(one.ended, 30))[0].state == "done"
        assert [channel.prompts for channel in r.launcher.launched] == [["say 1", "say 2"]]


# --- a daemon that could not take up yet what an earlier one left ---


async def test_journaled_lines_wait_for_daemon_able_to_resume(tmp_path: Path) -> None:
    async with rig(tmp_path, times=PATIENT) as r:
        session, _ = await requeued(r, keys=PromptKeys("front-1:2", idempotency="mine"))
        r.sessions.awaits_recovery = True
        r.database.condition.failed(
            DatabaseState.LOCKED, "Another program keeps the database locked."
        )
        for watching in running("watch-store"):
            watching.cancel()
        async with front(r, sessions={session.id: {"seq": 0, "opened": {"cwd": "/"}}}) as one:
            one.call(2, "session/prompt", again=1, **words(session.id, "say 1"))
            one.call(
                3,
                "session/prompt",
                **words(session.id, "say 1", **{"pykoclaw.dev/idempotencyKey": "mine"}),
            )
            one.notify(4, "session/cancel", again=1, sessionId=session.id)
            one.notify(5, "$/cancel_request", again=1, requestId=2)
            one.call(6, "session/prompt", **words(session.id, "say 2"))
            assert (await one.answer(6))["error"]["code"] == -32011
            await one.result(7, "session/resume", sessionId=session.id, cwd="/")
            assert {int(rest.split(" ")[0]) for rest in one.rests("answer")} == {6, 7}
            assert one.rests("ack") == []
            one.notify(8, "$/cancel_request", requestId=6)
            await eventually(lambda: one.rests("ack") == ["8"])
        assert not r.launcher.launched


# --- files beside the database ---


async def test_truncated_wal_stops_writing_and_database_stays_intact(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        path = tmp_path / DATABASE
        before = path.read_bytes()
        os.truncate(tmp_path / f"{DATABASE}-wal", 100)
        with pytest.raises(StoreUnavailable) as refused:
            await r.prompt(session, "say 2")
        assert refused.value.state == "gone"
        assert "was cut to 100 bytes" in refused.value.message
        await r.database.close()
        assert r.database in ABANDONED
        assert path.read_bytes() == before
    await close_abandoned()


async def test_reader_that_meets_truncated_wal_says_so(tmp_path: Path) -> None:
    """To SQLite it is an error of the disk."""
    async with rig(tmp_path) as r:
        await r.run(await r.session(), "say 1")
        os.truncate(tmp_path / f"{DATABASE}-wal", 0)
        with pytest.raises(StoreUnavailable) as refused:
            await r.database.read("SELECT * FROM acp_log, acp_turns, acp_sessions, acp_workers")
        assert refused.value.state == r.database.condition.state == "gone"
        assert "was cut to 0 bytes" in refused.value.message
        await r.database.close()
    await close_abandoned()


async def test_removed_wal_is_checkpointed_and_nothing_lost(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        (tmp_path / f"{DATABASE}-wal").unlink()
        with pytest.raises(StoreUnavailable) as refused:
            await r.prompt(session, "say 2")
        assert refused.value.state == "gone"
        await asyncio.wait_for(r.database.reopen_wanted.wait(), 30)
        await r.database.close()
        assert r.database not in ABANDONED
    async with rig(tmp_path) as r:
        assert await said(r, session.id) == ["0 "]
        assert (await r.run(await r.sessions.get(session.id), "say 1")).state == "done"


async def test_an_index_that_was_removed_stops_all_writing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        (tmp_path / f"{DATABASE}-shm").unlink()
        with pytest.raises(StoreUnavailable) as refused:
            await r.session()
        assert refused.value.state == "gone"
        assert f"{DATABASE}-shm" in refused.value.message
    await close_abandoned()


@pytest.mark.parametrize("first_seen", ["when it is opened", "when something is written"])
async def test_disk_writable_before_first_probe_is_reopened(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, first_seen: str
) -> None:
    """It was read-only for some milliseconds; what SQLite has opened then stays so."""
    accessible = first_seen != "when it is opened"
    monkeypatch.setattr(history_copy, "is_accessible", lambda _: accessible)
    database = await opened(tmp_path / DATABASE)
    accessible = not accessible
    try:
        disk.fails(sqlite3.SQLITE_READONLY, "attempt to write a readonly database")
        with pytest.raises(StoreUnavailable):
            await database.commit(Unit())
        accessible = True
        await asyncio.wait_for(database.reopen_wanted.wait(), 10)
    finally:
        disk.error = None
        await database.close()


# --- the system refuses a look at the files ---


class Looks:
    """The system's calls by which the store looks at its files fail with EIO while
    `name` is set.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = ""
        self._monkeypatch = monkeypatch
        for name in ("pread", "stat"):
            monkeypatch.setattr(os, name, self._failing(name, getattr(os, name)))

    def _failing(self, name: str, real: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            at_database = name == "pread" or DATABASE in str(given[0])
            if name == self.name and at_database:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*given, **named)

        return call


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


LOOKS = pytest.mark.parametrize("look", ["pread", "stat"])


@LOOKS
async def test_failing_file_check_blocks_store_without_losing_turns(
    tmp_path: Path, looks: Looks, look: str
) -> None:
    async with rig(tmp_path) as r:
        session, running, channel = await hanging(r)
        looks.name = look
        channel.say(
            channel.event(running.turn_id, "said meanwhile"), channel.ended(running.turn_id)
        )
        await eventually(lambda: not r.database.condition.is_writable)
        assert r.database.condition.state == "blocked"
        assert os.strerror(errno.EIO) in r.database.condition.reason
        with pytest.raises(StoreUnavailable):
            await r.session()
        await not_within(running.ended.done)
        looks.name = ""
        assert (await asyncio.wait_for(running.ended, 30))[0].state == "done"
        assert await said(r, session.id) == ["said meanwhile"]
        assert not r.database.reopen_wanted.is_set()
        assert (await r.run(session, "say 1")).state == "done"


@LOOKS
async def test_the_watchdogs_look_survives_it(tmp_path: Path, looks: Looks, look: str) -> None:
    database = await opened(tmp_path / DATABASE)
    looks.name = look
    await database.probe()
    assert database.condition.state == "blocked"
    looks.name = ""
    await asyncio.wait_for(database.condition.writable(), 30)
    await database.close()
    assert database not in ABANDONED


@LOOKS
async def test_files_that_cannot_be_checked_are_not_closed(
    tmp_path: Path, looks: Looks, look: str
) -> None:
    database = await opened(tmp_path / DATABASE)
    kept = Statement("INSERT INTO conversations (name, created_at) VALUES ('kept', 'now')")
    await database.commit(Unit((kept,)))
    looks.name = look
    await database.close()
    assert database in ABANDONED
    looks.name = ""
    again = await opened(tmp_path / DATABASE)
    assert await again.read("SELECT name FROM conversations") == [("kept",)]
    await again.close()
    ABANDONED.remove(database)
    await close_files(database)


async def test_failed_check_after_commit_writes_nothing_twice(
    tmp_path: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await opened(tmp_path / DATABASE)
    check = OpenFile.check_after_commit
    after = iter(("", *["stat"] * 10))  # the first is written alone, the others together

    def fail(self: OpenFile) -> None:
        looks.name = next(after)
        try:
            check(self)
        finally:
            looks.name = ""

    monkeypatch.setattr(OpenFile, "check_after_commit", fail)
    units = [
        Unit(
            (Statement("INSERT INTO conversations (name, created_at) VALUES (?, 'now')", (name,)),)
        )
        for name in ("a", "b", "c")
    ]
    outcomes = await asyncio.gather(
        *(database.commit(unit) for unit in units), return_exceptions=True
    )
    assert [type(one) for one in outcomes] == [list, StoreUncertain, StoreUncertain]
    await asyncio.wait_for(database.reopen_wanted.wait(), 30)
    rows = await database.read("SELECT name, count(*) FROM conversations GROUP BY name")
    assert {count for _, count in rows} <= {1}
    await database.close()


async def test_checkpoints_go_on_after_it(
    tmp_path: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "QUIET", 0.05)
    database = await opened(tmp_path / DATABASE)
    wal = tmp_path / f"{DATABASE}-wal"
    looks.name = "pread"
    with pytest.raises(StoreUnavailable):
        await database.commit(Unit())
    await not_within(lambda: database.condition.is_writable)
    looks.name = ""
    await asyncio.wait_for(database.condition.writable(), 30)
    await database.commit(
        Unit((Statement("INSERT INTO conversations (name, created_at) VALUES ('x', 'now')"),))
    )
    await eventually(lambda: wal.stat().st_size == 0)
    await database.close()


async def test_prompt_says_that_disk_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        unreadable = StoreUnavailable("blocked", "The disk has an error.")
        with monkeypatch.context() as patch:
            patch.setattr(r.journal, "pending_notes", AsyncMock(side_effect=unreadable))
            outcome = await r.run(session, "say 1")
        assert outcome.failure is not None
        assert (outcome.failure.kind, outcome.failure.retryable) == ("store_blocked", True)
        assert "could not be read. The disk has an error. The prompt was not sent" in (
            outcome.failure.message
        )
        assert (await r.run(session, "say 1")).state == "done"
        assert r.launcher.launched[-1].prompts == ["say 1"]


async def test_damaged_page_of_one_session_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is appended to its log is refused, also by who waits for the store; what it says of itself
    is an error. Others are stored.
    """
    monkeypatch.setattr(preflight, "FULL_CHECK_LIMIT", 0)  # as for a large file
    path = tmp_path / DATABASE
    database = await opened(path)
    journal = SessionJournal(database)
    for session in ("well", "hurt"):
        await journal.create(SessionRecord(session, f"acp-{session}", "/"))
    await journal.append("well", [Text("m", "y")])
    await journal.append("hurt", [Text(f"m{n}", "x" * 1000) for n in range(200)])
    await database.close()
    data = bytearray(path.read_bytes())
    page = data.find(b'"m199"') // 4096 * 4096
    data[page : page + 8] = b"\xff" * 8
    path.write_bytes(data)
    database = await opened(path)
    journal = SessionJournal(database)
    try:
        with pytest.raises(StoreUnavailable, match="damaged") as refused:
            await journal.read("hurt", 0, 1000)
        assert refused.value.data is not None
        assert refused.value.data["errorKind"] == "store_damaged"
        assert refused.value.data["retryable"] is False
        assert "safe" not in refused.value.message
        assert "restore a backup" in refused.value.message
        assert database.condition.is_writable
        with pytest.raises(RowRefused, match="damaged"):
            await asyncio.wait_for(journal.append("hurt", [Text("n", "new")], patient=True), 60)
        assert database.condition.is_writable
        assert await journal.append("well", [Text("n", "new")]) == [2]
    finally:
        await database.close()
