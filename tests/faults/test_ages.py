"""Databases of each age, with the other programs at work: adopted, nothing of theirs lost or made
unusable, no lock that ends them.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.model.events import Text, encode
from pykoclaw_acp.store import migrate
from pykoclaw_acp.store.sqlite import sqlite3
from tests.double import files, tables
from tests.double.handle import init_db
from tests.double.roles import Role
from tests.e2e.harness import Stack, text
from tests.e2e.harness.logs import locks
from tests.waiting import eventually

FIRST: Final = "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
SECOND: Final = "22222222-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
AGES: Final[dict[str, Callable[[Path], object]]] = {
    "none": lambda data: None,
    "current": files.current,
    "by_original": lambda data: files.by_original(data, FIRST),
    "first_schema": files.first_schema,
    "two_columns": lambda data: files.two_columns(data, FIRST, SECOND),
    "with_whatsapp": files.with_whatsapp,
    "odd_rows": files.odd_rows,
    "large": files.large,
}
# Migrations and inspections of all ages are tests of the integration, too.
ORDINARY: Final = {("by_original", "daemon")}
DUE: Final = {"prompt": "Look.", "schedule_type": "once", "schedule_value": "2000-01-01"}


def file(stack: Stack) -> Path:
    return stack.data / "pykoclaw.db"


def rows(stack: Stack) -> dict[str, list[dict[str, Any]]]:
    return files.contents(file(stack)) if file(stack).exists() else {}


def check_kept(before: dict[str, list[dict[str, Any]]], after: dict[str, Any]) -> None:
    """Each row is there still, as it was; columns may have come. The bot itself changes `wa_config`
    and `wa_chats`.
    """
    for table, kept in before.items():
        if table in ("wa_config", "wa_chats"):
            continue
        found = {json.dumps({k: row[k] for k in kept[0]}) for row in after[table]} if kept else ()
        missing = [row for row in kept if json.dumps(row) not in found]
        assert not missing, f"{table} lost {missing[:3]}"


def check_usable(stack: Stack) -> None:
    """Each row of theirs is one of their models, and their statements find the columns."""
    with closing(init_db(file(stack))) as db:
        tables.list_conversations(db)
        tables.get_all_tasks(db)
        for (prefix,) in db.execute("SELECT DISTINCT channel_prefix FROM delivery_queue"):
            tables.get_pending_deliveries(db, prefix)


async def work(stack: Stack, scheduler: Role, poller: Role) -> None:
    """A day of the other programs: a task is made, run and delivered; a message is sent; a chat
    goes on.
    """
    place = (stack.data, stack.environment)
    await Role.run(*place, "tool", "wa-andy-9@g.us", "schedule_task", json.dumps(DUE))
    await scheduler.until("enqueued", conversation="wa-andy-9@g.us")
    await Role.run(*place, "send", "wa-andy-8@g.us", "Tell.", "--text", "Told.")
    await Role.run(*place, "whatsapp", "7@g.us", "Hello.")
    for conversation in ("wa-andy-9@g.us", "wa-andy-8@g.us"):
        sent = await poller.until("sent", conversation=conversation)
        await poller.until("delivered", id=sent["id"])


@pytest.mark.parametrize(
    ("age", "first"),
    [
        pytest.param(age, first, marks=() if (age, first) in ORDINARY else pytest.mark.long)
        for first in ("daemon", "double")
        for age in AGES
    ],
)
async def test_database_of_each_age_is_shared(stack: Stack, age: str, first: str) -> None:
    AGES[age](stack.data)
    before = rows(stack)
    place = (stack.data, stack.environment)
    if first == "daemon":
        await stack.daemon()
    async with (
        Role.started(*place, "scheduler", "--every", "0.02") as scheduler,
        Role.started(*place, "poller", "--every", "0.02") as poller,
    ):
        if first == "double":
            await asyncio.gather(scheduler.until("ready"), poller.until("ready"))
            await stack.daemon()
        client = await stack.front()
        session = await client.new(stack.work)
        _, answer = await asyncio.gather(
            work(stack, scheduler, poller), client.prompt(session, text("Ours."))
        )
        assert answer["stopReason"] == "end_turn"
        await stack.end_daemon()
        await Role.run(*place, "dispatch", "wa-andy-6@g.us", "And on.")
    assert scheduler.failures() == poller.failures() == locks(stack) == []
    check_kept(before, rows(stack))
    check_usable(stack)
    names = {row["name"] for row in rows(stack)["conversations"]}
    assert {"wa-andy-9@g.us", "wa-andy-8@g.us", "wa-andy-7@g.us", "wa-andy-6@g.us"} <= names


@pytest.mark.long
@pytest.mark.parametrize("first", ["daemon", "double"])
async def test_conversation_without_transcript_goes_on_everywhere(stack: Stack, first: str) -> None:
    """The earlier plugin's, whose transcript is gone: opened by its client, and continued by the bot."""
    name = files.by_original(stack.data, FIRST)
    place = (stack.data, stack.environment)
    async with (
        Role.started(*place, "scheduler", "--every", "0.02") as scheduler,
        Role.started(*place, "poller", "--every", "0.02") as poller,
    ):
        if first == "double":
            await Role.run(*place, "dispatch", name, text("Theirs alone."), "--claude")
        client = await stack.front()
        await client.load(FIRST, stack.work)
        answer = await client.prompt(FIRST, text("Ours."))
        assert (answer["stopReason"], client.text(FIRST).count("Ours.")) == ("end_turn", 1)
        await Role.run(*place, "dispatch", name, text("Theirs."), "--claude")
        await client.prompt(FIRST, text("Ours again."))
        said = json.dumps(stack.asked()[-1]["messages"])
        assert said.index("Ours.") < said.index("Theirs.") < said.index("Ours again.")
        assert ("Theirs alone." in said) == (first == "double")
        await stack.end_daemon()
    assert scheduler.failures() == poller.failures() == locks(stack) == []
    check_usable(stack)
    assert name in {row["name"] for row in rows(stack)["conversations"]}


@pytest.mark.long
async def test_three_programs_start_at_once_on_nothing(stack: Stack) -> None:
    place = (stack.data, stack.environment)
    async with (
        Role.started(*place, "scheduler", "--every", "0.02") as scheduler,
        Role.started(*place, "dispatch", "wa-2", "Again.", "--loop") as channel,
    ):
        init = await Role.start(*place, "init")
        await asyncio.gather(stack.daemon(), init.ended(), scheduler.until("ready"))
        client = await stack.front()
        await client.prompt(await client.new(stack.work), text("Ours."))
        await Role.run(*place, "tool", "wa-1", "schedule_task", json.dumps(DUE))
        await scheduler.until("enqueued")
    assert scheduler.failures() == init.failures() == channel.failures() == locks(stack) == []
    check_usable(stack)


# --- the lock


EVENTS: Final = 200_000
LONGEST_LOCK: Final = (
    2.0  # s, of 5 that others wait; tests/integration/test_lock_times.py has the limit
)
PAYLOAD: Final = encode(Text("m", "some words of an answer "))


def before_migrations(stack: Stack, version: int) -> sqlite3.Connection:
    """A database of ours, up to this migration."""
    path = files.current(stack.data)
    connection = sqlite3.connect(path, isolation_level=None)
    older = [one for one in migrate.load() if one.version <= version]
    migrate.apply(connection, older, path)
    return connection


def with_large_log(stack: Stack, events: int = EVENTS) -> list[str]:
    """A database of a version that kept each delta as a row: three logs, with turns; their ids."""
    sessions = [str(uuid.UUID(int=number)) for number in range(1, 4)]
    with closing(before_migrations(stack, 5)) as connection:
        connection.execute("BEGIN")
        for number, session in enumerate(sessions):
            name = f"acp-{number:08x}"
            connection.execute(
                "INSERT INTO conversations (name, cwd, created_at) VALUES (?, ?, ?)",
                (name, str(stack.work), files.LONG_AGO),
            )
            connection.execute(
                "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, created_at, updated_at, last_seq,"
                " prompted_at) VALUES (?, ?, ?, 1, 1, ?, 1)",
                (session, name, str(stack.work), events // 3),
            )
            connection.executemany(
                "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, stop_reason, created_at,"
                " ended_at) VALUES (?, ?, 'client', '[]', 'done', 'end_turn', ?, ?)",
                ((f"{session}/{n}", session, n, n) for n in range(events // 300)),
            )
            connection.executemany(
                "INSERT INTO acp_events (acp_session_id, seq, turn_id, kind, payload, created_at)"
                " VALUES (?, ?, ?, 'text', ?, 1)",
                ((session, n, f"{session}/{n // 100}", PAYLOAD) for n in range(1, events // 3 + 1)),
            )
        connection.execute("COMMIT")
    return sessions


@pytest.mark.long
async def test_conversion_of_large_log_lets_others_write(
    stack: Stack, record_property: Callable[[str, object], None]
) -> None:
    sessions = await asyncio.to_thread(with_large_log, stack)
    place = (stack.data, stack.environment)
    async with (
        Role.started(*place, "probe") as probe,
        Role.started(*place, "scheduler", "--every", "0.01") as scheduler,
        Role.started(*place, "dispatch", "wa-1", "Again.", "--loop") as channel,
    ):
        await asyncio.gather(probe.until("ready"), scheduler.until("ready"))
        await stack.daemon()
        await eventually(lambda: not stack.rows("SELECT 1 FROM acp_events LIMIT 1"), 300)
        await stack.end_daemon()
    for role in (probe, scheduler, channel):
        assert role.failures() == []
    assert locks(stack) == []
    waits = [one["seconds"] for one in probe.entries("waited")]
    record_property("longest lock, s", round(max(waits), 3))
    assert max(waits) < LONGEST_LOCK
    assert len(waits) > EVENTS / 10_000  # they had their turn between the pieces
    for session in sessions:
        assert stack.covered(session) == list(range(1, EVENTS // 3 + 1))


async def test_adoption_of_many_rows_lets_others_write(
    stack: Stack, record_property: Callable[[str, object], None]
) -> None:
    await asyncio.to_thread(files.large, stack.data)
    place = (stack.data, stack.environment)
    async with (
        Role.started(*place, "probe") as probe,
        Role.started(*place, "scheduler", "--every", "0.01") as scheduler,
    ):
        await asyncio.gather(probe.until("ready"), scheduler.until("ready"))
        await stack.daemon()
        await stack.end_daemon()
    assert probe.failures() == scheduler.failures() == locks(stack) == []
    waits = [one["seconds"] for one in probe.entries("waited")]
    record_property("longest lock, s", round(max(waits, default=0), 3))
    assert max(waits, default=0) < LONGEST_LOCK
