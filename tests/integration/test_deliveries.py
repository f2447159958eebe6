"""What other programs deliver to a conversation is shown once, in order, and between turns."""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.deliveries import LONGEST
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store.journal.deliveries import SqlDeliveryStore
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.units import Statement, Unit
from tests.databases import on_writer
from tests.integration.delivering import attached, delivering, name
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.queueing import enqueue, execute, fetch, status
from tests.integration.rig import Client, Rig, hanging, rig
from tests.waiting import eventually, within


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


async def settled(path: Path) -> None:
    """Wait until no delivery waits."""
    waiting = "SELECT id FROM delivery_queue WHERE status = 'pending'"
    await eventually(lambda: not fetch(path, waiting))


def _saw_once(client: Client, words: str) -> bool:
    return client.text.count(words) == 1


def order(text: str, *parts: str) -> list[int]:
    """Where the parts are, each once."""
    assert [text.count(part) for part in parts] == [1] * len(parts), text
    return [text.index(part) for part in parts]


async def test_delivery_is_shown_and_marked_at_once(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, delivering(r):
        session, client = await attached(r)
        delivery = enqueue(path, name(session), "The build is green.", task="12345678")
        await eventually(lambda: "The build is green." in client.text)
        assert "scheduled task 12345678" in client.text
        ((state, at),) = fetch(path, "SELECT status, delivered_at FROM delivery_queue")
        assert state == "delivered"
        assert at is not None
        (note,) = await SessionJournal(r.database).pending_notes(session.id)
        assert note.note_id == f"delivery-{delivery}"
        assert "The build is green." in note.text


async def test_deliveries_come_in_order_under_every_name(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        session, client = await attached(r)
        at = "2026-01-01T00:00:0{}+00:00".format
        enqueue(path, name(session), "fourth", at=at(3))
        enqueue(path, f"acp-{session.id}", "first", at=at(1))
        enqueue(path, session.id, "second", at=at(2))
        enqueue(path, session.id, "third", at=at(2), prefix=session.id.partition("-")[0])
        async with delivering(r):
            await settled(path)
            await eventually(lambda: "fourth" in client.text)
        places = order(client.text, "first", "second", "third", "fourth")
        assert places == sorted(places)


async def test_delivery_comes_between_running_turn_and_next(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, delivering(r):
        session, first, channel = await hanging(r)
        client = Client()
        session.subscribe(client, 0)
        second = await r.prompt(session, "say 2")
        delivery = enqueue(path, name(session), "news")
        channel.say(channel.event(first.turn_id, "still at it"))
        assert not await within(lambda: status(path, delivery) != "pending", 1)
        channel.say(channel.ended(first.turn_id))
        await asyncio.wait_for(second.ended, 30)
        await eventually(lambda: client.shown[-1].seq == session.last_seq)
        turns = [one.turn_id for one in client.shown]
        assert turns == sorted(turns, key=[first.turn_id, None, second.turn_id].index)
        assert client.text.count("news") == 1


async def waiting(r: Rig, path: Path) -> tuple[Session, Client, MemoryChannel, str]:
    """A delivery that waits for a turn that Claude began: session, client, worker, its id."""
    session, client = await attached(r)
    await r.run(session, "say 1")
    channel = r.launcher.launched[0]
    channel.say(channel.started("own", background=True), channel.event("own", "By the way"))
    await eventually(lambda: "By the way" in client.text)
    delivery = enqueue(path, name(session), "news")
    assert not await within(lambda: status(path, delivery) != "pending", 1)
    return session, client, channel, delivery


async def test_delivery_waits_for_turn_that_claude_began(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, delivering(r):
        _, client, channel, _ = await waiting(r, path)
        channel.say(channel.ended("own"))
        await eventually(lambda: "news" in client.text)


async def test_prompt_does_not_wait_with_delivery(tmp_path: Path, path: Path) -> None:
    """For a turn that Claude began, which may last as long as a person does not answer."""
    async with rig(tmp_path) as r, delivering(r):
        session, client, channel, delivery = await waiting(r, path)
        turn = await r.prompt(session, "say 2")
        await eventually(lambda: len(channel.prompts) == 2)
        assert status(path, delivery) == "pending"
        channel.say(channel.ended("own"))
        await asyncio.wait_for(turn.ended, 30)
        await eventually(lambda: "news" in client.text)


async def test_unattended_session_shows_delivery_at_next_load(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, delivering(r):
        closed, forgotten = await r.session(), await r.session()
        await r.sessions.close(closed)
        r.sessions.live.forget(-1, r.pool)
        assert not r.sessions.live
        for session in (closed, forgotten):
            enqueue(path, name(session), "news")
        await settled(path)
        for session in (closed, forgotten):
            client = Client()
            (await r.sessions.get(session.id)).subscribe(client, 0)
            await eventually(partial(_saw_once, client, "news"))
        assert (await r.sessions.get(closed.id)).record.closed


async def test_deliveries_wait_until_unknown_conversation_is_known(
    tmp_path: Path, path: Path
) -> None:
    async with rig(tmp_path) as r, delivering(r):
        early = enqueue(path, "acp-unknown", "early")
        whatsapp = enqueue(path, "wa-andy-1@g.us", "not ours", prefix="wa")
        session, client = await attached(r)
        enqueue(path, name(session), "mine")
        await eventually(lambda: "mine" in client.text)
        assert status(path, early) == "pending"
        await r.database.commit(
            _renamed(session.id, "acp-unknown")
        )  # as when its conversation is found
        r.sessions.deliveries_wanted.set()
        await eventually(lambda: "early" in client.text)
        assert status(path, whatsapp) == "pending"
        assert "not ours" not in client.text


def _renamed(session_id: str, wanted: str) -> Unit:
    change = "UPDATE acp_sessions SET conversation_name = ? WHERE acp_session_id = ?"
    return Unit((Statement(change, (wanted, session_id), rows=1),))


async def test_delivery_for_deleted_session_fails_with_a_reason(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, delivering(r):
        session = await r.session()
        await r.sessions.delete(session)
        delivery = enqueue(path, name(session), "too late")
        await eventually(lambda: status(path, delivery) == "failed")
        ((reason,),) = fetch(path, "SELECT reason FROM acp_deliveries")
        assert "deleted" in reason


@pytest.mark.parametrize("message", ["", " \n "])
async def test_empty_message_is_delivered_and_shows_nothing(
    tmp_path: Path, path: Path, message: str
) -> None:
    async with rig(tmp_path) as r, delivering(r):
        session, client = await attached(r)
        enqueue(path, name(session), message)
        last = enqueue(path, name(session), "words")
        await eventually(lambda: status(path, last) == "delivered")
        await eventually(lambda: "words" in client.text)
        assert len(client.shown) == 1
        assert fetch(path, "SELECT COUNT(*) FROM acp_notes") == [(1,)]
        assert fetch(path, "SELECT DISTINCT status FROM delivery_queue") == [("delivered",)]


async def test_unwritable_delivery_fails_and_lets_next_pass(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pykoclaw_acp.sessions.deliveries.PAUSE", 0.0)
    async with rig(tmp_path) as r, delivering(r):
        session, client = await attached(r)
        execute(
            path,
            "CREATE TRIGGER poison BEFORE INSERT ON acp_log WHEN NEW.payload LIKE '%poison%'"
            " BEGIN SELECT RAISE(ABORT, 'not this one'); END",
        )
        bad = enqueue(path, name(session), "poison")
        good = enqueue(path, name(session), "good news")
        await eventually(lambda: status(path, good) == "delivered")
        assert status(path, bad) == "failed"
        ((attempts, reason),) = fetch(path, "SELECT attempts, reason FROM acp_deliveries")
        assert (attempts > 2, reason) == (True, "not this one")
        await eventually(lambda: "good news" in client.text)
        assert "poison" not in client.text


async def test_odd_messages_are_shown_as_far_as_possible(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, delivering(r):
        session, client = await attached(r)
        odd = enqueue(path, name(session), "odd")
        execute(
            path,
            "INSERT INTO delivery_queue (id, task_id, conversation, channel_prefix, message, created_at)"
            " VALUES ('bytes', 't', ?, 'acp', CAST(X'66FF6F' AS TEXT), '2030')",
            name(session),
        )
        enqueue(path, name(session), b"a blob", at="2031")
        long = enqueue(path, name(session), "x" * (LONGEST + 7), at="2032")
        await settled(path)
        await eventually(lambda: "Cut: the message has" in client.text)
        assert "f\N{REPLACEMENT CHARACTER}o" in client.text
        assert "a blob" in client.text
        assert client.text.count("x") < LONGEST + 100
        assert f"{LONGEST + 7:,} characters" in client.text
        assert {status(path, one) for one in (odd, long)} == {"delivered"}


async def test_delivery_shows_once_locked_store_is_free(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, delivering(r):
        session, client = await attached(r)
        with closing(sqlite3.connect(path)) as other:
            other.execute(
                "INSERT INTO delivery_queue (id, task_id, conversation, channel_prefix, message, created_at)"
                " VALUES ('d', 't', ?, 'acp', 'news', '2030')",
                (name(session),),
            )
            other.commit()
            other.execute("UPDATE delivery_queue SET task_id = 'u'")  # holds the lock
            await asyncio.wait_for(r.database.condition.in_trouble(), 30)
            assert "news" not in client.text
            other.commit()
        await settled(path)
        await eventually(lambda: client.text.count("news") == 1)
        assert [one.seq for one in client.shown] == [1]


async def test_delivery_during_blocked_store_reaches_clients_once(
    tmp_path: Path, path: Path
) -> None:
    async with rig(tmp_path) as r, delivering(r):
        session, client = await attached(r)
        other = Client()
        session.subscribe(other, 0)
        await on_writer(r.database, _fill)
        delivery = enqueue(path, name(session), "news" + "x" * 100_000)  # more than a free page
        await asyncio.wait_for(r.database.condition.in_trouble(), 60)
        assert r.database.condition.state == "blocked"
        assert status(path, delivery) == "pending"
        assert client.shown == other.shown == []
        await on_writer(r.database, _make_room)
        await settled(path)
        for one in (client, other):
            await eventually(partial(_saw_once, one, "news"))
        assert [one.seq for one in client.shown] == [one.seq for one in other.shown] == [1]


def _fill(connection: sqlite3.Connection) -> None:
    """Let the database grow no more, as on a full disk."""
    ((pages,),) = connection.execute("PRAGMA page_count")
    connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()


def _make_room(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA max_page_count = 1000000").fetchall()


async def test_delivery_to_evicted_session_starts_no_worker(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path, idle_timeout=0.05) as r, delivering(r):
        session, client = await attached(r)
        other = Client()
        session.subscribe(other, 0)
        await r.run(session, "say 1")
        await eventually(lambda: not r.launcher.live)
        for words in ("first", "second"):
            enqueue(path, name(session), words)
        await settled(path)
        late = Client()
        (await r.sessions.get(session.id)).subscribe(late, 0)
        for one in (client, other, late):
            await eventually(partial(_saw_once, one, "second"))
            assert order(one.text, "first", "second") == sorted(order(one.text, "first", "second"))
        assert len(r.launcher.launched) == 1


async def test_row_that_another_program_marks_is_not_shown(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        session, client = await attached(r)
        store = SqlDeliveryStore(r.database)
        delivery = await store.delivery(enqueue(path, name(session), "taken"))
        assert delivery is not None
        execute(path, "UPDATE delivery_queue SET status = 'delivered'")
        with pytest.raises(Conflict):
            await session.receive(delivery, store)
        assert session.last_seq == 0
        assert client.shown == []


async def test_session_that_got_a_delivery_is_not_pruned(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, delivering(r):
        session = await r.session()
        enqueue(path, name(session), "news")
        await settled(path)
        journal = SessionJournal(r.database)
        assert await journal.unused(journal.clock.now() + 1000) == []


async def test_rows_that_are_not_utf8_let_others_pass(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        session, client = await attached(r)
        enqueue(path, name(session), "unnamed")
        execute(path, "UPDATE delivery_queue SET id = CAST(x'ff41' AS TEXT)")
        odd = enqueue(path, name(session), "odd time")
        execute(
            path, "UPDATE delivery_queue SET created_at = CAST(x'ff41' AS TEXT) WHERE id = ?", odd
        )
        good = enqueue(path, name(session), "good news")
        async with delivering(r):
            await eventually(lambda: status(path, good) == "delivered")
            await eventually(lambda: status(path, odd) == "delivered")
            await eventually(lambda: "odd time" in client.text and "good news" in client.text)
            await eventually(lambda: client.text.count("unnamed") == 1)
        assert fetch(path, "SELECT id FROM delivery_queue WHERE status = 'pending'") == []


async def test_rows_without_id_are_shown_and_marked(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r:
        session, client = await attached(r)
        for stored in ("NULL", "NULL", "x'616263'", "x'ff'"):
            enqueue(path, name(session), f"with {stored}", at="2026-01-01T00:00:00+00:00")
            newest = "(SELECT MAX(rowid) FROM delivery_queue)"
            execute(path, f"UPDATE delivery_queue SET id = {stored} WHERE rowid = {newest}")
        enqueue(path, "wa-elsewhere", "of others", prefix="wa")
        execute(path, "UPDATE delivery_queue SET id = NULL WHERE channel_prefix = 'wa'")
        async with delivering(r):
            await eventually(lambda: client.text.count("with ") == 4)
            for stored, times in (("NULL", 2), ("x'616263'", 1), ("x'ff'", 1)):
                assert client.text.count(f"with {stored}") == times
        ends = fetch(path, "SELECT status, typeof(id) FROM delivery_queue ORDER BY rowid")
        assert ends == [("delivered", "text")] * 4 + [("pending", "null")]


async def test_text_after_nul_shows_and_cuts_are_said(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, delivering(r):
        session, client = await attached(r)
        enqueue(path, name(session), "BEFORE\0AFTER")
        enqueue(path, name(session), "START\0" + "\U0001f600" * (LONGEST + 5) + "END")
        await settled(path)
        await eventually(lambda: "(Cut: the message has " in client.text)
        assert client.text.count("BEFORE") == client.text.count("AFTER") == 1
        assert "START" in client.text
        assert "END" not in client.text


async def test_result_is_named_by_its_task(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, delivering(r):
        session, client = await attached(r)
        execute(
            path,
            "INSERT INTO scheduled_tasks (id, conversation, prompt, schedule_type, schedule_value, created_at)"
            " VALUES ('0414c1c7', ?, ?, 'once', 'never', '2026')",
            "wa-other",
            "Look at\nthe backups" + " of everything" * 20,
        )
        enqueue(path, name(session), "All is well.", task="0414c1c7")
        await eventually(lambda: "All is well." in client.text)
        assert "task “Look at the backups of everything" in client.text
        assert "0414c1c7" not in client.text
