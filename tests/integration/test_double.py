"""The double of the other programs does what they were seen to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.double import files, installed, rules, tables, toolcalls
from tests.double.agent import Canned
from tests.double.handle import Handle, init_db
from tests.double.messaging import dispatch_to_agent, send
from tests.double.roles import Role, command, with_checkout
from tests.double.scheduler import run_scheduler
from tests.double.sqlite import sqlite3
from tests.double.whatsapp import poll


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


# --- rules


@pytest.mark.parametrize(
    ("conversation", "target", "expected"),
    [
        ("wa-andy-1@g.us", None, ("wa-andy-1@g.us", "wa")),
        ("wa-andy-1@g.us", "", ("wa-andy-1@g.us", "wa")),
        ("wa-andy-1@g.us", "acp-12345678", ("acp-12345678", "acp")),
        ("daily-report", None, ("daily-report", "daily")),
        ("notes", None, ("notes", "chat")),
        ("wa-andy-1@g.us", "1@g.us", ("wa-andy-1@g.us", "wa")),
        ("wa-andy-1@g.us", "andy-1@g.us", ("wa-andy-1@g.us", "wa")),
        ("acp-12345678", "12345678", ("acp-12345678", "acp")),
        ("wa-andy-1@g.us", "2@g.us", ("wa-2@g.us", "wa")),
        ("WA-x", "Y", ("Y", "chat")),
    ],
)
def test_delivery_target_follows_prefixes(
    conversation: str, target: str | None, expected: tuple[str, str]
) -> None:
    assert rules.delivery_target(conversation, target) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a <reply> one </reply> b <reply></reply><reply>two</reply>", "one\ntwo"),
        ("<reply></reply>", ""),
        ("<reply>open", "<reply>open"),
    ],
)
def test_reply_tags_are_stripped(text: str, expected: str) -> None:
    assert rules.without_reply_tags(text) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 9 * * *", "2026-01-01T09:00:00+00:00"),
        ("@daily", "2026-01-02T00:00:00+00:00"),
        ("*/20 8-9 * * *", "2026-01-01T08:20:00+00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00:00+00:00"),
        ("0 12 * * 0", "2026-01-04T12:00:00+00:00"),
        ("0 0 13 * 5", "2026-01-02T00:00:00+00:00"),
        ("0 9 * * * 30", "2026-01-01T09:00:30+00:00"),
    ],
)
def test_cron_lines_are_read_in_utc(line: str, expected: str) -> None:
    assert rules.next_run("cron", line, datetime(2026, 1, 1, 8, 0, tzinfo=UTC)) == expected


def test_intervals_and_times_are_hardly_looked_at() -> None:
    base = datetime(2026, 1, 1, tzinfo=UTC)
    assert rules.next_run("interval", "60_000", base) == "2026-01-01T00:01:00+00:00"
    assert rules.next_run("interval", "-1000", base) == "2025-12-31T23:59:59+00:00"
    assert rules.next_run("once", "junk") == "junk"
    for kind, value in (("interval", "1.5"), ("cron", "61 * * * *"), ("cron", "x")):
        with pytest.raises(ValueError, match=r"."):
            rules.next_run(kind, value)


# --- database


def test_opened_file_has_their_schema_and_no_pragma(data: Path) -> None:
    path = files.current(data)
    with closing(init_db(path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
        assert db.execute("PRAGMA foreign_keys").fetchone()[0] == 0
        assert db.execute("PRAGMA busy_timeout").fetchone()[0] == 5000
        columns = [row["name"] for row in db.execute("PRAGMA table_info(conversations)")]
        assert columns == ["name", "session_id", "cwd", "created_at", "system_prompt_hash"]
        assert not hasattr(db, "cursor")


def test_file_of_first_schema_gets_later_columns(data: Path) -> None:
    with closing(init_db(files.first_schema(data))) as db:
        (task,) = tables.get_all_tasks(db)
        assert (task.context_mode, task.target_conversation) == ("group", None)
        tables.upsert_conversation(db, "acp-01234567", "new", "/", "hash")
        (row,) = tables.list_conversations(db)
        assert (row.created_at, row.system_prompt_hash) == (files.LONG_AGO, "hash")


def test_null_where_text_is_wanted_spoils_whole_list(data: Path) -> None:
    path = files.odd_rows(data)
    with closing(init_db(path)) as db:
        assert len(tables.get_all_tasks(db)) == 4
        db.execute("UPDATE scheduled_tasks SET context_mode = NULL WHERE next_run = 'junk'")
        db.commit()
        with pytest.raises(tables.BadRow):
            tables.get_all_tasks(db)


@pytest.mark.long
async def test_lock_of_over_five_seconds_ends_role(data: Path) -> None:
    path = files.current(data)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        role = await Role.start(data, os.environ, "send", "acp-12345678", "Hello.")
        assert await role.process.wait() == 1
    (failure,) = role.failures()
    assert "locked" in failure["error"]


# --- turns


@pytest.fixture
def db(data: Path) -> Any:
    with closing(init_db(files.current(data))) as made:
        yield made


def row(db: Handle, name: str) -> tables.Conversation:
    found = tables.get_conversation(db, name)
    assert found is not None
    return found


async def test_dispatch_resumes_unless_prompt_changed(data: Path, db: Handle) -> None:
    async def turn(system_prompt: str | None) -> str | None:
        reply = await dispatch_to_agent(
            "Hi", "wa", "andy-1@g.us", db, data, Canned(), system_prompt=system_prompt
        )
        return reply.session_id

    first = await turn("You are Andy.")
    assert row(db, "wa-andy-1@g.us").system_prompt_hash == rules.prompt_hash("You are Andy.")
    assert await turn("You are Andy.") == first
    assert await turn(None) == first
    assert row(db, "wa-andy-1@g.us").system_prompt_hash is None
    assert await turn("You are Bob.") == first
    assert await turn("You are Cid.") != first


async def test_unknown_session_is_forgotten_and_turn_runs_fresh(data: Path, db: Handle) -> None:
    tables.upsert_conversation(db, "wa-1", "gone", "/x")
    reply = await dispatch_to_agent("Hi", "wa", "1", db, data, Canned(unknown={"gone"}))
    after = row(db, "wa-1")
    assert after.session_id == reply.session_id != "gone"
    assert after.cwd == str(data / "conversations/wa-1")


async def test_isolated_task_and_send_replace_session_of_conversation(
    data: Path, db: Handle
) -> None:
    tables.upsert_conversation(db, "acp-12345678", "ours", "/x")
    tables.create_task(
        db,
        conversation="acp-12345678",
        prompt="Look.",
        schedule_type="interval",
        schedule_value="3600000",
        next_run="2000-01-01",
        context_mode="isolated",
        target_conversation="wa-1@g.us",
    )
    await run_scheduler(db, data, Canned("a <reply>Seen.</reply>"), rounds=1)
    isolated = row(db, "acp-12345678").session_id
    assert isolated not in (None, "ours")
    await send("acp-12345678", "Tell.", db, data, Canned("<reply>Told.</reply>"))
    assert row(db, "acp-12345678").session_id not in (None, "ours", isolated)
    result, told = [
        dict(one) for one in db.execute("SELECT * FROM delivery_queue ORDER BY created_at")
    ]
    assert (result["conversation"], result["channel_prefix"]) == ("wa-1@g.us", "wa")
    assert result["message"] == "Seen."
    assert (told["task_id"], told["message"]) == ("send-cli", "<reply>Told.</reply>")
    (logged,) = db.execute("SELECT * FROM task_run_logs").fetchall()
    assert (logged["status"], logged["result"]) == ("success", "a <reply>Seen.</reply>")


async def test_group_task_resumes_and_once_is_completed(data: Path, db: Handle) -> None:
    tables.upsert_conversation(db, "acp-12345678", "ours", "/x")
    task_id = tables.create_task(
        db,
        conversation="acp-12345678",
        prompt="Look.",
        schedule_type="once",
        schedule_value="2000-01-01T00:00:00",
        next_run="2000-01-01T00:00:00",
    )
    await run_scheduler(db, data, Canned(), every=0, rounds=2)
    assert row(db, "acp-12345678").session_id == "ours"
    task = tables.get_task(db, task_id)
    assert task is not None
    assert (task.status, task.last_result) == ("completed", "Done.")
    assert len(db.execute("SELECT * FROM task_run_logs").fetchall()) == 1


async def test_group_task_is_fresh_after_system_prompt(data: Path, db: Handle) -> None:
    tables.upsert_conversation(db, "wa-1", "theirs", "/x", "0123456789abcdef")
    values = ("interval", "3600000", "2000-01-01")
    tables.create_task(
        db,
        conversation="wa-1",
        prompt="Look.",
        schedule_type=values[0],
        schedule_value=values[1],
        next_run=values[2],
    )
    await run_scheduler(db, data, Canned(), rounds=1)
    after = row(db, "wa-1")
    assert after.session_id != "theirs"
    assert after.system_prompt_hash is None


async def test_poller_takes_its_channel_in_order(data: Path, db: Handle) -> None:
    for number in range(3):
        tables.enqueue_delivery(db, "t", "wa-1", "wa", str(number))
    tables.enqueue_delivery(db, "t", "acp-1", "acp", "other")
    taken: list[str] = []
    await poll(db, lambda one: taken.append(one.message), every=0, rounds=2)
    assert taken == ["0", "1", "2"]
    assert len(tables.get_pending_deliveries(db, "acp")) == 1


def test_tools_write_and_say_what_theirs_do(db: Handle) -> None:
    def call(name: str, **arguments: Any) -> str:
        return toolcalls.call(db, "acp-12345678", name, arguments)

    assert call("list_tasks") == "No tasks scheduled for this conversation."
    said = call("schedule_task", prompt="Look.", schedule_type="cron", schedule_value="0 9 * * *")
    (task,) = tables.get_all_tasks(db)
    assert said == f"Task {task.id} scheduled. Next run: {task.next_run}"
    assert f"  {task.id}: [acp-12345678] Look. (active, next: " in call("list_tasks", all=True)
    assert call("pause_task", task_id="nobody") == "Task nobody paused."
    assert call("resume_task", task_id="nobody") == "Task nobody not found."
    assert call("cancel_task", task_id=task.id) == f"Task {task.id} cancelled."
    with pytest.raises(ValueError, match="x"):
        call("schedule_task", prompt="", schedule_type="cron", schedule_value="x")
    assert tables.get_all_tasks(db) == []


# --- processes


async def test_killed_roles_keep_what_they_recorded(data: Path) -> None:
    async with Role.started(data, os.environ, "dispatch", "wa-1", "Hi", "--loop") as role:
        await role.until("upserted")
    names = {one["name"] for one in files.contents(data / "pykoclaw.db")["conversations"]}
    assert {one["name"] for one in role.entries("upserted")} == names == {"wa-1"}
    assert role.failures() == []


def test_original_answers_one_after_the_other(data: Path) -> None:
    name = files.by_original(data, "12345678-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "claude")
    asked: list[tuple[str, dict[str, Any]]] = [
        ("session/load", {"sessionId": "12345678-x"}),
        ("session/load", {"sessionId": "87654321-x"}),
        ("session/prompt", {"sessionId": "12345678-x", "prompt": [{"type": "text", "text": "Hi"}]}),
        ("session/cancel", {}),
    ]
    lines = (
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(asked, 1)
    )
    done = subprocess.run(
        command("original", data=data),
        input="\n".join([*lines, ""]).encode(),
        env=with_checkout(os.environ),
        capture_output=True,
        check=True,
    )
    said = done.stdout.decode()
    assert '"id": 1, "result": {}' in said
    assert '"code": -32001' in said
    assert '"text": "Done."' in said
    assert '"code": -32601' in said
    (kept,) = files.contents(data / "pykoclaw.db")["conversations"]
    assert (kept["name"], kept["session_id"]) == (name, "claude")


@pytest.mark.long
def test_healthcheck_wants_answer_after_end_of_input(data: Path) -> None:
    def check(*program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tests.double", "healthcheck", "--", *program],
            env=with_checkout(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )

    healthy = check(*command("original", data=data))
    assert (healthy.returncode, healthy.stdout) == (0, "")
    assert "OK: pykoclaw v0.1.0 (protocol v1) responded in" in healthy.stderr
    silent = check("/bin/cat", "/dev/null")
    assert (silent.returncode, silent.stdout) == (1, "")
    assert "FAIL: " in silent.stderr


# --- the installed program


def pykoclaw(
    site: Path, data: Path, *arguments: str, cwd: Path
) -> subprocess.CompletedProcess[str]:
    environment = installed.environment(site, {**os.environ, "PYKOCLAW_DATA": os.fspath(data)})
    return subprocess.run(
        ["pykoclaw", *arguments],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_installed_program_runs_commands_of_plugins(data: Path, tmp_path: Path) -> None:
    failing = ["fails_to_load", "fails_to_construct", "fails_to_migrate", "fails_to_serve"]
    site = installed.install(tmp_path / "env", ["hello", *failing])
    said = pykoclaw(site, data, "hello", cwd=tmp_path)
    assert (said.returncode, said.stdout) == (0, "hello\n"), said.stderr
    for name in ("fails_to_load", "fails_to_construct", "Failed to run migration"):
        assert name in said.stderr
    assert {"hello_calls", "half", "whole"} <= files.contents(data / "pykoclaw.db").keys()
    assert pykoclaw(site, data, "tasks", cwd=tmp_path).stdout == "No scheduled tasks.\n"


@pytest.mark.long
def test_plugin_that_cannot_register_ends_every_command(data: Path, tmp_path: Path) -> None:
    site = installed.install(tmp_path / "env", ["fails_to_register"])
    said = pykoclaw(site, data, "tasks", cwd=tmp_path)
    assert said.returncode == 1
    assert "no commands" in said.stderr


@pytest.mark.long
def test_installed_program_imports_standard_engine_first(data: Path, tmp_path: Path) -> None:
    site = installed.install(tmp_path / "env")
    said = pykoclaw(site, data, "acp", "--help", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    look = "import sys, pykoclaw.__main__; print(sys.modules['sqlite3'].__name__, 'pysqlite3' in sys.modules)"
    environment = installed.environment(site, dict(os.environ))
    done = subprocess.run(
        [sys.executable, "-c", look], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "sqlite3 False\n"
