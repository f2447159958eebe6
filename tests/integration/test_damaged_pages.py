"""A damaged page of the database: what needs it fails at once and for good, and all else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pykoclaw_acp.errors import RowRefused, StoreUnavailable
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.scheduled import Task
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions import rounds
from pykoclaw_acp.sessions.scheduler import Scheduler
from pykoclaw_acp.sessions.task_runs import TaskRuns
from pykoclaw_acp.store import batch, database, preflight
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.journal.tasks import SqlTaskStore
from pykoclaw_acp.store.logs import Logs
from pykoclaw_acp.store.open_file import OpenFile
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.sqlite import sqlite3
from tests import damaged, databases
from tests.integration.rig import hanging, rig
from tests.waiting import eventually, not_within, pass_loop_time

DATABASE = "pykoclaw.db"
WELL = ("a", "b", "c")


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "FULL_CHECK_LIMIT", 0)  # as for a large file


@asynccontextmanager
async def hurt(path: Path) -> AsyncIterator[tuple[Database, SessionJournal]]:
    """The log of the session `hurt` ends in a damaged page; those of WELL are whole."""
    database = await databases.open_new(path / DATABASE)
    journal = SessionJournal(database)
    for session in (*WELL, "hurt"):
        await journal.create(SessionRecord(session, f"acp-{session}", "/"))
        await journal.append(session, [Text(f"{session}{n}", "x" * 1000) for n in range(20)])
    await database.close()
    damaged.page_with(path / DATABASE, b'"hurt19"')
    database = await Database.open(path / DATABASE)
    try:
        yield database, SessionJournal(database)
    finally:
        await database.close()


def data(error: BaseException | list[int]) -> tuple[object, object]:
    assert isinstance(error, StoreUnavailable)
    assert error.data is not None
    return error.data["errorKind"], error.data["retryable"]


async def test_damage_fails_only_the_unit_itself(tmp_path: Path) -> None:
    async with hurt(tmp_path) as (_, journal):
        first, *others = await asyncio.wait_for(
            asyncio.gather(
                *(
                    journal.append(session, [Text("n", "new")], patient=True)
                    for session in ("hurt", *WELL)
                ),
                return_exceptions=True,
            ),
            60,
        )
        assert isinstance(first, RowRefused)
        assert others == [[21], [21], [21]]


async def test_impatient_units_beside_damage_are_kept(tmp_path: Path) -> None:
    async with hurt(tmp_path) as (_, journal):
        first, *others = await asyncio.gather(
            *(journal.append(session, [Text("n", "new")]) for session in ("hurt", *WELL)),
            return_exceptions=True,
        )
        assert data(first) == ("store_damaged", False)
        assert others == [[21], [21], [21]]


async def test_damage_of_every_write_is_not_retryable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page that a probe writes: what is damaged is damaged for everybody."""

    def probe(_: sqlite3.Connection) -> None:
        raise failure(sqlite3.SQLITE_CORRUPT)

    monkeypatch.setattr(batch, "write_nothing_new", probe)
    async with hurt(tmp_path) as (_, journal):
        with pytest.raises(StoreUnavailable):
            await journal.append("hurt", [Text("n", "new")])

        async def refused_for_good() -> Any:
            with pytest.raises(StoreUnavailable) as refused:
                await journal.append("a", [Text("n", "new")])
            return data(refused.value) == ("store_damaged", False)

        await eventually(refused_for_good)


async def test_damage_of_one_unit_delays_others_shortly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LONGEST_PAUSE", 1000.0)
    async with hurt(tmp_path) as (opened, journal):
        for _ in range(12):  # the last pause would be one of 100 s
            with pytest.raises(StoreUnavailable):
                await journal.append("hurt", [Text("n", "new")])
            await asyncio.wait_for(opened.condition.writable(), 30)


async def test_damaged_tasks_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with hurt(tmp_path):
        pass
    damaged.table(tmp_path / DATABASE, "scheduled_tasks")
    async with rig(tmp_path) as r:
        looks: list[int] = []
        store = SqlTaskStore(r.database)
        due = store.due

        async def counted(room: int) -> list[Task]:
            looks.append(room)
            return await due(room)

        monkeypatch.setattr(store, "due", counted)
        runs = TaskRuns(r.sessions, store, tmp_path, 100)
        with capture_logs() as told:
            running = asyncio.create_task(Scheduler(store, runs, lambda: None).run())
            await eventually(lambda: looks)
            runs.changed.set()
            await not_within(lambda: len(looks) > 1)
            pass_loop_time(rounds.AFTER_FAILURE)
            await eventually(lambda: len(looks) == 2)
            running.cancel()
        assert [one["action"] for one in told] == ["scheduler_failed"]


async def test_prompt_whose_log_is_damaged_ends(tmp_path: Path) -> None:
    """A new session's log is begun on the page on which the newest one ends."""
    async with hurt(tmp_path):
        pass
    async with rig(tmp_path) as r:
        session = await r.session()
        outcome = await r.run(session, "say 1")
        assert outcome.failure is not None
        assert (outcome.failure.kind, outcome.failure.retryable) == ("store_damaged", False)
        assert "restore a backup" in outcome.failure.message
        assert "was not sent to Claude" in outcome.failure.message
        assert list((await r.states()).values()) == ["failed"]
        assert not session.busy


async def test_cancelled_prompt_whose_log_is_damaged_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session, _, _ = await hanging(r)
        waiting = await r.prompt(session, "say 1")

        def refused(*_: object) -> list[int]:
            raise failure(sqlite3.SQLITE_CORRUPT)

        with monkeypatch.context() as broken:
            broken.setattr(Logs, "of", refused)  # the log's end is damaged
            session.cancel(waiting)
            outcome, _ = await asyncio.wait_for(waiting.ended, 60)
        assert outcome.state == "cancelled"
        assert (await r.states())[waiting.turn_id] == "cancelled"


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB])
async def test_unit_that_meets_damage_is_not_retryable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def check(_: OpenFile) -> None:
        raise failure(code)

    async with hurt(tmp_path) as (_, journal):
        with monkeypatch.context() as broken:
            broken.setattr(OpenFile, "check", check)
            with pytest.raises(StoreUnavailable) as refused:
                await journal.append("a", [Text("n", "new")])
        assert data(refused.value) == ("store_damaged", False)


def failure(code: int) -> sqlite3.Error:
    error = sqlite3.DatabaseError("what SQLite says")
    error.sqlite_errorcode = code
    return error
