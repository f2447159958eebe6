"""Scheduled tasks: each due run happens once, and ends with what pykoclaw's scheduler writes."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pykoclaw_acp import retries
from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.conversations import Conversation
from pykoclaw_acp.model.events import UserMessage
from pykoclaw_acp.model.scheduled import TaskRun
from pykoclaw_acp.model.session_options import RequestedOptions, SessionOptions
from pykoclaw_acp.server.turn_locks import FileLocks
from pykoclaw_acp.sessions import folders
from pykoclaw_acp.sessions.scheduler import Scheduler
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.task_runs import TaskRuns
from pykoclaw_acp.store import task_requests as requests
from pykoclaw_acp.store import tasks
from pykoclaw_acp.store.journal.tasks import SqlTaskStore
from pykoclaw_acp.store.units import Unit
from pykoclaw_acp.system import other_scheduler
from pykoclaw_acp.system.turn_lock import TurnLock
from tests.integration.asking import Asking
from tests.integration.programs import upsert_row
from tests.integration.queueing import execute, fetch
from tests.integration.rig import LISTS, Client, Rig, rig
from tests.integration.scheduling import PAST, blocked_by_cron, logs, nobody, row, scheduling, task
from tests.waiting import eventually, within


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


async def attached(r: Rig) -> tuple[Session, Client]:
    session, client = await r.session(), Client()
    session.subscribe(client, 0)
    return session, client


async def test_due_task_runs_and_leaves_what_pykoclaw_does(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        session, client = await attached(r)
        name = session.record.conversation_name
        once = task(path, name)
        await eventually(lambda: row(path, once, "status") == ("completed",))
        answer = client.text
        assert answer
        assert logs(path, once) == [("success", answer, None)]
        next_run, last_run, last_result = row(path, once, "next_run", "last_run", "last_result")
        assert (next_run, last_result) == (None, answer)
        assert last_run.endswith("+00:00")
        delivery = (
            "SELECT task_id, conversation, channel_prefix, message, status FROM delivery_queue"
        )
        # The user has seen it where it would be delivered.
        assert fetch(path, delivery) == [(once, name, "acp", answer, "delivered")]
        assert fetch(path, "SELECT task_id, state FROM acp_turns") == [(once, "done")]
        logged = [one.event for one in await r.journal.read(session.id, 0, 99)]
        prompts = [one.origin for one in logged if isinstance(one, UserMessage)]
        assert prompts == ["scheduler"], "who has sent it, as clients are told"


async def test_cron_task_holds_up_no_client(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = blocked_by_cron(monkeypatch)
    async with rig(tmp_path) as r, scheduling(r):
        session, _ = await attached(r)
        daily = {"schedule_type": "cron", "schedule_value": "0 9 * * *"}
        one = task(path, session.record.conversation_name, **daily)
        await eventually(lambda: logs(path, one))
        assert row(path, one, "next_run")[0].endswith("T09:00:00+00:00")
    assert blocked == [False, False]  # at its claim, and at its end


async def test_run_that_cannot_begin_ends_after_some_tries(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("nobody has foreseen this")

    monkeypatch.setattr(folders, "ensure", broken)
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)
    async with rig(tmp_path) as r, scheduling(r):
        session, _ = await attached(r)
        poisoned = task(path, session.record.conversation_name)
        await eventually(lambda: row(path, poisoned, "status") == ("completed",))
        ((state, _, reason),) = logs(path, poisoned)
        assert state == "error"
        assert "nobody has foreseen this" in reason
        monkeypatch.undo()
        good = task(path, session.record.conversation_name)
        await eventually(lambda: row(path, good, "status") == ("completed",))
        assert logs(path, good)[0][0] == "success"


async def test_result_for_another_conversation_is_enqueued_for_it(
    tmp_path: Path, path: Path
) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        session = await r.session()
        away = task(path, session.record.conversation_name, target_conversation="wa-andy-1@g.us")
        await eventually(lambda: logs(path, away))
        where = "SELECT conversation, channel_prefix, status FROM delivery_queue"
        assert fetch(path, where) == [("wa-andy-1@g.us", "wa", "pending")]


async def test_isolated_task_runs_in_own_blank_session(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        session, client = await attached(r)
        await r.run(session, "say 1")
        before = fetch(
            path,
            "SELECT session_id FROM conversations WHERE name = ?",
            session.record.conversation_name,
        )
        for number in range(2):
            one = task(
                path, session.record.conversation_name, context_mode="isolated", id=f"task{number}"
            )
            await eventually(partial(logs, path, one))
        assert len({spec.spec.session_id for spec in r.launcher.launched}) == 3
        assert all(one.spec.resume_session_id is None for one in r.launcher.launched)
        after = fetch(
            path,
            "SELECT session_id FROM conversations WHERE name = ?",
            session.record.conversation_name,
        )
        assert after == before
        assert {one.turn_id for one in client.shown} == {client.shown[0].turn_id}
        states = fetch(path, "SELECT status FROM delivery_queue")
        assert states == [("pending",)] * 2  # for the conversation, which has not seen it


async def test_isolated_task_may_only_do_as_its_session(tmp_path: Path, path: Path) -> None:
    """Claude itself can schedule one there."""
    asked = SessionOptions(disallowed_tools=("Bash",), max_turns=3)
    async with rig(tmp_path) as r, scheduling(r):
        wanted = RequestedOptions(mode="plan", options=asked, given={"mode": "mode"})
        session = await r.sessions.create(os.fspath(tmp_path), (), (), requested=wanted)
        one = task(path, session.record.conversation_name, context_mode="isolated")
        await eventually(partial(logs, path, one))
        (launched,) = r.launcher.launched
        assert launched.spec.session_id != session.id
        assert (launched.spec.options.permission_mode, launched.spec.options.asked) == (
            "plan",
            asked,
        )


@pytest.mark.parametrize("begun", [True, False])
async def test_tools_of_run_aside_are_its_conversations(
    tmp_path: Path, path: Path, begun: bool
) -> None:
    """A task that Claude schedules in an isolated run reaches the conversation."""
    async with rig(tmp_path) as r, scheduling(r):
        session, client = await attached(r)
        name = session.record.conversation_name if begun else "wa-andy-1@g.us"
        one = task(path, name, context_mode="isolated" if begun else "group")
        await eventually(partial(logs, path, one))
        (launched,) = r.launcher.launched
        follow_up = task(path, launched.spec.options.conversation, "say 3")
        await eventually(partial(logs, path, follow_up))
        assert [state for state, _, _ in logs(path, follow_up)] == ["success"]
        where = "SELECT conversation FROM delivery_queue WHERE task_id = ?"
        assert fetch(path, where, follow_up) == [(name,)]
        assert not begun or client.text
    async with rig(tmp_path) as r:
        again = await r.sessions.get(launched.spec.session_id)
        assert again.options.conversation == name


async def test_of_runs_aside_the_newest_is_kept_hidden(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        session = await r.session()
        hourly = task(
            path, session.record.conversation_name, context_mode="isolated",
            schedule_type="interval", schedule_value="3600000",
        )  # fmt: skip
        for number in (1, 2):
            execute(path, "UPDATE scheduled_tasks SET next_run = ?", PAST)
            await eventually(
                partial(_count_is, path, "task_run_logs WHERE status = 'success'", number)
            )
        assert row(path, hourly, "status") == ("active",)
        kept = "acp_sessions WHERE auxiliary = 1 AND deleted_at IS NULL"
        await eventually(partial(_count_is, path, "acp_task_runs", 1))
        assert _count_is(path, kept, 1)


class Transcripts:
    """Claude's transcripts: what was removed."""

    def __init__(self) -> None:
        self.removed: set[str] = set()

    async def remove(self, claude_session_ids: Collection[str]) -> None:
        self.removed |= set(claude_session_ids)


async def _run_again(path: Path, number: int) -> None:
    execute(path, "UPDATE scheduled_tasks SET next_run = ? WHERE id = '00000000'", PAST)
    await eventually(partial(_count_is, path, "task_run_logs WHERE status = 'success'", number))
    await eventually(partial(_count_is, path, "acp_task_runs WHERE ended_at IS NOT NULL", 1))


@pytest.mark.parametrize("deletes", ["on", "off"])
async def test_a_run_aside_leaves_nothing_but_its_id(
    tmp_path: Path, path: Path, deletes: str
) -> None:
    """And its transcript, which is Claude's, unless the setting says otherwise."""
    transcripts = Transcripts()
    async with rig(tmp_path) as r, scheduling(r):
        r.sessions.catalogue.transcripts = transcripts  # type: ignore[assignment]
        r.sessions.catalogue.settings = replace(LISTS, delete_transcripts=deletes)
        session = await r.session()
        task(
            path, session.record.conversation_name, context_mode="isolated",
            schedule_type="interval", schedule_value="3600000",
        )  # fmt: skip
        for number in (1, 2, 3):
            await _run_again(path, number)
        runs = [one.spec.session_id for one in r.launcher.launched]
        assert transcripts.removed == (set(runs[:2]) if deletes == "on" else set())
        for table, column in (("acp_sessions", "acp_session_id"), ("conversations", "session_id")):
            known = fetch(path, f"SELECT {column} FROM {table}")
            assert {one for (one,) in known if one} <= {session.id, runs[2]}
            assert len(known) == 2
        assert all([await r.journal.id_taken(one) for one in runs])


async def test_isolated_run_others_know_keeps_its_conversation(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        session = await r.session()
        hourly = {"schedule_type": "interval", "schedule_value": "3600000"}
        task(path, session.record.conversation_name, context_mode="isolated", **hourly)
        names = []
        for number in (1, 2, 3, 4):
            await _run_again(path, number)
            made = "SELECT conversation_name FROM acp_sessions WHERE acp_session_id = ?"
            ((name,),) = fetch(path, made, r.launcher.launched[-1].spec.session_id)
            names.append(name)
            if number == 1:  # whoever has seen the name
                task(path, name, next_run=None)
            elif number == 2:
                moved = "UPDATE conversations SET session_id = 'elsewhere' WHERE name = ?"
                execute(path, moved, name)
        for table, column in (("conversations", "name"), ("acp_sessions", "conversation_name")):
            known = {one for (one,) in fetch(path, f"SELECT {column} FROM {table}")}
            assert known == {session.record.conversation_name, names[0], names[1], names[3]}


async def test_transcript_a_conversation_continues_with_is_kept(tmp_path: Path, path: Path) -> None:
    transcripts = Transcripts()
    async with rig(tmp_path) as r, scheduling(r):
        r.sessions.catalogue.transcripts = transcripts  # type: ignore[assignment]
        r.sessions.catalogue.settings = replace(LISTS, delete_transcripts="on")
        task(path, "daily", schedule_type="interval", schedule_value="3600000")
        for number in (1, 2):
            await _run_again(path, number)
        first, second = r.launcher.launched
        assert second.spec.resume_session_id == first.spec.session_id
        assert transcripts.removed == set()


def _count_is(path: Path, rows: str, expected: int) -> bool:
    return fetch(path, f"SELECT COUNT(*) FROM {rows}") == [(expected,)]


async def test_conversations_name_is_no_beginning_of_an_id(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        other = "wa-andy-1@g.us"
        await upsert_row(r.database, Conversation(other, "claude-1", "/folder", "hash"))
        name = conversations.id_of(other)[:4]
        one = task(path, name)
        await eventually(lambda: logs(path, one))
        (worker,) = r.launcher.launched
        assert worker.spec.options.cwd == str(tmp_path / "conversations" / name)


async def test_task_of_unknown_conversation_runs_in_its_directory(
    tmp_path: Path, path: Path
) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        daily = task(path, "daily-report")
        await eventually(lambda: logs(path, daily))
        (worker,) = r.launcher.launched
        assert worker.spec.options.cwd == str(tmp_path / "conversations" / "daily-report")
        assert os.path.isdir(worker.spec.options.cwd)  # noqa: ASYNC240
        known = "SELECT session_id, cwd FROM conversations WHERE name = 'daily-report'"
        await eventually(
            lambda: fetch(path, known) == [(worker.spec.session_id, worker.spec.options.cwd)]
        )
        escaping = task(path, "../../elsewhere")
        await eventually(lambda: logs(path, escaping))
        assert logs(path, escaping)[0][0] == "error"


async def test_group_task_continues_conversation_no_client_opened(
    tmp_path: Path, path: Path
) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        execute(
            path,
            "INSERT INTO conversations (name, session_id, cwd, created_at)"
            " VALUES ('wa-andy-1@g.us', 'claude-7', '/', '2026')",
        )
        report = task(path, "wa-andy-1@g.us")
        await eventually(lambda: logs(path, report))
        (worker,) = r.launcher.launched
        assert worker.spec.resume_session_id == "claude-7"
        assert worker.spec.options.cwd == str(tmp_path / "conversations" / "wa-andy-1@g.us")
        # The directory is still the first client's to choose.
        assert fetch(path, "SELECT conversation_name, cwd FROM acp_sessions") == [
            ("wa-andy-1@g.us", None)
        ]
        where = "SELECT conversation, channel_prefix, status FROM delivery_queue"
        assert fetch(path, where) == [("wa-andy-1@g.us", "wa", "pending")]


async def test_missed_ticks_coalesce_into_one_run(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        session = await r.session()
        hourly = task(
            path,
            session.record.conversation_name,
            schedule_type="interval",
            schedule_value="3600000",
        )
        await eventually(lambda: logs(path, hourly))
        await eventually(lambda: row(path, hourly, "last_result") != (None,))
        status, next_run = row(path, hourly, "status", "next_run")
        soon = datetime.now(UTC) + timedelta(minutes=59)
        assert status == "active"
        assert datetime.fromisoformat(next_run) > soon
        assert not await within(lambda: len(logs(path, hourly)) > 1, 1)


async def test_schedule_that_cannot_be_read_pauses_the_task(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        session = await r.session()
        bad = task(
            path, session.record.conversation_name, schedule_type="cron", schedule_value="often"
        )
        await eventually(lambda: row(path, bad, "status") == ("paused",))
        ((state, _, error),) = logs(path, bad)
        assert state == "error"
        assert "cannot be read" in error
        assert not r.launcher.launched


async def test_two_schedulers_run_one_due_task_once(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        due = task(path, session.record.conversation_name)
        async with scheduling(r), scheduling(r):
            await eventually(lambda: logs(path, due))
            assert not await within(lambda: len(logs(path, due)) > 1, 1)
        assert len(fetch(path, "SELECT 1 FROM acp_turns")) == 1


async def test_claim_fails_for_changed_or_running_task(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        store = SqlTaskStore(r.database)
        runs = TaskRuns(r.sessions, store, tmp_path, 100)
        due = task(path, session.record.conversation_name, "hang")
        (known,) = await store.due(9)
        execute(path, "UPDATE scheduled_tasks SET next_run = '2025' WHERE id = ?", due)
        with pytest.raises(Conflict):
            await runs.begin(known, None)
        (known,) = await store.due(9)
        await runs.begin(known, "2025-06")  # due again, while it runs
        assert await store.due(9) == []
        same = await tasks.whole(r.database, due)
        assert same is not None
        with pytest.raises(Conflict):
            await runs.begin(same, same.next_run, manual=True)
        runs.stop()


async def test_scheduler_stands_by_while_the_other_one_runs(tmp_path: Path, path: Path) -> None:
    other: list[int] = [4711]
    async with rig(tmp_path) as r:
        session = await r.session()
        due = task(path, session.record.conversation_name)
        async with scheduling(r, lambda: other[0] if other else None) as scheduler:
            await eventually(lambda: scheduler.other == 4711)
            assert not await within(lambda: logs(path, due) or r.launcher.launched, 1)
            other.clear()
            execute(path, "UPDATE scheduled_tasks SET prompt = 'say 1'")  # it looks again at once
            await eventually(lambda: logs(path, due))
            assert scheduler.other is None


async def test_failed_turn_is_an_error_and_delivers_nothing(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        session = await r.session()
        dying = task(path, session.record.conversation_name, "die")
        await eventually(lambda: logs(path, dying))
        ((state, _, error),) = logs(path, dying)
        assert state == "error"
        assert row(path, dying, "last_result") == (f"Error: {error}"[:10_000],)
        assert row(path, dying, "status") == ("completed",)
        assert fetch(path, "SELECT 1 FROM delivery_queue") == []


@pytest.mark.parametrize("step", ["claimed", "accepted"])
async def test_run_of_an_earlier_daemon_goes_on_once(tmp_path: Path, path: Path, step: str) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        due = task(path, session.record.conversation_name, "say 3")
        store = SqlTaskStore(r.database)
        runs = TaskRuns(r.sessions, store, tmp_path, 100)
        (known,) = await store.due(1)
        if step == "claimed":
            await store.claim(
                TaskRun(str(uuid4()), known, None, manual=False, started_at=r.database.clock.now())
            )
        else:
            await runs.begin(known, None)
            await eventually(lambda: fetch(path, "SELECT 1 FROM acp_turns"))
            runs.stop()
        async with scheduling(r):
            await eventually(lambda: logs(path, due))
        assert [state for state, _, _ in logs(path, due)] == ["success"]
        assert len(fetch(path, "SELECT 1 FROM acp_turns")) == 1


async def test_change_of_schedule_during_a_run_is_kept(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        session = await r.session()
        once = task(path, session.record.conversation_name, "hang")
        await eventually(lambda: r.launcher.launched and r.launcher.launched[0].contents)
        execute(path, "UPDATE scheduled_tasks SET next_run = '2099' WHERE id = ?", once)
        session.cancel()
        await eventually(lambda: logs(path, once))
        assert row(path, once, "next_run", "status") == ("2099", "active")


async def test_many_due_tasks_leave_workers_for_people(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        for number in range(9):
            session = await r.session()
            task(path, session.record.conversation_name, "hang", id=f"t{number}")
        await eventually(lambda: len(r.launcher.launched) == 4)
        assert not await within(lambda: len(r.launcher.launched) > 4, 1)


async def test_run_waits_for_another_programs_turn(tmp_path: Path, path: Path) -> None:
    locks = FileLocks(str(tmp_path), 0.1)
    async with rig(tmp_path, locks=locks) as r, scheduling(r):
        sessions = [await r.session() for _ in range(5)]
        names = [session.record.conversation_name for session in sessions]
        taken = [TurnLock.take(str(tmp_path), name, "whatsapp") for name in names[:4]]
        runs = [task(path, name) for name in names[:4]]
        await eventually(lambda: all(session.others.waits for session in sessions[:4]))
        last = task(path, names[4])
        await eventually(lambda: logs(path, last))  # nobody else is held up
        assert [one for one in runs if logs(path, one)] == []  # as long as a client's prompt waits
        for lock in taken:
            assert isinstance(lock, TurnLock)
            lock.release()
        await eventually(lambda: all(logs(path, one) for one in runs))
        assert {logs(path, one)[0][0] for one in runs} == {"success"}
        assert len(fetch(path, "SELECT 1 FROM acp_turns")) == 5


async def test_tasks_behind_one_turn_hold_up_nobody(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        busy, other = await r.session(), await r.session()
        await r.prompt(busy, "hang")
        for _ in range(4):
            task(path, busy.record.conversation_name)
        await eventually(lambda: len(busy.turns) == 5)
        last = task(path, other.record.conversation_name)
        await eventually(lambda: logs(path, last))


async def test_tasks_waiting_for_people_hold_up_nobody(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        sessions = [await r.session() for _ in range(5)]
        for session in sessions[:4]:
            task(path, session.record.conversation_name, "hang")
        await eventually(lambda: [one.contents for one in r.launcher.launched if one.contents][3:])
        for channel in r.launcher.launched:
            session = await r.sessions.get(channel.spec.session_id)
            Asking(r, session, session.turns[0], channel).ask(f"q-{session.id}")
        await eventually(lambda: all(one.permissions.pending_ids for one in sessions[:4]))
        last = task(path, sessions[4].record.conversation_name)
        await eventually(lambda: logs(path, last))


@pytest.mark.parametrize("taken", [False, True])
async def test_task_that_has_no_directory_ends_as_error(
    tmp_path: Path, path: Path, *, taken: bool
) -> None:
    if taken:
        (tmp_path / "conversations").mkdir()
        (tmp_path / "conversations" / "taken").write_text("")
    async with rig(tmp_path) as r, scheduling(r):
        bad = [task(path, "taken" if taken else "wa-" + "é" * 200) for _ in range(5)]
        session = await r.session()
        good = task(path, session.record.conversation_name)
        await eventually(lambda: logs(path, good))
        await eventually(lambda: all(logs(path, one) for one in bad))
        for one in bad:
            ((state, _, error),) = logs(path, one)
            assert (state, "no directory" in error) == ("error", True)
        assert fetch(path, "SELECT 1 FROM acp_task_runs WHERE ended_at IS NULL") == []


async def test_abandoned_run_not_begun_leaves_its_slot(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pykoclaw_acp.sessions.task_runs.folders.ensure", full)
    async with rig(tmp_path) as r:
        session = await r.session()
        one = task(path, session.record.conversation_name)
        store = SqlTaskStore(r.database)
        runs = TaskRuns(r.sessions, store, tmp_path, 100)
        (known,) = await store.due(9)
        await runs.begin(known, None)
        await eventually(
            lambda: fetch(path, "SELECT acp_session_id FROM acp_task_runs") != [(None,)]
        )
        await r.database.commit(Unit((*requests.delete(one), *requests.give_up_runs(one))))
        runs.give_up(one)
        await eventually(lambda: not runs.running)
        assert await store.unfinished() == []


@pytest.mark.parametrize("column", ["id", "conversation", "prompt", "schedule_value"])
async def test_task_not_utf8_is_skipped_and_listed_escaped(
    tmp_path: Path, path: Path, column: str
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        for number in range(5):
            task(path, session.record.conversation_name, id=f"bad{number}")
        execute(
            path,
            f"UPDATE scheduled_tasks SET {column} = CAST(x'ff' || CAST({column} AS BLOB) AS TEXT)",
        )
        good = task(path, session.record.conversation_name, id="good", next_run="2026-01-02")
        async with scheduling(r):
            await eventually(lambda: logs(path, good))
        assert len(r.launcher.launched) == 1
        listed = [one.task for one in await tasks.every(r.database, 9, 99)]
        assert len([one for one in listed if "\\xff" in getattr(one, column)]) == 5


async def test_run_log_not_utf8_is_shown_escaped(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        execute(
            path,
            "INSERT INTO task_run_logs (task_id, run_at, duration_ms, status, result) VALUES"
            " ('t', CAST(x'3230ff' AS TEXT), 5, 'success', CAST(x'ff41' AS TEXT))",
        )
        found = await tasks.logged(r.database, "t", 9, 9)
        assert found == [("20\\xff", 5, "success", "\\xffA", None, {})]


@pytest.mark.parametrize(
    ("written", "read"),
    [("'huge'", 0), ("x'ff'", 0), ("-5", 0), ("1e300", 0), ("1.5", 1), ("7", 7)],
)
async def test_duration_of_run_log_is_a_number(
    tmp_path: Path, path: Path, written: str, read: int
) -> None:
    async with rig(tmp_path) as r:
        execute(
            path,
            "INSERT INTO task_run_logs (task_id, run_at, duration_ms, status)"
            f" VALUES ('t', '2026', {written}, 'success')",
        )
        assert await tasks.logged(r.database, "t", 9, 9) == [
            ("2026", read, "success", None, None, {})
        ]


async def test_tasks_without_an_id_are_skipped(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        name = session.record.conversation_name
        for number in range(6):
            task(path, name, id=f"x{number}")
        execute(path, "UPDATE scheduled_tasks SET id = NULL WHERE id <> 'x5'")
        execute(path, "UPDATE scheduled_tasks SET id = x'6162' WHERE id = 'x5'")
        good = task(path, name, next_run="2026-01-02", id="good")
        async with scheduling(r):
            await eventually(lambda: logs(path, good))
        assert [one.task.id for one in await tasks.every(r.database, 9, 99)].count("") == 5


async def test_fruitless_claims_are_not_retried_at_once(tmp_path: Path, path: Path) -> None:
    class Refusing(SqlTaskStore):
        claims = 0

        async def claim(self, run: TaskRun) -> None:
            self.claims += 1
            raise Conflict("it changed")

    async with rig(tmp_path) as r:
        session = await r.session()
        for _ in range(5):
            task(path, session.record.conversation_name)
        store = Refusing(r.database)
        runs = TaskRuns(r.sessions, store, tmp_path, 100)
        running = asyncio.create_task(Scheduler(store, runs, nobody).run())
        await eventually(lambda: store.claims >= 4)
        assert not await within(lambda: store.claims > 4, 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# --- the other scheduler's process


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pykoclaw scheduler", True),
        ("/venv/bin/python /venv/bin/pykoclaw scheduler", True),
        ("python3 -m pykoclaw scheduler", True),
        ("python3 /usr/lib/pykoclaw/__main__.py scheduler", True),
        ("pykoclaw acp", False),
        ("grep pykoclaw", False),
        ("vim scheduler", False),
        ("pykoclaw-acp scheduler", False),
    ],
)
def test_command_line_of_the_scheduler_is_recognised(line: str, expected: bool) -> None:
    assert other_scheduler.is_scheduler(line.split()) is expected


def test_scheduler_counts_if_it_has_this_database_open(tmp_path: Path) -> None:
    database, elsewhere = tmp_path / "a.db", tmp_path / "b.db"
    database.touch()
    elsewhere.touch()
    for pid, line, opened in (
        (10, "pykoclaw\0acp\0", database),
        (11, "pykoclaw\0scheduler\0", elsewhere),
        (12, "python\0-m\0pykoclaw\0scheduler\0", database),
    ):
        folder = tmp_path / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "cmdline").write_text(line)
        os.symlink(opened, folder / "fd" / "3")
    assert other_scheduler.find(database, tmp_path / "proc") == 12
    (tmp_path / "proc" / "12" / "fd" / "3").unlink()
    assert other_scheduler.find(database, tmp_path / "proc") is None
    assert other_scheduler.find(tmp_path / "none", tmp_path / "proc") is None


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Its directory in `proc`: pykoclaw's scheduler, with `a.db` open and another file that it closes
    while it is looked at.
    """
    (tmp_path / "a.db").touch()
    folder = tmp_path / "proc" / "12"
    (folder / "fd").mkdir(parents=True)
    (folder / "cmdline").write_text("pykoclaw\0scheduler\0")
    for descriptor, path in ("3", "closed"), ("4", "a.db"), ("5", "closed"):
        os.symlink(tmp_path / path, folder / "fd" / descriptor)
    return folder


def test_scheduler_that_closes_a_file_is_found(tmp_path: Path, other: Path) -> None:
    """As while it starts Claude, or commits."""
    assert other_scheduler.find(tmp_path / "a.db", other.parent) == 12


@pytest.mark.parametrize(("owner", "call"), [(Path, "read_bytes"), (os, "listdir")])
def test_scheduler_is_not_gone_without_descriptors(
    tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, call: str
) -> None:
    able = getattr(owner, call)

    def lacking(path: Path | str) -> Any:
        if str(path).startswith(f"{other}/"):
            raise OSError(errno.EMFILE, "Too many open files")
        return able(path)

    monkeypatch.setattr(owner, call, lacking)
    with pytest.raises(OSError, match="Too many open files"):
        other_scheduler.find(tmp_path / "a.db", other.parent)
