"""People who are not there are told: each event under one id, each target until it accepts, each
delivery once.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import hmac
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.notices import DeliveryTarget, EndedTurn
from pykoclaw_acp.model.permissions import Decision
from pykoclaw_acp.model.turns import AWAY_GRACE
from pykoclaw_acp.notify import command, quiet, sender, teller, webhook
from pykoclaw_acp.notify.acceptance import NotAccepted
from pykoclaw_acp.notify.quiet import QuietHours
from pykoclaw_acp.notify.targets import CommandTarget, Target, Webhook
from pykoclaw_acp.notify.teller import Teller
from pykoclaw_acp.server import notices as server_notices
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store.condition import unavailable
from pykoclaw_acp.store.journal.notices import SqlNoticeStore
from pykoclaw_acp.store.notices import AT_A_TIME
from pykoclaw_acp.store.units import Statement, Unit
from pykoclaw_acp.system import processes
from tests.databases import on_writer
from tests.double import tables
from tests.double.handle import init_db
from tests.integration import asking
from tests.integration.asking import Person
from tests.integration.rig import Rig, rig
from tests.integration.scheduling import logs, scheduling, task
from tests.waiting import eventually

WAITING = "SELECT 1 FROM acp_notifications WHERE outcome IS NULL"
CHAT = DeliveryTarget("wa-andy-1@g.us", "wa")


def script(path: Path, *lines: str) -> CommandTarget:
    """A command, in Python, which has the notice as `said`."""
    source = ["import json, os, subprocess, sys, time", "said = sys.stdin.read()", *lines]
    path.write_text("\n".join(source))
    return CommandTarget((sys.executable, "-I", str(path)))


def writer(place: Path, *before: str) -> CommandTarget:
    """A command that appends what it reads to `<place>.told`."""
    told = place.with_suffix(".told")
    return script(place, *before, f"open({str(told)!r}, 'a').write(said + '\\n')")


def told(place: Path) -> list[dict[str, Any]]:
    path = place.with_suffix(".told")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# --- a command


async def test_command_reads_notice_and_gets_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "S3CRET")
    monkeypatch.setenv("PYKOCLAW_NOTIFY_SECRET", "S3CRET")
    place = tmp_path / "tell"
    one = writer(place, "assert 'S3CRET' not in str(dict(os.environ)), 'it got a secret'")
    await command.tell(one.arguments, b'{"id": "n"}')
    assert told(place) == [{"id": "n"}]


async def test_command_that_fails_has_not_accepted(tmp_path: Path) -> None:
    one = script(tmp_path / "tell", "sys.exit('no \\x1b[2Jphone')")
    with pytest.raises(NotAccepted, match=r"exit status 1: no \\x1b\[2Jphone"):
        await command.tell(one.arguments, b"{}")
    with pytest.raises(NotAccepted, match="could not be started"):
        await command.tell(("/nowhere",), b"{}")


async def test_command_may_leave_its_input_unread() -> None:
    await command.tell(("/bin/true",), b"x" * 1_000_000)


async def test_slow_command_ends_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    one = script(
        tmp_path / "tell",
        "child = subprocess.Popen(['sleep', '1000'])",
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')",
        "time.sleep(1000)",
    )
    with pytest.raises(NotAccepted, match="more than"):
        await command.tell(one.arguments, b"{}", limit=3)
    await eventually(lambda: not any(map(runs, map(int, pids.read_text().split()))))


async def test_command_may_leave_processes_holding_its_pipes(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    one = script(
        tmp_path / "tell",
        "child = subprocess.Popen(['sleep', '1000'])",
        f"open({str(pid)!r}, 'w').write(str(child.pid))",
    )
    await command.tell(one.arguments, b"{}", limit=60)
    child = int(pid.read_text())
    try:
        assert runs(child)
    finally:
        os.kill(child, signal.SIGKILL)


async def test_cancelled_command_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    one = script(
        tmp_path / "tell", f"open({str(pid)!r}, 'w').write(str(os.getpid()))", "time.sleep(1000)"
    )
    telling = asyncio.create_task(command.tell(one.arguments, b"{}", limit=1000))
    await eventually(lambda: pid.exists() and pid.read_text())
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    await eventually(lambda: not runs(int(pid.read_text())))


def runs(pid: int) -> bool:
    return processes.state(pid) not in (None, "Z", "X")


# --- a webhook


class Receiver(ThreadingHTTPServer):
    """Answers with `statuses`, the last one for ever, and keeps what was posted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses = [204]
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.silent = False
        self.over = Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?x=1"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), body))
        if self.server.silent:
            self.server.over.wait()
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.send_header("Location", self.server.url)
        self.end_headers()

    do_GET = do_POST

    def log_message(self, format: str, *values: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        serving = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield made
        made.over.set()
        made.shutdown()
        serving.join()


async def test_webhook_gets_signed_notice(receiver: Receiver) -> None:
    await webhook.tell(receiver.url, "key", b'{"id": "n"}', "n")
    ((path, headers, body),) = receiver.got
    assert (path, body) == ("/hook?x=1", b'{"id": "n"}')
    assert headers["Pykoclaw-Notice"] == "n"
    time, _, made = headers["Pykoclaw-Signature"].removeprefix("t=").partition(",v1=")
    expected = hmac.new(b"key", time.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert made == expected


async def test_letters_beyond_ascii_in_webhook_are_encoded(receiver: Receiver) -> None:
    await webhook.tell(f"{receiver.url}&who=J%C3%BCrgen+Größe", "key", b"{}", "n")
    ((path, _, _),) = receiver.got
    assert path == "/hook?x=1&who=J%C3%BCrgen+Gr%C3%B6%C3%9Fe"


@pytest.mark.parametrize("status", [301, 307, 400, 410, 500])
async def test_other_statuses_have_not_accepted(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]
    with pytest.raises(NotAccepted, match=str(status)):
        await webhook.tell(receiver.url, "key", b"{}", "n")
    assert len(receiver.got) == 1  # it went nowhere else


async def test_silent_webhook_ends_in_time(receiver: Receiver) -> None:
    receiver.silent = True
    with pytest.raises(NotAccepted):
        await webhook.tell(receiver.url, "key", b"{}", "n", limit=0.2)


async def test_closed_port_and_plain_http_elsewhere_are_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NotAccepted, match="ConnectionRefused"):
        await webhook.tell(f"http://localhost:{port}/", "key", b"{}", "n")
    with pytest.raises(NotAccepted, match="https"):
        await webhook.tell("http://192.0.2.1/", "key", b"{}", "n")


# --- who is told of what


@asynccontextmanager
async def telling(
    r: Rig, *targets: Target, quiet: QuietHours | None = None, grace: float = 0.0
) -> AsyncIterator[Teller]:
    """Tells people of what happens in the rig, as the daemon does."""

    def attended(session_id: str) -> bool:
        return any(
            one.alive and one.client.present
            for session in r.sessions.live.values()
            if session.id == session_id
            for one in session.subscriptions
        )

    store = SqlNoticeStore(r.database)
    made = Teller(store, targets, quiet, attended, secret="key", grace=grace)
    r.journal.turn_ended, r.journal.request_waits = made.turn_ended, made.request_waits
    task = asyncio.create_task(made.run())
    await eventually(lambda: rows(r, "SELECT 1 FROM acp_notify"))
    yield made
    task.cancel()
    await asyncio.wait([task])
    r.journal.turn_ended = r.journal.request_waits = lambda _: None


async def away(r: Rig) -> Session:
    """A session whose only client has gone."""
    session = await r.session()
    session.subscribe(Person(present=False), 0)
    return session


async def rows(r: Rig, sql: str) -> Any:
    return await r.database.read(sql)


async def write(r: Rig, sql: str, *values: Any) -> None:
    await on_writer(r.database, lambda connection: connection.execute(sql, values))


async def queued(r: Rig) -> Any:
    found = await r.database.read(
        "SELECT id, task_id, conversation, channel_prefix, message, status FROM delivery_queue"
    )
    names = ("id", "task_id", "conversation", "channel_prefix", "message", "status")
    return [dict(zip(names, row, strict=True)) for row in found]


async def notices(r: Rig) -> Any:
    return [one for (one,) in await r.database.read("SELECT notice_id FROM acp_notices")]


async def settled(r: Rig) -> Any:
    """Every notification has an outcome."""
    return not await r.database.read("SELECT 1 FROM acp_notifications WHERE outcome IS NULL")


async def test_unwatched_turn_is_told_once_to_every_target(
    tmp_path: Path, receiver: Receiver
) -> None:
    place = tmp_path / "tell"
    targets = (writer(place), Webhook(receiver.url), CHAT)
    async with rig(tmp_path) as r:
        async with telling(r, *targets):
            session = await away(r)
            await r.run(session, "say 1")
            await eventually(lambda: told(place) and receiver.got)
            await eventually(lambda: settled(r))
        (turn_id,) = await r.states()
        (row,) = await queued(r)
        assert row["conversation"] == "wa-andy-1@g.us"
        assert (row["channel_prefix"], row["status"]) == ("wa", "pending")
        (said,) = told(place)
        assert json.loads(receiver.got[0][2]) == said
        assert said["id"] == f"turn-{turn_id}"
        assert (said["event"], said["session"]) == ("turn_ended", session.id)
        assert said["text"] == row["message"]
        async with telling(r, *targets) as again:  # the next daemon
            again.turn_ended(turn_id)
            await r.run(session, "say 1")
            await eventually(lambda: len(told(place)) == 2 and len(receiver.got) == 2)
        assert len(await queued(r)) == len({row["id"] for row in await queued(r)}) == 2
        assert len({one["id"] for one in told(place)}) == 2


async def test_other_programs_can_read_the_delivery(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, telling(r, CHAT):
        await r.run(await away(r), "say 1")
        await eventually(lambda: queued(r))
        db = init_db(r.database.path)
        (delivery,) = tables.get_pending_deliveries(db, "wa")
        tables.mark_delivered(db, delivery.id)
        db.close()
        assert delivery.conversation == "wa-andy-1@g.us"
        assert [row["status"] for row in await queued(r)] == ["delivered"]


async def test_notice_without_its_delivery_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teller, "RETRY", 0.01)
    trigger = (
        "CREATE TRIGGER refuse BEFORE INSERT ON delivery_queue BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    async with rig(tmp_path) as r:
        await write(r, trigger)
        async with telling(r, CHAT):
            tried = asyncio.Event()
            add = SqlNoticeStore.add

            async def noted(*values: Any) -> bool:
                try:
                    return await add(*values)
                finally:
                    tried.set()

            monkeypatch.setattr(SqlNoticeStore, "add", noted)
            await r.run(await away(r), "say 1")
            await asyncio.wait_for(tried.wait(), 30)
            assert await notices(r) == []
            await write(r, "DROP TRIGGER refuse")
            await eventually(lambda: queued(r))
            assert await _count(r, 1)


async def test_watched_and_cancelled_turns_are_not_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, telling(r, CHAT):
        watched = await r.session()
        watched.subscribe(Person(), 0)
        await r.run(watched, "say 1")
        stopped = await away(r)
        turn = await r.prompt(stopped, "hang")
        await eventually(lambda: r.launcher.launched[-1].acked)
        for task in stopped.cancel():
            await task
        await asyncio.wait_for(turn.ended, 30)
        unwatched = await away(r)
        await r.run(unwatched, "say 1")
        await eventually(lambda: queued(r))
        found = await r.database.read("SELECT acp_session_id FROM acp_notices")
        assert found == [(unwatched.id,)]


async def test_turn_whose_end_was_shown_is_not_told(tmp_path: Path) -> None:
    """By the journal alone, after a restart."""
    async with rig(tmp_path) as r:
        async with telling(r, CHAT):
            pass
        seen, answered, unseen = [await away(r) for _ in range(3)]
        for session in (seen, answered, unseen):
            await r.run(session, "say 1")
        cursor = (
            "INSERT INTO acp_cursors (acp_session_id, client, instance, front, seq, updated_at)"
            " VALUES (?, 'editor', 'i', 'f', 1000, 1)"
        )
        response = "UPDATE acp_turns SET answered_at = 1 WHERE acp_session_id = ?"
        for sql, session in ((cursor, seen), (response, answered)):
            await write(r, sql, session.id)
        async with telling(r, CHAT):
            await eventually(lambda: notices(r))
            await r.run(unseen, "say 1")
            await eventually(lambda: _count(r, 2))
        found = await r.database.read("SELECT DISTINCT acp_session_id FROM acp_notices")
        assert found == [(unseen.id,)]


async def _count(r: Rig, count: int) -> Any:
    return len(await notices(r)) == count


async def test_conversation_is_not_told_of_its_own_turns(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        own, other = await away(r), await away(r)
        ((name,),) = await r.database.read(
            "SELECT conversation_name FROM acp_sessions WHERE acp_session_id = ?", (own.id,)
        )
        async with telling(r, DeliveryTarget(name, "acp"), CHAT):
            for session in (own, other):
                await r.run(session, "say 1")
            await eventually(lambda: _count(r, 2))
        told = sorted(row["conversation"] for row in await queued(r))
        assert told == sorted([name, CHAT.conversation, CHAT.conversation])


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The turns that are decided on from now on."""
    looks: list[str] = []
    ended_turn = SqlNoticeStore.ended_turn

    async def looking(store: SqlNoticeStore, turn_id: str) -> EndedTurn | None:
        looks.append(turn_id)
        return await ended_turn(store, turn_id)

    monkeypatch.setattr(SqlNoticeStore, "ended_turn", looking)
    return looks


async def test_decided_turn_is_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teller, "MARGIN", -1)
    looks = looked_at(monkeypatch)
    async with rig(tmp_path) as r:
        watched = await r.session()
        subscription = watched.subscribe(Person(), 0)
        async with telling(r, CHAT):
            (before,) = (await rows(r, "SELECT since_clock FROM acp_notify"))[0]
            await r.run(watched, "say 1")
            await eventually(
                lambda: rows(r, f"SELECT 1 FROM acp_notify WHERE since_clock > {before}")
            )
        assert len(looks) == 1
        subscription.close()
        async with telling(r, CHAT):
            await r.run(await away(r), "say 1")
            await eventually(lambda: notices(r))
            assert await _count(r, 1)


async def test_dead_worker_is_told_even_if_watched(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, telling(r, CHAT):
        session = await r.session()
        session.subscribe(Person(), 0)
        await r.run(session, "die")
        await eventually(lambda: queued(r))
        assert await r.database.read("SELECT kind FROM acp_notices") == [("worker_failed",)]


async def test_what_cannot_be_read_delays_no_other_notice(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, telling(r, CHAT) as one:
        session = await away(r)
        await write(
            r,
            "INSERT INTO acp_permissions (permission_id, acp_session_id, turn_id, tool_call_id, request, policy,"
            " created_at, position) VALUES ('damaged', ?, 't', 'c', '{\"cut', 'wait', 0, 1)",
            session.id,
        )
        one.request_waits("damaged")
        await r.run(session, "say 1")
        await eventually(lambda: notices(r))
        await write(r, "DELETE FROM acp_notices")
        await write(r, "UPDATE acp_turns SET error = '{\"cut'")
        one.turn_ended(*await r.states())
        await r.run(session, "say 1")
        await eventually(lambda: notices(r))
        assert await _count(r, 1)


async def test_damaged_request_delays_no_other_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged(_: SqlNoticeStore, ask_id: str) -> None:
        raise unavailable(DatabaseState.DAMAGED, ask_id)

    monkeypatch.setattr(SqlNoticeStore, "waiting_request", damaged)
    async with rig(tmp_path) as r, telling(r, CHAT) as one:
        for ask_id in ("damaged", "other"):
            one.request_waits(ask_id)
        await r.run(await away(r), "say 1")
        await eventually(lambda: notices(r), timeout=teller.RETRY / 2)


async def test_failing_notice_holds_up_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, telling(r, CHAT) as one:
        ended_turn, failed = SqlNoticeStore.ended_turn, asyncio.Event()

        async def fail(store: SqlNoticeStore, turn_id: str) -> Any:
            if turn_id == "odd":
                failed.set()
                raise RuntimeError("nobody has foreseen this")
            return await ended_turn(store, turn_id)

        monkeypatch.setattr(SqlNoticeStore, "ended_turn", fail)
        one.turn_ended("odd")
        await asyncio.wait_for(failed.wait(), 30)
        await r.run(await away(r), "say 1")
        await eventually(lambda: notices(r), timeout=teller.RETRY / 2)


async def test_end_before_notices_were_on_is_untold(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await away(r)
        await r.run(session, "say 1")
        async with telling(r, CHAT):
            await r.run(session, "say 1")
            await eventually(lambda: queued(r))
        await SqlNoticeStore(r.database).switch_off()
        await r.run(session, "say 1")
        async with telling(r, CHAT):
            await r.run(session, "say 1")
            await eventually(lambda: _count(r, 2))
        ended = await r.database.read("SELECT turn_id FROM acp_turns ORDER BY position")
        expected = {f"turn-{ended[1][0]}", f"turn-{ended[3][0]}"}
        assert set(await notices(r)) == expected


async def test_notice_that_waits_ends_with_the_setting(tmp_path: Path) -> None:
    """It is not told when the setting comes back, and goes as all others do."""
    one = writer(tmp_path / "tell")
    async with rig(tmp_path) as r:
        session, store = await away(r), SqlNoticeStore(r.database)
        async with telling(r, CommandTarget(("/nowhere",))):
            await r.run(session, "say 1")
            await eventually(lambda: notices(r))
        for _ in range(2):
            await store.switch_off()
            assert await r.database.read(WAITING) == []
        await r.database.commit(Unit((Statement("UPDATE acp_notices SET created_clock = -1e13"),)))
        await store.forget_old()
        assert await notices(r) == []
        async with telling(r, one):
            await r.run(session, "say 2")
            await eventually(lambda: told(tmp_path / "tell"))
        assert len(told(tmp_path / "tell")) == 1


async def test_end_dead_daemon_kept_is_told_by_next(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with telling(r, CHAT, grace=1000.0):
            await r.run(await away(r), "say 1")
        assert await notices(r) == []
        async with telling(r, CHAT):
            await eventually(lambda: queued(r))


async def test_end_behind_thousands_others_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        async with telling(r, CHAT, grace=1000.0):
            answered = await away(r)
            await r.run(answered, "say 1")
            await r.run(await away(r), "say 1")
        await write(r, "UPDATE acp_turns SET answered_at = 1 WHERE acp_session_id = ?", answered.id)
        names = "acp_session_id, origin, prompt, state, stop_reason, created_at, ended_clock, answered_at"
        await write(
            r,
            f"INSERT INTO acp_turns (turn_id, position, {names}) WITH n(n) AS"
            f" (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000) SELECT n, n + 10, {names}"
            " FROM acp_turns, n WHERE acp_session_id = ?",
            answered.id,
        )
        monkeypatch.setattr(teller, "MARGIN", -1)
        ((before,),) = await rows(r, "SELECT since_clock FROM acp_notify")
        async with telling(r, CHAT):
            await eventually(
                lambda: rows(r, f"SELECT 1 FROM acp_notify WHERE since_clock > {before}")
            )
        assert await _count(r, 1)


@pytest.mark.parametrize("mode", ["isolated", "group"])
async def test_failed_run_is_told_to_its_conversation(tmp_path: Path, mode: str) -> None:
    async with rig(tmp_path) as r, telling(r, CHAT), scheduling(r):
        path = r.database.path
        task(path, CHAT.conversation, "say 1", context_mode=mode)
        failing = task(path, CHAT.conversation, "die", context_mode=mode)
        await eventually(lambda: logs(path, failing))
        await eventually(lambda: notices(r))
        (row,) = [one for one in await queued(r) if one["task_id"] == "acp-notify"]
        assert row["conversation"] == CHAT.conversation
        assert f"failed in a scheduled task of {CHAT.conversation}" in row["message"]


# --- questions


async def test_waiting_question_is_told_with_its_answers(tmp_path: Path) -> None:
    async with asking.rig(tmp_path) as r, telling(r, CHAT):
        one = await asking.begin(r)
        one.ask("ask-1")
        await eventually(lambda: queued(r))
        (row,) = await queued(r)
        assert "pykoclaw-acp approve ask-1 --allow" in row["message"]
        assert await notices(r) == ["question-ask-1"]


async def test_question_that_somebody_is_asked_is_not_told(tmp_path: Path) -> None:
    async with asking.rig(tmp_path) as r, telling(r, CHAT):
        there = await asking.begin(r, Person())
        there.ask("ask-1")
        await there.asked("ask-1")
        alone = await asking.begin(r)
        alone.ask("ask-2")
        await eventually(lambda: queued(r))
        assert await notices(r) == ["question-ask-2"]


async def test_hanging_target_delays_no_other_one(tmp_path: Path) -> None:
    hangs, place = CommandTarget(("/bin/sleep", "1000")), tmp_path / "tell"
    async with rig(tmp_path) as r:
        for number in range(2 * AT_A_TIME):
            await write(
                r, "INSERT INTO acp_notices VALUES (?, 's', 'turn_ended', '{}', 0, 0)", number
            )
            await write(
                r,
                "INSERT INTO acp_notifications (notice_id, target, next_clock) VALUES (?, ?, 0)",
                *(number, hangs.key),
            )
        async with telling(r, hangs, writer(place)):
            await r.run(await away(r), "say 1")
            await eventually(lambda: told(place), timeout=30)


async def test_no_descriptors_for_one_target_interrupt_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, place, cannot = tmp_path / "go", tmp_path / "tell", CommandTarget(("/bin/true",))
    begun, tell = tmp_path / "begun", command.tell
    slow = writer(
        place,
        f"open({str(begun)!r}, 'a').write('x')",
        f"while not os.path.exists({str(goes_on)!r}): time.sleep(0.01)",
    )

    async def told_or_not(arguments: tuple[str, ...], body: bytes) -> None:
        if arguments == cannot.arguments:
            await eventually(begun.exists)
            raise OSError(errno.EMFILE, "Too many open files")
        await tell(arguments, body, 120)

    monkeypatch.setattr(command, "tell", told_or_not)
    async with rig(tmp_path) as r, telling(r, cannot, slow):
        await r.run(await away(r), "say 1")
        of_that = (
            f"SELECT reason FROM acp_notifications WHERE target = '{cannot.key}' AND attempts > 0"
        )
        await eventually(lambda: rows(r, of_that))
        goes_on.touch()
        await eventually(
            lambda: rows(r, "SELECT 1 FROM acp_notifications WHERE outcome = 'accepted'")
        )
        assert "Too many open files" in (await rows(r, of_that))[0][0]
        assert (begun.read_text(), len(told(place))) == ("x", 1)


async def test_target_that_refuses_is_tried_until_it_accepts(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FIRST_PAUSE", 0.01)
    receiver.statuses = [500, 500, 404, 200]
    async with rig(tmp_path) as r, telling(r, Webhook(receiver.url)):
        await r.run(await away(r), "say 1")
        await eventually(lambda: settled(r) if len(receiver.got) == 4 else False)
        found = await r.database.read("SELECT attempts, outcome FROM acp_notifications")
        assert found == [(4, "accepted")]
        assert len({headers["Pykoclaw-Notice"] for _, headers, _ in receiver.got}) == 1


async def test_refused_notice_is_tried_by_next_daemon(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.statuses = [500, 200]
    async with rig(tmp_path) as r:
        monkeypatch.setattr(sender, "FIRST_PAUSE", 0.5)
        async with telling(r, Webhook(receiver.url)):
            await r.run(await away(r), "say 1")
            await eventually(lambda: rows(r, "SELECT 1 FROM acp_notifications WHERE attempts = 1"))
        async with telling(r, Webhook(receiver.url)):
            await eventually(lambda: len(receiver.got) == 2)
            await eventually(lambda: settled(r))


async def test_target_that_never_accepts_is_given_up(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(sender, "GIVE_UP", 0.2)
    receiver.statuses = [500]
    async with rig(tmp_path) as r, telling(r, Webhook(receiver.url)):
        await r.run(await away(r), "say 1")
        await eventually(lambda: receiver.got)
        await eventually(lambda: settled(r))
        found = await r.database.read("SELECT outcome, reason FROM acp_notifications")
        assert found == [("given_up", "HTTP status 500")]


async def test_clock_days_ahead_loses_no_notice(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FIRST_PAUSE", 0.01)
    receiver.statuses = [500, 200]
    async with rig(tmp_path) as r:
        async with telling(r, CHAT):
            await r.run(await away(r), "say 1")
            await eventually(lambda: queued(r))
        await write(r, "UPDATE acp_notices SET created_at = created_at - 3 * 86400000")
        target = Webhook(receiver.url)
        due = "INSERT INTO acp_notifications (notice_id, target, next_clock) SELECT notice_id, ?, 0 FROM acp_notices"
        await write(r, due, target.key)
        async with telling(r, target):
            await eventually(lambda: settled(r))
        found = await r.database.read("SELECT attempts, outcome FROM acp_notifications")
        assert found == [(2, "accepted")]


async def test_settled_question_is_not_told_late(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FIRST_PAUSE", 0.5)
    receiver.statuses = [500]
    async with asking.rig(tmp_path) as r, telling(r, Webhook(receiver.url)):
        one = await asking.begin(r)
        one.ask("ask-1")
        await eventually(lambda: receiver.got)
        await one.session.permissions.decide("ask-1", Decision("selected", "reject_once", "cli"))
        await eventually(lambda: settled(r))
        assert await r.database.read("SELECT outcome FROM acp_notifications") == [("outdated",)]


async def test_removed_target_is_not_told(tmp_path: Path, receiver: Receiver) -> None:
    receiver.statuses = [500]
    async with rig(tmp_path) as r:
        async with telling(r, Webhook(receiver.url)):
            await r.run(await away(r), "say 1")
            await eventually(lambda: receiver.got)
        await write(r, "UPDATE acp_notifications SET next_clock = 0")
        async with telling(r, CHAT):
            await eventually(lambda: settled(r))
        assert await r.database.read("SELECT outcome FROM acp_notifications") == [("removed",)]


# --- notices that are over


async def test_deletion_takes_the_notices_of_its_session_along(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.statuses = [204, 500]
    async with rig(tmp_path) as r, telling(r, Webhook(receiver.url)):
        sessions = [await away(r) for _ in range(3)]
        for count, session in enumerate(sessions, 1):
            await r.run(session, "say 1")
            await eventually(partial(_attempted, r, count))
        for session in sessions[:2]:  # of one it was accepted, of the other it was not
            await r.sessions.delete(session)
        left = await r.database.read("SELECT acp_session_id FROM acp_notices")
        assert left == [(sessions[2].id,)]
        assert len(await rows(r, "SELECT 1 FROM acp_notifications")) == 1


async def _attempted(r: Rig, count: int) -> Any:
    return len(await rows(r, "SELECT 1 FROM acp_notifications WHERE attempts > 0")) == count


async def test_nobody_is_told_of_a_deleted_session(tmp_path: Path, receiver: Receiver) -> None:
    receiver.statuses = [500]
    async with rig(tmp_path) as r:
        async with telling(r, Webhook(receiver.url)):
            await r.run(await away(r), "say 1")
            await eventually(lambda: _attempted(r, 1))
        await write(r, "UPDATE acp_notifications SET next_clock = 0")
        await write(r, "UPDATE acp_sessions SET deleted_at = 1")  # its rows are still there
        async with telling(r, Webhook(receiver.url)):
            await eventually(lambda: settled(r))
        assert await r.database.read("SELECT outcome FROM acp_notifications") == [("removed",)]
        assert len(receiver.got) == 1


async def test_session_that_is_deleted_meanwhile_makes_no_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[bool] = []
    async with rig(tmp_path) as r, telling(r, CHAT):
        session, add = await away(r), SqlNoticeStore.add

        async def late(store: SqlNoticeStore, *given: Any) -> bool:
            await r.sessions.delete(session)
            decided.append(await add(store, *given))
            return decided[-1]

        monkeypatch.setattr(SqlNoticeStore, "add", late)
        await r.run(session, "say 1")
        await eventually(lambda: decided)
        assert (decided, await notices(r), await queued(r)) == ([False], [], [])


async def test_old_notices_are_forgotten_while_a_daemon_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_notices, "DAY", 0.05)
    async with rig(tmp_path) as r:
        forgetting = asyncio.create_task(server_notices.forget(r.database))
        now = r.database.clock.now()
        waits = (
            "INSERT INTO acp_notifications (notice_id, target, next_clock) VALUES ('waits', 't', 0)"
        )
        await write(r, waits)
        for name, days in (("young", 29), ("waits", 31), ("old", 31)):
            at = now - days * 24 * 3600 * 1000
            made = "INSERT INTO acp_notices VALUES (?, 's', 'question', '{}', 0, ?)"
            await write(r, made, name, at)
        await eventually(lambda: _left(r, "young", "waits"))
        forgetting.cancel()
        await asyncio.wait([forgetting])


async def test_question_waiting_for_month_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_notices, "DAY", 0.05)
    async with asking.rig(tmp_path) as r:
        one = await asking.begin(r)
        async with telling(r, CHAT):
            one.ask("ask-1")
            await eventually(lambda: queued(r))
        month_ago = r.database.clock.now() - 31 * 24 * 3600 * 1000
        await write(r, "UPDATE acp_notices SET created_clock = ?", month_ago)
        made = "INSERT INTO acp_notices VALUES ('old', 's', 'question', '{}', 0, ?)"
        await write(r, made, month_ago)
        forgetting = asyncio.create_task(server_notices.forget(r.database))
        await eventually(lambda: _left(r, "question-ask-1"))
        await one.session.permissions.decide("ask-1", Decision("selected", "reject_once", "cli"))
        await eventually(lambda: _left(r))
        forgetting.cancel()
        await asyncio.wait([forgetting])


async def _left(r: Rig, *names: str) -> Any:
    return sorted(await notices(r)) == sorted(names)


# --- quiet hours


class Quiet(QuietHours):
    """Over when the test says so."""

    over = False

    def left(self, now: datetime) -> float:
        return 0.0 if Quiet.over else 3600.0


async def test_quiet_hours_hold_everything_until_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "LONGEST_WAIT", 0.01)
    monkeypatch.setattr(Quiet, "over", False)
    monkeypatch.setattr(teller, "MARGIN", -1)
    looks, all_decided = looked_at(monkeypatch), "SELECT 1 FROM acp_notify WHERE since_clock > "
    async with rig(tmp_path) as r, telling(r, CHAT, quiet=Quiet(0, 1)):
        await r.run(await away(r), "say 1")
        late = await away(r)
        await r.run(late, "say 1")
        assert looks == []
        late.subscribe(Person(), 0)  # who comes in the night is not told in the morning
        assert await notices(r) == []
        now = r.database.clock.now()
        monkeypatch.setattr(Quiet, "over", True)
        await eventually(lambda: rows(r, f"{all_decided}{now}"))
        assert len(looks) == 2
        assert await _count(r, 1)


def test_grace_is_longer_than_away_policy_takes() -> None:
    assert teller.GRACE > AWAY_GRACE
