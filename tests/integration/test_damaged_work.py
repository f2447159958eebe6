"""Damage that the daemon meets in what it does by itself: it rests, and all else goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.deliveries import Delivery, ImportedDelivery
from pykoclaw_acp.model.scheduled import TaskRun
from pykoclaw_acp.sessions import deliveries
from pykoclaw_acp.sessions.left_runs import LeftRuns
from pykoclaw_acp.sessions.limit_resuming import LimitResumer
from pykoclaw_acp.sessions.retention import Pruner
from pykoclaw_acp.store import changes, limit_waits, preflight
from pykoclaw_acp.store.condition import unavailable
from pykoclaw_acp.store.journal.deliveries import SqlDeliveryStore
from pykoclaw_acp.store.journal.tasks import SqlTaskStore
from pykoclaw_acp.store.logs import Log, Logs
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.sqlite import sqlite3
from tests.integration.delivering import attached, delivering, name
from tests.integration.limit_waiting import waiting
from tests.integration.queueing import enqueue, execute, fetch, status
from tests.integration.rig import rig
from tests.integration.scheduling import logs, scheduling, task
from tests.statements import Statements, watched
from tests.waiting import eventually, not_within

WHILE = 1.0  # s; many times as long as a change needs to be noticed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "FULL_CHECK_LIMIT", 0)  # as for a large file
    monkeypatch.setattr(changes, "LOOK", 0.02)
    monkeypatch.setattr(deliveries, "PAUSE", 0.0)


def failure() -> sqlite3.Error:
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def damage_log(monkeypatch: pytest.MonkeyPatch, session: str) -> None:
    """Nothing can be added to the session's log."""
    of = Logs.of

    def damaged(self: Logs, connection: sqlite3.Connection, session_id: str) -> Log:
        if session_id == session:
            raise failure()
        return of(self, connection, session_id)

    monkeypatch.setattr(Logs, "of", damaged)


@pytest.fixture(autouse=True)
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    return watched(monkeypatch)


def damage_writes(statements: Statements, begin: str, value: str) -> list[str]:
    """Statements that begin so meet damage if they have this value; returns those that did."""
    met = list[str]()

    def damaged(_: sqlite3.Connection, sql: str, parameters: Any) -> None:
        if sql.startswith(begin) and value in parameters:
            met.append(sql)
            raise failure()

    statements.before = damaged
    return met


def unreadable() -> Exception:
    return unavailable(DatabaseState.DAMAGED, "The database is damaged.")


async def test_damaged_delivery_and_count_wait_long(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, statements: Statements
) -> None:
    async with rig(tmp_path) as r:
        (hurt, _), (well, client) = await attached(r), await attached(r)
        bad = enqueue(path, name(hurt), "news")
        damage_log(monkeypatch, hurt.id)
        met = damage_writes(statements, "INSERT INTO acp_deliveries", bad)
        async with delivering(r):
            await eventually(lambda: met)
            await eventually(lambda: r.database.condition.is_writable)
            good = enqueue(path, name(well), "good news")
            await eventually(lambda: status(path, good) == "delivered")
            await not_within(lambda: len(met) > 1, WHILE)
            assert r.database.condition.troubles == 2
        await eventually(lambda: "good news" in client.text)


async def test_delivery_into_damaged_log_is_given_up(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session, _ = await attached(r)
        damage_log(monkeypatch, session.id)
        async with delivering(r):
            bad = enqueue(path, name(session), "news")
            await eventually(lambda: status(path, bad) == "failed")
        ((attempts, reason),) = fetch(path, "SELECT attempts, reason FROM acp_deliveries")
        assert attempts > deliveries.MOST_TRIES - 1
        assert "The database is damaged." in reason


async def test_unreadable_delivery_lets_next_one_pass(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session, client = await attached(r)
        bad = enqueue(path, name(session), "news")
        good = enqueue(path, name(session), "good news")
        delivery = SqlDeliveryStore.delivery

        async def damaged(store: SqlDeliveryStore, delivery_id: str) -> Delivery | None:
            if delivery_id == bad:
                raise unreadable()
            return await delivery(store, delivery_id)

        monkeypatch.setattr(SqlDeliveryStore, "delivery", damaged)
        async with delivering(r):
            await eventually(lambda: status(path, good) == "delivered")
        assert status(path, bad) == "failed"
        await eventually(lambda: "good news" in client.text)


async def test_delivery_is_shown_beside_damaged_imported_turns(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged(*_: object) -> list[ImportedDelivery]:
        raise unreadable()

    monkeypatch.setattr(SqlDeliveryStore, "taken_in", damaged)
    async with rig(tmp_path) as r, delivering(r):
        session, client = await attached(r)
        one = enqueue(path, name(session), "news")
        await eventually(lambda: status(path, one) == "delivered")
        await eventually(lambda: "news" in client.text)


async def test_damaged_claim_rests_and_others_run(
    tmp_path: Path, path: Path, statements: Statements
) -> None:
    async with rig(tmp_path) as r:
        hurt, well = task(path, "wa-1", "say 1"), task(path, "wa-2", "say 1")
        met = damage_writes(statements, "INSERT INTO acp_task_runs", hurt)
        async with scheduling(r):
            await eventually(lambda: met and logs(path, well))
            await not_within(lambda: len(met) > 1, WHILE)
        assert r.database.condition.troubles == 1


async def test_damaged_wait_rests_and_others_go_on(tmp_path: Path, statements: Statements) -> None:
    async with rig(tmp_path) as r:
        hurt, well = await waiting(r), await waiting(r)
        met = damage_writes(statements, "INSERT INTO acp_turns", hurt.id)
        limits, looking = LimitResumer(r.sessions, r.journal), changes.Changes(r.database.path)
        looking.tell(limits.changed)
        running = [asyncio.create_task(limits.run()), asyncio.create_task(looking.run())]
        await eventually(lambda: met and well.busy)
        await not_within(lambda: len(met) > 1, WHILE)
        for one in running:
            one.cancel()
        assert r.database.condition.troubles == 1
        assert [one.session_id for one in await limit_waits.every(r.database)] == [hurt.id]


async def test_damaged_run_keeps_no_other_from_tidying(
    tmp_path: Path, path: Path, statements: Statements
) -> None:
    runs = "SELECT turn_id FROM acp_task_runs ORDER BY started_at"
    async with rig(tmp_path) as r:
        async with scheduling(r):
            session = await r.session()
            for _ in range(2):
                one = task(path, session.record.conversation_name, "say 1")
                await eventually(lambda one=one: logs(path, one))  # type: ignore[misc]
        first, second = (turn for (turn,) in fetch(path, runs))
        execute(path, "DELETE FROM scheduled_tasks")
        execute(path, "UPDATE acp_sessions SET auxiliary = 1")
        damage_writes(statements, "DELETE FROM acp_task_runs", first)
        await LeftRuns(r.sessions, SqlTaskStore(r.database)).tidy()
        assert fetch(path, runs) == [(first,)]
        assert second != first


async def test_unused_sessions_are_pruned_beside_damaged_one(
    tmp_path: Path, path: Path, statements: Statements
) -> None:
    async with rig(tmp_path) as r:
        for _ in range(3):
            await r.session()
        journal = SessionJournal(r.database)
        hurt, *_ = await journal.unused(r.database.clock.now() + 1000)
        met = damage_writes(statements, "UPDATE acp_sessions SET pruned_at", hurt)
        assert await Pruner(r.sessions, journal, after=-1).prune() == 2
        assert len(met) == 1
        pruned = "SELECT acp_session_id FROM acp_sessions WHERE pruned_at IS NULL"
        assert fetch(path, pruned) == [(hurt,)]


async def test_time_is_noted_though_nothing_can_be_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        journal, noted = SessionJournal(r.database), asyncio.Event()

        async def note_time() -> None:
            noted.set()

        monkeypatch.setattr(journal, "unused", AsyncMock(side_effect=unreadable()))
        monkeypatch.setattr(journal, "note_time", note_time)
        running = asyncio.create_task(Pruner(r.sessions, journal, after=0.05).run())
        await eventually(noted.is_set)
        running.cancel()


async def test_run_aside_is_deleted_beside_damaged_one(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        (hurt, well), store = (await r.session(), await r.session()), SqlTaskStore(r.database)
        forgotten: list[TaskRun] = []
        discarded: list[str] = []
        aside = [hurt.id, well.id]

        async def left(_: TaskRun) -> list[str]:
            return aside

        async def discard(session_id: str) -> None:
            if session_id == hurt.id:
                raise unreadable()
            discarded.append(session_id)

        async def forget(run: TaskRun) -> None:
            forgotten.append(run)

        monkeypatch.setattr(store, "left_aside", left)
        monkeypatch.setattr(store, "discard_aside", discard)
        monkeypatch.setattr(store, "forget_earlier", forget)
        newest: Any = object()
        tidying = LeftRuns(r.sessions, store)
        await tidying.tidy_before(newest)
        assert (discarded, forgotten) == ([well.id], [])
        aside.remove(hurt.id)
        await tidying.tidy_before(newest)
        assert forgotten == [newest]
