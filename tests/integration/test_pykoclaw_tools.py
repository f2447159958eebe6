"""pykoclaw's tools on the real database: rows and answers are those of pykoclaw's own."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from pykoclaw_acp.channel.database import DatabaseCall
from pykoclaw_acp.channel.frames import PROTOCOL, Hello
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.plugin_statements import PluginStatements
from pykoclaw_acp.store.units import Statement, Unit
from pykoclaw_acp.system import other_scheduler
from pykoclaw_acp.worker import brave_search
from pykoclaw_acp.worker.database_calls import DatabaseCalls, DatabaseFailed
from pykoclaw_acp.worker.pykoclaw_tools import TaskTools
from tests.integration.scheduling import blocked_by_cron

ONCE = {"prompt": "Say hello.", "schedule_type": "once", "schedule_value": "2030-01-01T00:00:00Z"}


class World:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.statements = PluginStatements(database)
        self.calls = DatabaseCalls(1, self._send)
        self.attach("on")

    def attach(self, scheduler: str) -> None:
        """Attach to a daemon that runs scheduled tasks, or does not."""
        data = str(self.database.path.parent)
        told = Hello(
            epoch=1, after=0, protocol=PROTOCOL, data=data, database=True, scheduler=scheduler
        )
        self.calls.attach(told)

    async def _send(self, call: DatabaseCall) -> None:
        self.calls.answer(await self.statements.take(call))

    def tools(self, conversation: str = "acp-12345678") -> TaskTools:
        return TaskTools(conversation, self.calls)

    async def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return await self.database.read(f"SELECT {columns} FROM scheduled_tasks ORDER BY rowid")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    database = await Database.open(tmp_path / "pykoclaw.db")
    yield World(database)
    await database.close()


async def test_task_has_no_null_where_text_is_wanted(world: World) -> None:
    said = await world.tools().schedule(ONCE)
    given = {**ONCE, "context_mode": "isolated", "target_conversation": "wa-andy-1@g.us"}
    await world.tools().schedule(given)
    (row, other) = await world.rows(
        "id, conversation, prompt, schedule_type, schedule_value, context_mode, target_conversation,"
        " next_run, status, created_at"
    )
    assert said == f"Task {row[0]} scheduled. Next run: 2030-01-01T00:00:00Z"
    assert row[1:9] == (
        "acp-12345678", "Say hello.", "once", "2030-01-01T00:00:00Z", "group", None,
        "2030-01-01T00:00:00Z", "active",
    )  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00", row[9])
    assert other[5:7] == ("isolated", "wa-andy-1@g.us")


async def test_results_go_to_target_and_answer_says_so(world: World) -> None:
    said = await world.tools().schedule({**ONCE, "target_conversation": "notes"})
    assert said.endswith(" Results will be delivered to: notes")


@pytest.mark.parametrize(("kind", "value"), [("cron", "junk"), ("interval", "1.5"), ("cron", "")])
async def test_what_cannot_be_scheduled_makes_no_row(world: World, kind: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        await world.tools().schedule({**ONCE, "schedule_type": kind, "schedule_value": value})
    assert await world.rows() == []


async def test_cron_task_holds_up_no_other_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = blocked_by_cron(monkeypatch)
    daily = {**ONCE, "schedule_type": "cron", "schedule_value": "0 9 * * *"}
    assert (await world.tools().schedule(daily)).endswith("T09:00:00+00:00")
    ((task,),) = await world.rows("id")
    assert (await world.tools().resume({"task_id": task})).endswith("T09:00:00+00:00")
    assert blocked == [False, False]


async def test_tasks_are_listed_for_one_conversation_or_all(world: World) -> None:
    assert await world.tools().show({}) == "No tasks scheduled for this conversation."
    assert await world.tools().show({"all": True}) == "No tasks scheduled anywhere."
    await world.tools("acp-a").schedule({**ONCE, "prompt": "x" * 60})
    await world.tools("acp-b").schedule(ONCE)
    (a,), (b,) = await world.rows("id")
    assert await world.tools("acp-b").show({}) == (
        f"Tasks:\n  {b}: Say hello. (active, next: 2030-01-01T00:00:00Z)"
    )
    assert (await world.tools("acp-b").show({"all": True})).splitlines() == [
        "Tasks:",
        f"  {b}: [acp-b] Say hello. (active, next: 2030-01-01T00:00:00Z)",
        f"  {a}: [acp-a] {'x' * 50} (active, next: 2030-01-01T00:00:00Z)",
    ]


async def test_any_conversations_task_is_paused_resumed_and_cancelled(world: World) -> None:
    await world.tools("acp-a").schedule(
        {**ONCE, "schedule_type": "interval", "schedule_value": "1"}
    )
    ((task, first),) = await world.rows("id, next_run")
    tools = world.tools("acp-b")
    assert await tools.pause({"task_id": task}) == f"Task {task} paused."
    assert await world.rows("status") == [("paused",)]
    said = await tools.resume({"task_id": task})
    ((status, again),) = await world.rows("status, next_run")
    assert status == "active"
    assert again > first
    assert said == f"Task {task} resumed. Next run: {again}"
    await world.calls.run_script(
        f"INSERT INTO task_run_logs (task_id, run_at, duration_ms, status) VALUES ('{task}', '', 1, '')"
    )
    assert await tools.cancel({"task_id": task}) == f"Task {task} cancelled."
    assert await world.rows() == []
    assert await world.database.read("SELECT * FROM task_run_logs") == []
    assert await tools.pause({"task_id": "none"}) == "Task none paused."
    assert await tools.resume({"task_id": "none"}) == "Task none not found."
    assert await tools.cancel({"task_id": "none"}) == "Task none cancelled."


async def test_a_database_that_cannot_be_written_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.database.condition, "recovered", lambda: None)  # it stays full
    world.database.condition.failed(DatabaseState.BLOCKED, "The disk is full.")
    with pytest.raises(DatabaseFailed, match="The disk is full"):
        await world.tools().schedule(ONCE)


class Search(BaseHTTPRequestHandler):
    asked: ClassVar[list[tuple[dict[str, list[str]], str | None]]] = []
    answers: ClassVar[list[tuple[int, bytes]]] = []

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.asked.append((query, self.headers.get("X-Subscription-Token")))
        status, body = self.answers.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def brave(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Search]]:
    Search.asked.clear()
    with HTTPServer(("127.0.0.1", 0), Search) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(brave_search, "ADDRESS", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield Search
        server.shutdown()
        thread.join()


def test_a_search_is_blocks_of_text(brave: type[Search]) -> None:
    results = [{"title": "One", "url": "http://1", "description": "first"}, {"title": "Two"}]
    brave.answers[:] = [
        (200, json.dumps({"web": {"results": results}}).encode()),
        (200, b"{}"),
        (429, b""),
        (200, b"no JSON"),
    ]
    said = [
        brave_search.search("key", {"query": "words of mine", "count": 99, "freshness": "pw"}),
        *(brave_search.search("key", {"query": "more"}) for _ in range(3)),
    ]
    assert said[0] == "**One**\nhttp://1\nfirst\n\n**Two**\n\n"
    assert said[1] == "No results found for: more"
    assert said[2].startswith("Brave Search error: HTTP 429 ")
    assert said[3].startswith("Brave Search error: ")
    assert brave.asked[:2] == [
        ({"q": ["words of mine"], "count": ["20"], "freshness": ["pw"]}, "key"),
        ({"q": ["more"], "count": ["10"]}, "key"),
    ]


async def test_task_that_nothing_runs_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []
    running: list[int | None] = [None, 7]

    def find(path: Path) -> int | None:
        looked.append(path)
        if not running:
            raise OSError(errno.ENFILE, "Too many open files in system")
        return running.pop(0)

    monkeypatch.setattr(other_scheduler, "find", find)
    assert "nothing runs" not in await world.tools().schedule(ONCE)
    world.attach("off")
    said = await world.tools().schedule(ONCE)
    assert said.endswith("restart of the daemon, or while pykoclaw's own scheduler runs.")
    ((task,), *_) = await world.rows("id")
    assert "nothing runs" not in await world.tools().resume({"task_id": task})  # pykoclaw's does
    assert looked == [world.database.path] * 2
    said = await world.tools().resume({"task_id": task})
    assert " resumed. " in said
    assert "nothing runs" not in said  # nobody knows


@pytest.mark.parametrize(
    ("dispatched", "paused", "cancelled"),
    [
        ("NULL", "takes place all the same", "had not begun, and does not take place"),
        ("5", "workers stop s1", "had begun, and goes on"),
    ],
)
async def test_changed_task_says_what_its_run_does(
    world: World, dispatched: str, paused: str, cancelled: str
) -> None:
    await world.tools().schedule(ONCE)
    ((task_id,),) = await world.rows("id")
    run = "INSERT INTO acp_task_runs (turn_id, task_id, task, manual, started_at)"
    turn = (
        "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at, dispatched_at)"
        f" VALUES ('t1', 's1', 'client', '[]', 'queued', 0, {dispatched})"
    )
    statements = (
        Statement(f"{run} VALUES ('t1', ?, '{{}}', 0, 0)", (task_id,)),
        Statement(turn, ()),
    )
    await world.database.commit(Unit(statements))
    assert paused in await world.tools().pause({"task_id": task_id})
    assert cancelled in await world.tools().cancel({"task_id": task_id})
    assert await world.rows() == []
