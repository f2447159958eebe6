"""Several sessions of one conversation become one: logs, cursors, turns, questions, and the ids
that lead there.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import pykoclaw_acp
from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.frames import EventFrame, FromWorker, TurnEnded
from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.errors import StaleEpoch
from pykoclaw_acp.model.cursors import Cursor, CursorChange
from pykoclaw_acp.model.events import Event, Text, TitleChanged
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.protocol.control.rules import RemoveRuleParams
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import (
    conversations,
    cursors,
    deletion,
    events,
    merging,
    notes,
    overview,
    pieces,
    rules,
    summaries,
)
from pykoclaw_acp.store.conversion import Conversion
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.units import EndOfTurn
from pykoclaw_acp.store.workers import SqlWorkerStore
from pykoclaw_acp.system import processes
from tests.integration.adopting import daemon, killed
from tests.integration.callers import rule_control
from tests.integration.linked import INITIALIZE, Front, front
from tests.integration.linked import words as prompt
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Client, Rig, hanging, rig
from tests.statements import Statements, watched
from tests.waiting import eventually

ONE: Final = "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
TWO: Final = "22222222-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
THREE: Final = "33333333-cccc-4ccc-8ccc-cccccccccccc"

FORMS: Final = pytest.mark.parametrize(
    "old_until", [0, 35, 100], ids=["new rows", "both", "old rows"]
)


@pytest.fixture(autouse=True)
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    return watched(monkeypatch)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(tmp_path / "pykoclaw.db")
    yield opened
    await opened.close()


async def make(
    database: Database, session_id: str, name: str = "acp-11111111", **more: Any
) -> None:
    """A session as an adopted table has it."""
    columns = {
        "acp_session_id": session_id,
        "conversation_name": name,
        "cwd": "/",
        "created_at": 1,
        "updated_at": 1,
    }
    columns |= more
    names, places = ", ".join(columns), ", ".join("?" * len(columns))
    row = Statement(
        f"INSERT INTO acp_sessions ({names}) VALUES ({places})", tuple(columns.values())
    )
    await database.commit(Unit(statements=(row,)))


async def say(
    database: Database,
    session_id: str,
    at: int,
    turn: str | None,
    *said: str | Event,
    old: bool = False,
) -> None:
    """Events of a turn that began `at`, or of none; `old`: as the version before wrote them."""
    if turn is not None:
        row = Statement(
            "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at, position)"
            " SELECT ?, ?, 'client', '[]', 'done', ?, CASE WHEN ? = 1 THEN NULL ELSE"
            " (SELECT COALESCE(MAX(position), COUNT(*)) + 1 FROM acp_turns WHERE acp_session_id = ?) END"
            " WHERE TRUE ON CONFLICT DO NOTHING",
            (turn, session_id, at, int(old), session_id),
        )
        await database.commit(Unit(statements=(row,)))
    told = [Text("m", one) if isinstance(one, str) else one for one in said]
    if not old:
        ends = () if turn is None else (EndOfTurn(session_id, turn),)
        await database.commit(Unit(events=events.rows(session_id, turn, told), ends=ends))
        return
    for one in events.rows(session_id, turn, told):
        next_one = Statement(
            "UPDATE acp_sessions SET last_seq = last_seq + 1 WHERE acp_session_id = ?",
            (session_id,),
        )
        event = Statement(
            "INSERT INTO acp_events SELECT acp_session_id, last_seq, ?, ?, ?, NULL, ? FROM acp_sessions"
            " WHERE acp_session_id = ?",
            (turn, one.kind, one.payload, at, session_id),
        )
        await database.commit(Unit(statements=(next_one, event)))


async def two_logs(database: Database, old_until: int = 0) -> None:
    """Two sessions that took turns: a1 b1 a2 (with a title in it that is of no turn) b2; an upgrade
    at `old_until`.
    """
    await make(database, ONE)
    await make(database, TWO, title="older", updated_at=5)
    for session_id, at, turn, *said in (
        (ONE, 10, "a1", "a1 ", "a1 "),
        (TWO, 20, "b1", "b1 "),
        (ONE, 30, "a2", "a2 "),
        (ONE, 31, None, TitleChanged("title")),
        (TWO, 40, "b2", "b2 "),
        (ONE, 50, "a2", "a2! "),  # while b2 went on already
        (TWO, 60, "b2", "b2! "),
    ):
        await say(database, session_id, at, turn, *said, old=at <= old_until)


async def confirm(database: Database, session_id: str, client: str, seq: int) -> None:
    """A client of the version before has seen the session up to there."""
    place = CursorChange(session_id, client, "", "", Cursor("", "", seq, least=seq), whole=True)
    await database.commit(Unit(statements=(cursors.change(place),)))


async def log(database: Database, session_id: str) -> list[Logged]:
    return await events.read(database, session_id, 0, 1000)


def words(logged: Sequence[Logged]) -> str:
    return "".join(one.event.text if isinstance(one.event, Text) else "- " for one in logged)


@FORMS
async def test_logs_merge_in_turn_order_without_gaps(database: Database, old_until: int) -> None:
    await two_logs(database, old_until)
    assert await conversations.unite(database, kept=())
    merged = await log(database, ONE)
    assert words(merged) == "a1 a1 b1 a2 - a2! b2 b2! "
    assert await log(database, TWO) == []
    assert await database.read("SELECT 1 FROM acp_events") == []
    ends = [one.seq for one in merged]
    assert [one.seq - one.count for one in merged][1:] == ends[:-1]
    assert sum(one.count for one in merged) == 8
    first = merged[0].seq - merged[0].count + 1
    assert first > 5  # behind every place that was ever given out
    record = await SessionJournal(database).find(TWO)
    assert record is not None
    assert (record.session_id, record.last_seq, record.pruned_upto) == (
        ONE,
        merged[-1].seq,
        first - 1,
    )
    rows = await database.read("SELECT acp_session_id, turn_id FROM acp_turns ORDER BY position")
    assert rows == [(ONE, turn) for turn in ("a1", "b1", "a2", "b2")]
    told = [(one.turn_id, one.event.text) for one in merged if isinstance(one.event, Text)]
    assert all(text.startswith(turn_id or "?") for turn_id, text in told)
    await SessionJournal(database).append(ONE, [Text("m", "next")])
    assert (await log(database, ONE))[-1].seq == merged[-1].seq + 1
    assert not await conversations.unite(database, kept=())


@FORMS
async def test_each_old_seq_leads_to_its_event(database: Database, old_until: int) -> None:
    await two_logs(database, old_until)
    before = {session_id: await log(database, session_id) for session_id in (ONE, TWO)}
    for session_id, logged in before.items():
        for one in logged:
            name = f"client-{one.seq}"
            await confirm(database, session_id, name, one.seq)
    await conversations.unite(database, kept=())
    for session_id, logged in before.items():
        for one in logged:
            moved = await merging.moved(database, session_id, one.seq)
            found = (await events.read(database, ONE, moved - one.count, 1))[0]
            assert found.seq - found.count == moved - one.count
            assert found.event == one.event or (
                isinstance(found.event, Text)
                and isinstance(one.event, Text)
                and found.event.text.startswith(one.event.text)
            )
            (cursor,) = await cursors.of(database, session_id, f"client-{one.seq}")
            assert (cursor.seq, cursor.least) == (moved, moved)
        assert await merging.moved(database, session_id, 1000) == moved


async def test_delivery_of_merged_log_is_not_given_again(database: Database) -> None:
    """By a fork from a place above it: old seqs say nothing of places in the merged log."""
    await two_logs(database)
    for session_id in (ONE, TWO):
        note = notes.add(session_id, f"delivery-{session_id}", "News.")
        await database.commit(Unit(statements=(note,)))
    await conversations.unite(database, kept=())
    first = (await log(database, ONE))[0].seq
    await database.commit(Unit(statements=(notes.copy_delivered(ONE, THREE, first),)))
    assert len(await notes.pending(database, ONE)) == 2
    assert await notes.pending(database, THREE) == []


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch, statements: Statements) -> list[int]:
    """The number of rows that each transaction changed; pieces have 50 rows at most."""
    monkeypatch.setattr(pieces, "SMALLEST", 10)
    monkeypatch.setattr(pieces, "LARGEST", 50)
    begun, counts = 0, list[int]()

    def counting(connection: sqlite3.Connection, sql: str, _: object) -> None:
        nonlocal begun
        if sql == "BEGIN IMMEDIATE":
            begun = connection.total_changes
        elif sql in ("COMMIT", "ROLLBACK"):
            counts.append(connection.total_changes - begun)

    statements.before = counting
    return counts


async def long_logs(database: Database, *, old: bool = False) -> None:
    """Two logs of 150 turns each, which took turns, with questions that were settled."""
    for session_id, begin in ((ONE, 0), (TWO, 1)):
        await make(database, session_id)
        for at in range(begin, 300, 2):
            said = [Text(f"{at} {number}", f"{at} ") for number in range(3)]
            await say(database, session_id, at + 1, f"turn {at}", *said, old=old)
            asked = Statement(
                "INSERT INTO acp_permissions (permission_id, acp_session_id, request, policy, outcome, created_at)"
                " VALUES (?, ?, '{}', 'attended', 'selected', 1)",
                (f"q{at}", session_id),
            )
            await database.commit(Unit(statements=(asked,)))


@pytest.mark.parametrize("old", [False, True])
async def test_no_transaction_of_a_merge_changes_many_rows(
    database: Database, changed: list[int], old: bool
) -> None:
    await long_logs(database, old=old)
    changed.clear()
    await conversations.unite(database, kept=())
    assert words(await log(database, ONE)) == "".join(f"{at} " * 3 for at in range(300))
    assert await database.read("SELECT DISTINCT acp_session_id FROM acp_permissions") == [(ONE,)]
    await deletion.purge(database)
    assert sum(changed) > 1800
    assert max(changed) <= 120


async def test_no_transaction_of_a_deletion_changes_many_rows(
    database: Database, changed: list[int]
) -> None:
    await long_logs(database)
    changed.clear()
    await deletion.delete(database, ONE)
    journal = SessionJournal(database)
    assert await database.read("SELECT DISTINCT acp_session_id FROM acp_turns") == [(TWO,)]
    assert await journal.prune(TWO, 1)
    for table in ("acp_log", "acp_turns", "acp_permissions", "acp_log_leftovers"):
        assert await database.read(f"SELECT 1 FROM {table}") == [], table
    assert await database.commit(Unit(events=events.rows(TWO, None, [Text("m", "x")]))) == [451]
    assert sum(changed) > 1500
    assert max(changed) <= 50


async def test_old_turns_are_numbered_piecewise_in_order(
    database: Database, changed: list[int]
) -> None:
    await make(database, ONE)
    for at in range(120):
        await say(database, ONE, at + 1, f"turn {at:03}", "x ", old=True)
    queued = Statement(
        "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at, position)"
        " VALUES ('next', ?, 'client', '[]', 'queued', 1, 121)",
        (ONE,),
    )
    await database.commit(Unit(statements=(queued,)))
    changed.clear()
    await Conversion(database, lambda: True).run()
    rows = await database.read("SELECT turn_id, position FROM acp_turns ORDER BY position")
    assert rows == [*((f"turn {at:03}", at + 1) for at in range(120)), ("next", 121)]
    assert max(changed) < 170  # a piece of 50 events, of a turn each


async def test_single_log_is_not_changed(database: Database) -> None:
    await make(database, ONE)
    await make(database, TWO)
    await make(database, THREE)
    await say(database, TWO, 10, "b1", "b1 ", "b1 ")
    before = await log(database, TWO)
    await conversations.unite(database, kept=())
    assert [(one.seq, one.event) for one in await log(database, TWO)] == [
        (one.seq, one.event) for one in before
    ]
    record = await SessionJournal(database).find(THREE)
    assert record is not None
    assert record.session_id == TWO
    assert await merging.moved(database, TWO, 1) == 1


async def test_three_logs_and_one_whose_worker_goes_on(database: Database) -> None:
    for session_id in (ONE, TWO, THREE):
        await make(database, session_id)
    for at, (session_id, turn) in enumerate(
        [(THREE, "c1"), (ONE, "a1"), (TWO, "b1"), (THREE, "c2"), (ONE, "a2")]
    ):
        await say(database, session_id, at, turn, f"{turn} ")
    await conversations.unite(database, kept=[TWO])
    assert words(await log(database, TWO)) == "c1 a1 b1 c2 a2 "
    for session_id in (ONE, TWO, THREE):
        record = await SessionJournal(database).find(session_id)
        assert record is not None
        assert record.session_id == TWO


async def test_clock_jump_does_not_reorder_any_log(database: Database) -> None:
    await make(database, ONE)
    await make(database, TWO)
    for at, turn in ((50, "a1"), (10, "a2"), (60, "a3")):
        await say(database, ONE, at, turn, f"{turn} ")
    await say(database, TWO, 20, "b1", "b1 ")
    await conversations.unite(database, kept=())
    assert [word for word in words(await log(database, ONE)).split() if word[0] == "a"] == [
        "a1",
        "a2",
        "a3",
    ]


async def test_the_conversation_is_what_its_ids_said_last(database: Database) -> None:
    await make(database, ONE, cwd=None, title="first", mode="plan", updated_at=3, closed_at=1)
    await make(
        database,
        TWO,
        cwd="/work",
        title="second",
        model="opus",
        updated_at=9,
        prompted_at=4,
        auxiliary=1,
    )
    await make(database, THREE, updated_at=1, prompted_at=7, cwd="/other")
    await conversations.unite(database, kept=())
    record = await SessionJournal(database).find(TWO)
    assert record is not None
    said = (
        record.session_id,
        record.cwd,
        record.title,
        record.mode,
        record.model,
        record.closed,
        record.auxiliary,
    )
    assert said == (ONE, "/work", "second", "plan", "opus", False, False)


async def test_questions_and_keys_are_the_conversations(database: Database) -> None:
    await make(database, ONE)
    await make(database, TWO)
    for session_id, turn in ((ONE, "a"), (TWO, "b"), (TWO, "c")):
        row = Statement(
            "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at, idempotency_key)"
            " VALUES (?, ?, 'client', '[]', 'queued', 1, ?)",
            (turn, session_id, "key" if turn != "c" else "other"),
        )
        asked = Statement(
            "INSERT INTO acp_permissions (permission_id, acp_session_id, request, policy, created_at)"
            " VALUES (?, ?, '{}', 'parked', 1)",
            (turn, session_id),
        )
        await database.commit(Unit(statements=(row, asked)))
    await conversations.unite(database, kept=())
    rows = await database.read(
        "SELECT turn_id, acp_session_id, idempotency_key FROM acp_turns ORDER BY 1"
    )
    assert rows == [("a", ONE, "key"), ("b", ONE, None), ("c", ONE, "other")]
    assert await database.read("SELECT DISTINCT acp_session_id FROM acp_permissions") == [(ONE,)]


async def test_rules_of_each_id_hold_in_the_conversation(database: Database) -> None:
    granted = [
        (ONE, "Bash(make)", "one", 1),
        (TWO, "Bash(make)", "two", 2),
        (TWO, "Bash(ls)", "", 3),
    ]
    for session_id in (ONE, TWO, THREE):
        await make(database, session_id, name="other" if session_id == THREE else "acp-11111111")
        await say(database, session_id, 1, session_id[:1], "said ")
    for row in (*granted, (THREE, "Bash(id)", "", 4)):
        insert = Statement("INSERT INTO acp_session_rules VALUES (?, ?, ?, ?)", row)
        await database.commit(Unit(statements=(insert,)))
    await conversations.unite(database, kept=[ONE])
    rows = await database.read("SELECT * FROM acp_session_rules ORDER BY 1, 4")
    assert rows == [granted[0], (ONE, "Bash(ls)", "", 3), (THREE, "Bash(id)", "", 4)]
    assert await rules.of(database, "/", ONE) == ("Bash(ls)", "Bash(make)")


async def test_acked_frames_of_other_worker_are_not_inherited(
    database: Database,
) -> None:
    await make(database, ONE, epoch=1)
    await make(database, TWO, epoch=1)
    row = Statement(
        "INSERT INTO acp_workers (acp_session_id, epoch, pid, start_time, boot_id, socket, protocol, created_at)"
        " VALUES (?, 1, 1, 1, 'boot', '/runtime/sockets/x', 1, 1)",
        (ONE,),
    )
    await database.commit(Unit(statements=(row,)))
    for session_id, number in ((ONE, 3), (TWO, 9)):
        await say(database, session_id, number, session_id[:1], "begun ")
        frame = EventFrame(epoch=1, n=number, turn_id=session_id[:1], event=Text("m", "told "))
        await SessionJournal(database).record(session_id, 1, [frame], {})
    await conversations.unite(database, kept=[ONE])
    assert [row.acked_frame for row in await SqlWorkerStore(database).rows()] == [3]


async def test_other_conversations_and_deleted_sessions_are_left_alone(database: Database) -> None:
    await make(database, ONE)
    await make(database, TWO, deleted_at=5)
    await make(database, THREE, name="acp-33333333")
    assert not await conversations.unite(database, kept=())
    journal = SessionJournal(database)
    assert await journal.find(TWO) is None
    found = await journal.find(THREE)
    assert found is not None
    assert found.session_id == THREE


async def shown(database: Database) -> list[list[Any]]:
    """All that anybody is told of the two sessions."""
    tables = ("acp_sessions", "acp_turns", "acp_cursors", "acp_merged_logs")
    rows = [await database.read(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]
    return [*rows, await log(database, ONE), await log(database, TWO)]


async def require_merged(database: Database) -> None:
    """The merge is complete, and has left nothing behind."""
    merged = await log(database, ONE)
    assert words(merged) == "a1 a1 b1 a2 - a2! b2 b2! "
    told = [(one.turn_id, one.event.text) for one in merged if isinstance(one.event, Text)]
    assert all(text.startswith(turn_id or "?") for turn_id, text in told)
    rows = await database.read("SELECT acp_session_id, turn_id FROM acp_turns ORDER BY position")
    assert rows == [(ONE, turn) for turn in ("a1", "b1", "a2", "b2")]
    places = [await merging.moved(database, TWO, seq) for seq in (1, 2, 3)]
    told_there = [(await events.read(database, ONE, place - 1, 1))[0].event for place in places]
    assert [one.text.split()[0] for one in told_there if isinstance(one, Text)] == [
        "b1",
        "b2",
        "b2!",
    ]
    (cursor,) = await cursors.of(database, TWO, "client")
    assert cursor.seq == places[1]
    await deletion.purge(database)
    for table in ("acp_log_leftovers", "acp_merging_runs", "acp_merging_turns"):
        assert await database.read(f"SELECT * FROM {table}") == [], table
    assert len(await database.read("SELECT DISTINCT log_key FROM acp_log")) == 1


@pytest.mark.long
@pytest.mark.parametrize("piece", [1, 1000])
async def test_merge_failing_at_any_statement_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: Statements, piece: int
) -> None:
    """What a kill at that statement leaves: its transaction is rolled back."""
    monkeypatch.setattr(pieces, "SMALLEST", piece)
    monkeypatch.setattr(pieces, "LARGEST", piece)
    left = itertools.count()

    def breaking(_: sqlite3.Connection, sql: str, __: object) -> None:
        if sql.startswith(("INSERT", "UPDATE", "DELETE")) and next(left) == at:
            raise sqlite3.OperationalError("disk I/O error")

    for at in itertools.count():
        path = tmp_path / f"{at}.db"
        database = await Database.open(path)
        try:
            await two_logs(database, old_until=35)
            await confirm(database, TWO, "client", 2)
            await Conversion(database, lambda: True).run()
            before = await shown(database)
            left = itertools.count()
            statements.before = breaking
            try:
                await conversations.unite(database, kept=())
            except sqlite3.OperationalError:
                failed = True
            else:
                failed = False
            statements.before = lambda *_: None
            if failed:
                if not await conversations.aliases(database):
                    assert await shown(database) == before
                await conversations.finish(database)
                await conversations.unite(database, kept=())
            await require_merged(database)
        finally:
            await database.close()
        if not failed:
            assert at > 10
            return


UNITE = """
import asyncio, pathlib, sys
from pykoclaw_acp import crash_points
from pykoclaw_acp.store import conversations, pieces
from pykoclaw_acp.store.database import Database
async def main():
    database = await Database.open(pathlib.Path(sys.argv[1]))
    pieces.LARGEST = pieces.SMALLEST = 1
    crash_points.arm(sys.argv[2])
    await conversations.finish(database)
    await conversations.unite(database, kept=())
    await database.close()
asyncio.run(main())
"""


@pytest.mark.long
@pytest.mark.parametrize("step", crash_points.MERGING)
async def test_each_start_after_a_kill_continues_the_merge(tmp_path: Path, step: str) -> None:
    path = tmp_path / "pykoclaw.db"
    database = await Database.open(path)
    await two_logs(database)
    await confirm(database, TWO, "client", 2)
    await database.close()
    root = os.fspath(Path(pykoclaw_acp.__file__).parents[1])
    codes = [0]
    for _ in range(20):
        done = await asyncio.create_subprocess_exec(
            sys.executable, "-c", UNITE, os.fspath(path), step,
            env={**os.environ, "PYTHONPATH": root}, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        codes.append(await done.wait())
        if codes[-1] == 0:
            break
        assert codes[-1] == -signal.SIGKILL
    assert codes[-1] == 0, "each start does a part"
    assert len(codes) > 2
    database = await Database.open(path)
    try:
        await require_merged(database)
    finally:
        await database.close()


async def test_interrupted_merge_begins_anew_if_a_log_grew(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "SMALLEST", 1)
    monkeypatch.setattr(pieces, "LARGEST", 1)
    await two_logs(database)
    reached = crash_points.reached

    def stop(step: str) -> None:
        reached(step)
        if step == "merge_piece_written":
            raise InterruptedError

    monkeypatch.setattr(crash_points, "reached", stop)
    with pytest.raises(InterruptedError):
        await conversations.unite(database, kept=())
    monkeypatch.setattr(crash_points, "reached", reached)
    assert words(await log(database, TWO)) == "b1 b2 b2! "
    await say(database, TWO, 70, "b3", "b3 ")
    await make(database, THREE, name="acp-33333333")
    await say(database, THREE, 80, "c1", "c1 ")  # its log gets no key that is in use
    await conversations.unite(database, kept=())
    await deletion.purge(database)
    assert words(await log(database, ONE)) == "a1 a1 b1 a2 - a2! b2 b2! b3 "
    assert words(await log(database, THREE)) == "c1 "
    assert len(await database.read("SELECT DISTINCT log_key FROM acp_log")) == 2


# --- sessions


class Named(Client):
    """Notes under which id it was shown what."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()

    async def deliver(self, session_id: str, logged: Logged) -> None:
        self.ids.add(session_id)
        await super().deliver(session_id, logged)

    def stop_updates(self, session_id: str) -> None:
        self.ids.add(f"detached {session_id}")


async def united(r: Rig) -> None:
    """As a start does it."""
    await conversations.unite(r.database, kept=())
    r.sessions.know_aliases(await conversations.aliases(r.database))


async def shared(r: Rig) -> None:
    await make(r.database, ONE)
    await make(r.database, TWO)
    await united(r)


async def test_all_ids_lead_to_one_session_and_worker(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await shared(r)
        first, second = await r.sessions.get(ONE), await r.sessions.get(TWO)
        assert first is second
        clients = {ONE: Named(), TWO: Named()}
        for session_id, client in clients.items():
            first.subscribe(client, 0, session_id=session_id)
        outcomes = await asyncio.gather(r.run(first, "say 5"), r.run(second, "say 5"))
        assert [outcome.state for outcome in outcomes] == ["done", "done"]
        assert len(r.launcher.launched) == 1
        for subscription in first.subscriptions:
            await subscription.reached(first.last_seq)
        for session_id, client in clients.items():
            assert client.ids == {session_id}
            assert client.text == "0 1 2 3 4 " * 2
        await r.sessions.close(second)
        for session_id, client in clients.items():
            assert f"detached {session_id}" in client.ids


async def test_rules_are_removed_under_each_id(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await shared(r)
        insert = Statement("INSERT INTO acp_session_rules VALUES (?, 'Bash(ls)', '', 1)", (ONE,))
        await r.database.commit(Unit(statements=(insert,)))
        control = rule_control(r)
        (gone,) = await control.remove(None, RemoveRuleParams(session=TWO))
        assert (gone.session, gone.rule) == (ONE, "Bash(ls)")
        assert await rules.listing(r.database) == []


async def test_two_simultaneously_requested_ids_give_one_session(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await shared(r)
        found = await asyncio.gather(
            *(r.sessions.find(session_id) for session_id in (ONE, TWO) * 5)
        )
        assert len(set(found)) == 1
        assert found[0] is not None


async def test_a_deleted_conversation_is_gone_under_every_id(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await shared(r)
        session = await r.sessions.get(TWO)
        await r.run(session, "say 1")
        assert await r.database.read("SELECT 1 FROM acp_log") != []
        await r.sessions.delete(session)
        assert await r.sessions.find(ONE) is None
        assert await r.sessions.find(TWO) is None
        assert await r.database.read("SELECT 1 FROM acp_log") == []
        assert await summaries.matching(r.database, "acp-11111111") == []


async def test_unloaded_dormant_session_returns_under_each_id(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await shared(r)
        session = await r.sessions.get(TWO)
        await r.run(session, "say 1")
        for subscription in list(session.subscriptions):
            subscription.close()
        r.pool.retire(session.id)

        def forgotten() -> bool:
            r.sessions.live.forget(0, r.pool)
            return not r.sessions.live

        await eventually(forgotten)
        again = await r.sessions.get(TWO)
        assert again is not session
        assert again is await r.sessions.get(ONE)


async def test_people_see_one_session_for_a_conversation(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await shared(r)
        assert [
            one.id async for one in await summaries.listing(r.database, every=True, limit=10)
        ] == [ONE]
        assert (await overview.counts(r.database)).unused == 1
        for word in (ONE, TWO, TWO[:6], "acp-11111111"):
            assert await summaries.matching(r.database, word) == [ONE]


# --- clients


def told(one: Front) -> tuple[set[str], str]:
    """Under which ids a front was told something, and what the answers say."""
    updates = [json.loads(rest.split(" ", 2)[2])["params"] for rest in one.rests("update")]
    said = [
        update["update"]["content"]["text"] for update in updates if "content" in update["update"]
    ]
    return {update["sessionId"] for update in updates}, "".join(said)


async def merged(r: Rig, old_until: int = 0) -> dict[str, list[Logged]]:
    """The sessions of two used logs, merged; returns the logs of before."""
    await two_logs(r.database, old_until)
    before = {session_id: await log(r.database, session_id) for session_id in (ONE, TWO)}
    await united(r)
    return before


@FORMS
@pytest.mark.parametrize(
    ("session_id", "seen", "missed"),
    [
        (ONE, 1, "a1 b1 a2 a2! b2 b2! "),
        (ONE, 2, "b1 a2 a2! b2 b2! "),
        (ONE, 5, "b2 b2! "),
        (TWO, 1, "a2 a2! b2 b2! "),
        (TWO, 2, "b2! "),
        (TWO, 3, ""),
    ],
)
async def test_place_before_merge_is_known_under_any_name(
    tmp_path: Path, session_id: str, seen: int, missed: str, old_until: int
) -> None:
    async with rig(tmp_path) as r:
        await merged(r, old_until)
        opened = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
        followed = {session_id: {"seq": seen, "line": 0, "opened": opened}}
        async with front(r, "came-back", sessions=followed) as back, front(r, "new") as other:
            resumed = {**opened, "_meta": {"pykoclaw.dev/after": seen}}
            await other.result(1, "session/resume", **resumed)
            for one in (back, other):
                await eventually(partial(lambda one: told(one)[1] == missed, one))
                assert told(one)[0] <= {session_id}
                assert one.rests("attached")[0].endswith(f'"{session_id}"')


async def test_place_after_merge_is_taken_literally(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await merged(r)
        last = (await log(r.database, ONE))[-1].seq
        async with front(r) as one:
            await one.result(
                1,
                "session/resume",
                sessionId=TWO,
                cwd="/",
                mcpServers=[],
                _meta={"pykoclaw.dev/after": last - 1},
            )
            await eventually(lambda: told(one) == ({TWO}, "b2! "))


async def test_each_id_loads_the_same_history(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await merged(r)
        histories = []
        for session_id in (ONE, TWO):
            async with front(r, f"loads-{session_id}") as one:
                await one.result(1, "session/load", sessionId=session_id, cwd="/", mcpServers=[])
                updates = [
                    json.loads(rest.split(" ", 2)[2])["params"] for rest in one.rests("update")
                ]
                assert {update["sessionId"] for update in updates} == {session_id}
                histories.append([update["update"] for update in updates])
        assert histories[0] == histories[1] != []


async def test_plain_resume_continues_from_cursor_of_its_id(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await two_logs(r.database)
        await confirm(r.database, TWO, INITIALIZE["clientInfo"]["name"], 2)
        await united(r)
        async with front(r) as one:
            await one.result(1, "session/resume", sessionId=TWO, cwd="/", mcpServers=[])
            await eventually(lambda: told(one) == ({TWO}, "b2! "))


async def test_client_with_both_ids_gets_updates_under_each(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await shared(r)
        async with front(r) as one:
            for number, session_id in enumerate((ONE, TWO), 1):
                await one.result(
                    number, "session/load", sessionId=session_id, cwd="/", mcpServers=[]
                )
            answer = await one.result(3, "session/prompt", **prompt(TWO, "say 2"))
            assert answer["stopReason"] == "end_turn"

            told = partial(one.rests, "update")

            def by_id() -> dict[str, str]:
                updates = [json.loads(rest.split(" ", 2)[2])["params"] for rest in told()]
                return {
                    session_id: "".join(
                        update["update"]["content"]["text"]
                        for update in updates
                        if update["sessionId"] == session_id and "content" in update["update"]
                    )
                    for session_id in (ONE, TWO)
                }

            await eventually(lambda: by_id() == {ONE: "say 20 1 ", TWO: "0 1 "})
            await eventually(lambda: len(one.rests("answer")) == 3)
            await one.result(4, "session/close", sessionId=ONE)
            assert len(one.rests("detached")) == 2


async def test_both_ids_client_asked_once_prompts_keep_order(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await shared(r)
        async with front(r) as one:
            for number, session_id in enumerate((ONE, TWO), 1):
                await one.result(
                    number, "session/load", sessionId=session_id, cwd="/", mcpServers=[]
                )
            for number, session_id in enumerate((ONE, TWO, ONE, TWO), 3):
                one.call(
                    number,
                    "session/prompt",
                    **prompt(session_id, "hang" if number == 3 else f"say {number}"),
                )
            await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].acked)
            (channel,) = r.launcher.launched
            session = await r.sessions.get(ONE)
            await eventually(lambda: len(session.turns) == 4)
            channel.last += 1
            ask = PermissionRequest(
                epoch=1, n=channel.last, turn_id=session.turns[0].turn_id, ask_id="ask", tool_call_id="t",
                tool_kind="execute", title="Bash",
            )  # fmt: skip
            channel.say(ask)
            await eventually(lambda: one.rests("request"))
            one.notify(7, "session/cancel", sessionId=TWO)
            for number in (3, 4, 5, 6):
                assert (await one.answer(number))["result"]["stopReason"] == "cancelled"
            (request,) = one.rests("request")
            assert json.loads(request.partition(" ")[2])["params"]["sessionId"] == ONE
            for number, session_id in ((8, TWO), (9, ONE), (10, TWO), (11, ONE)):
                one.call(number, "session/prompt", **prompt(session_id, f"say {number}"))
            await one.answer(11)
            said = [text for worker in r.launcher.launched for text in worker.prompts]
            assert said == ["hang", "say 8", "say 9", "say 10", "say 11"]


async def test_options_from_one_id_apply_to_next_worker(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await shared(r)
        async with front(r, "first") as one, front(r, "second") as other:
            await one.result(1, "session/load", sessionId=ONE, cwd="/", mcpServers=[])
            await one.result(2, "session/prompt", **prompt(ONE, "say 1"))
            server = {"name": "tools", "command": "/bin/true", "args": [], "env": []}
            opened = {"cwd": "/", "mcpServers": [server], "additionalDirectories": ["/tmp"]}
            await other.result(1, "session/load", sessionId=TWO, **opened)
            await one.result(3, "session/prompt", **prompt(ONE, "say 1"))
            first, second = (channel.spec.options for channel in r.launcher.launched)
            assert (first.mcp_servers, first.additional_directories) == ((), ())
            assert [server.name for server in second.mcp_servers] == ["tools"]
            assert second.additional_directories == ("/tmp",)
            await other.result(2, "session/set_mode", sessionId=TWO, modeId="plan")
            modes = [json.loads(rest.split(" ", 2)[2])["params"] for rest in one.rests("update")]
            await eventually(
                lambda: any(
                    json.loads(rest.split(" ", 2)[2])["params"]["update"].get("currentModeId")
                    == "plan"
                    for rest in one.rests("update")
                )
            )
            assert {update["sessionId"] for update in modes} == {ONE}


async def test_another_directory_is_refused_under_each_id(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await shared(r)
        async with front(r) as one:
            for number, session_id in enumerate((ONE, TWO), 1):
                one.call(number, "session/load", sessionId=session_id, cwd="/tmp", mcpServers=[])
                refused = await one.answer(number)
                named = {"sessionCwd": "/", "cwd": "/tmp", "instead": "session/fork"}
                assert refused["error"]["data"] == named


# --- the fence


async def replaced(r: Rig) -> tuple[Session, MemoryChannel]:
    """A session with a turn on its worker, and an epoch that was given to another one behind its
    back.
    """
    session, _, channel = await hanging(r)
    newer = Statement(
        "UPDATE acp_sessions SET epoch = epoch + 1 WHERE acp_session_id = ?", (session.id,), rows=1
    )
    await r.database.commit(Unit(statements=(newer,)))
    return session, channel


@pytest.mark.parametrize("kind", ["event", "question", "end"])
async def test_stale_workers_frames_are_ignored_and_end_it(tmp_path: Path, kind: str) -> None:
    async with rig(tmp_path) as r:
        session, channel = await replaced(r)
        (turn,) = session.turns
        before = await r.seqs(session)
        frames: dict[str, FromWorker] = {
            "event": channel.event(turn.turn_id, "too late"),
            "question": PermissionRequest(
                epoch=1,
                n=2,
                turn_id=turn.turn_id,
                ask_id="ask",
                tool_call_id="t",
                tool_kind="execute",
                title="Bash",
            ),
            "end": TurnEnded(
                epoch=1,
                n=2,
                turn_id=turn.turn_id,
                stop_reason="end_turn",
                claude_session_id="other",
            ),
        }
        acked = channel.acked
        channel.say(frames[kind])
        await eventually(lambda: channel not in r.launcher.live)
        outcome, _ = await asyncio.wait_for(turn.ended, 30)
        assert outcome.state in ("unknown", "failed")
        assert channel.acked == acked
        logged = await SessionJournal(r.database).read(session.id, 0, 100)
        assert not any(isinstance(one.event, Text) for one in logged)
        assert [one.seq for one in logged][: len(before)] == before
        assert await r.database.read("SELECT 1 FROM acp_permissions") == []
        assert await r.database.read("SELECT session_id FROM conversations") == [(None,)]


async def test_a_stale_workers_frames_fail_alone(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        other = await r.session()
        epoch = await SqlWorkerStore(r.database).next_epoch(session.id)
        told = events.rows(session.id, None, [Text("m", "told")])
        units = [
            Unit(events=events.rows(other.id, None, [Text("m", "before")])),
            Unit(events=told, worker=(session.id, epoch - 1)),
            Unit(events=told, worker=(session.id, epoch)),
            Unit(statements=(), worker=(session.id, epoch - 1)),
            Unit(events=events.rows(other.id, None, [Text("m", "after")])),
        ]
        results = await asyncio.gather(
            *(r.database.commit(unit) for unit in units), return_exceptions=True
        )
        assert [type(one) for one in results] == [list, StaleEpoch, list, StaleEpoch, list]
        assert results[2] == [1]
        assert words(await log(r.database, other.id)) == "beforeafter"


async def test_no_worker_starts_while_older_one_has_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreadable(*_: object) -> None:
        raise RuntimeError("nobody has foreseen this")

    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        await r.pool.stop(session.id)
        row = Statement(
            "INSERT INTO acp_workers (acp_session_id, epoch, pid, start_time, boot_id, socket, protocol, created_at)"
            " VALUES (?, 1, 1, 1, 'boot', '/x/sockets/y', 1, 1)",
            (session.id,),
        )
        await r.database.commit(Unit(statements=(row,)))
        with monkeypatch.context() as broken:
            broken.setattr(r.launcher, "deliver_spool", unreadable)
            outcome = await r.run(session, "say 1")
        assert outcome.failure is not None
        assert outcome.failure.kind == "spool_pending"
        assert len(r.launcher.launched) == 1
        assert (await r.run(session, "say 1")).state == "done"
        assert [channel.spec.epoch for channel in r.launcher.launched] == [1, 2]


async def test_spools_of_previous_version_workers_are_not_dropped(tmp_path: Path) -> None:
    """That version started a worker while the spool of an older one was still to be taken."""
    async with rig(tmp_path) as r:
        session = await r.session()
        journal = SessionJournal(r.database)
        for _ in range(2):
            await SqlWorkerStore(r.database).next_epoch(session.id)
        for epoch in (1, 2):
            frame = EventFrame(epoch=epoch, n=1, turn_id=None, event=Text("m", f"{epoch} "))
            await journal.record(session.id, epoch, [frame], {}, dead=True)
        assert words(await log(r.database, session.id)) == "1 2 "


# --- the start


@pytest.fixture
def pair() -> Iterator[list[WorkerProcess]]:
    """Two processes that live, to stand for the workers of two ids."""
    started = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    yield [
        WorkerProcess(one.pid, processes.start_time(one.pid) or 0, processes.boot_id())
        for one in started
    ]
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("working", [ONE, TWO])
async def test_conversation_keeps_the_worker_with_a_turn(
    tmp_path: Path, pair: list[WorkerProcess], working: str
) -> None:
    """The version before ran a worker for each id; one of them is at work at the upgrade."""
    alive, other = pair
    idle = TWO if working == ONE else ONE
    async with killed(tmp_path, alive) as before:
        await make(before.database, ONE)
        await make(before.database, TWO)
        session = await before.sessions.get(working)
        turn = await before.prompt(session, "hang")
        await eventually(lambda: before.launcher.launched and before.launcher.launched[0].acked)
        (channel,) = before.launcher.launched
        row = Statement(
            "INSERT INTO acp_workers (acp_session_id, epoch, pid, start_time, boot_id, socket, protocol, created_at)"
            " VALUES (?, 7, ?, ?, ?, ?, 1, 1)",
            (idle, other.pid, other.start_time, other.boot_id, str(tmp_path / "sockets" / "other")),
        )
        queued = Statement(
            "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at, detached, position)"
            """ VALUES ('waits', ?, 'client', '[{"type": "text", "text": "say 1"}]', 'queued', 1, 1, 1)""",
            (idle,),
        )
        await before.database.commit(Unit(statements=(row, queued)))
    async with daemon(tmp_path, before) as after:
        after.sessions.know_aliases(await conversations.aliases(after.database))
        session = await after.sessions.get(idle)
        assert session.id == working
        await eventually(
            lambda: (
                processes.start_time(other.pid) != other.start_time or processes.ending(other.pid)
            )
        )
        assert processes.start_time(alive.pid) == alive.start_time
        assert [one.turn_id for one in session.turns] == [turn.turn_id, "waits"]
        channel.say(channel.event(turn.turn_id, "on and on "), channel.ended(turn.turn_id))
        await asyncio.wait_for(session.idle(), 30)
        assert after.launcher.launched == [channel]
        assert words(await log(after.database, working)).replace("- ", "") == "on and on 0 "
