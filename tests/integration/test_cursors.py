"""Whose cursor a plain `session/resume` goes on from: fronts of several windows of one name,
workers in memory.
"""

from __future__ import annotations

import asyncio
import copy
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.cursors import Cursor, Reader
from pykoclaw_acp.sessions.confirmations import Confirmations
from pykoclaw_acp.sessions.cursor_retention import LIMIT
from pykoclaw_acp.store import migrate
from pykoclaw_acp.store.database import Statement, Unit
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.sqlite import sqlite3
from tests.integration.client_windows import Windows, process, resume, seen, windows
from tests.integration.linked import Front, new, there, until_there_is, words
from tests.integration.rig import rig
from tests.waiting import eventually

DAY = 24 * 3600 * 1000  # ms
END = 11  # of the log after the first prompt: its message, the title, nine words
GROWN = ["say", "2", "0", "1"]  # what `grow` adds


async def begun(w: Windows, one: Front) -> str:
    """A session whose log ends at END."""
    session = await new(one)
    await one.result(2, "session/prompt", **words(session, "say 9"))
    return session


async def beside(w: Windows, pid: int, session: str, place: int) -> Front:
    """Another window, which has confirmed nothing after this place."""
    one = await w.open(pid)
    await resume(one, session, _meta={"pykoclaw.dev/after": place})
    return one


async def grow(w: Windows, session: str) -> int:
    """The log grows by three events, of a turn that somebody else asks for; returns its end."""
    live = await w.r.sessions.get(session)
    await w.r.run(live, "say 2")
    return live.last_seq


def heard(one: Front) -> list[str]:
    """What was said to the front's client, word by word; what is replayed comes in
    longer pieces.
    """
    updates = [
        json.loads(rest.split(" ", 2)[2])["params"]["update"] for rest in one.rests("update")
    ]
    return "".join(
        update["content"]["text"] + " " for update in updates if "content" in update
    ).split()


def after(place: int) -> list[str]:
    """What a session says after this place, up to END."""
    return [str(number) for number in range(max(place, 2) - 2, END - 2)]


async def shown(one: Front, words: list[str]) -> None:
    """Exactly this, once as much has come."""
    await eventually(lambda: len(heard(one)) >= len(words))
    assert heard(one) == words


async def nothing_of_the_past(w: Windows, one: Front, session: str) -> None:
    """It is shown what comes from now on, and first of all that."""
    assert heard(one) == []
    await grow(w, session)
    await shown(one, GROWN)


async def returns(w: Windows, pid: int, session: str, missed: list[str], **more: Any) -> Front:
    """A window, which plainly resumes and is shown exactly what it has missed."""
    one = await w.open(pid, **more)
    await resume(one, session)
    await shown(one, missed)
    return one


async def has_everything(w: Windows, pid: int, session: str) -> None:
    """A window that resumes is shown nothing of the past."""
    one = await w.open(pid)
    await resume(one, session)
    await nothing_of_the_past(w, one, session)


async def left_at(w: Windows, place: int) -> str:
    """A session whose only window has confirmed this place, and died."""
    one = await w.open(1)
    session = await begun(w, one)
    await seen(w, one, place)
    await w.die(1, one)
    return session


async def test_window_that_died_behind_other_sees_missed_events(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        one = await w.open(1)
        session = await begun(w, one)
        two = await w.open(2)
        await resume(two, session)
        await seen(w, one, 6)
        await w.die(1, one)
        await seen(w, two, END)
        await returns(w, 3, session, after(6))
        assert heard(two) == []


async def test_restarted_client_sees_exactly_what_it_missed(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        for pid, place in ((2, 5), (3, 9)):
            await seen(w, one, place)
            await w.die(pid - 1, one)
            one = await returns(w, pid, session, after(place))


async def test_taken_over_cursor_is_owned_at_once(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await left_at(w, 6)
        two = await w.open(2)
        await resume(two, session)
        # Both were written, in one transaction, before the answer.
        rows = await w.r.database.read("SELECT instance, seq, used_by FROM acp_cursors")
        assert set(rows) == {
            ("this boot:1:1:7", 6, "this boot:1:2:7"),
            ("this boot:1:2:7", 6, None),
        }
        await two.leave()  # its front alone, before it has confirmed anything
        await returns(w, 2, session, after(6))


async def test_crash_after_takeover_shows_more_not_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with windows(tmp_path) as w:
        session = await left_at(w, 6)
        two = await w.open(2)

        async def at_once(_: Confirmations, limit: float) -> None:
            """As with a database that cannot be written for the moment."""

        async def never(_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(Confirmations, "written", at_once)
        dying = copy.copy(w.r.journal)
        monkeypatch.setattr(dying, "change_cursors", never)
        alive = w.r.sessions.confirmations.alive
        w.r.sessions.confirmations = Confirmations(dying, alive)
        await resume(two, session)
        w.r.sessions.confirmations = Confirmations(w.r.journal, alive)  # of the next daemon
        await two.leave()
        await returns(w, 2, session, after(6))


async def test_one_that_never_returns_is_taken_once(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await left_at(w, 6)
        two = await returns(w, 2, session, after(6))
        await has_everything(w, 3, session)
        await seen(w, two, END + 2)
        await w.die(2, two)
        await returns(w, 4, session, GROWN[3:])


async def test_unreturned_cursor_is_dropped_after_30_days(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        await seen(w, one, 6)
        await w.pass_time(LIMIT)  # a living one does not grow old
        await w.die(1, one)
        await w.pass_time(LIMIT - DAY)
        await w.pass_time(DAY // 2)
        assert len(await w.r.database.read("SELECT 1 FROM acp_cursors")) == 1
        await w.pass_time(DAY)
        assert await w.r.database.read("SELECT 1 FROM acp_cursors") == []
        await has_everything(w, 2, session)


async def test_spare_cursor_is_not_handed_on_forever(tmp_path: Path) -> None:
    """One of two windows never returns: the other one leaves a place more each time that it is
    restarted.
    """
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        two = await beside(w, 2, session, 6)
        await seen(w, one, 5)
        await w.die(1, one)
        await w.die(2, two)
        once_more = [
            after(5),
            after(6) + GROWN,
            GROWN,
            GROWN,
            [],
            [],
        ]  # until the spare place is dropped
        for pid, missed in enumerate(once_more, 3):
            one = await w.open(pid)
            await resume(one, session)
            end = await grow(w, session)
            await shown(one, missed + GROWN)
            await seen(w, one, end)
            await w.die(pid, one)
            await w.pass_time(LIMIT // 4)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
async def test_two_dead_windows_return_complete_in_any_order(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        two = await beside(w, 2, session, 8)
        await seen(w, one, 5)
        await w.die(1, one)
        await w.die(2, two)
        for pid in order:
            await returns(
                w, 10 + pid, session, after(5)
            )  # it cannot be known which of the two it is
        await has_everything(w, 20, session)


async def test_killed_front_continues_for_its_parent(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        await w.die(2, await beside(w, 2, session, 3))
        await seen(w, one, 9)
        await one.leave()
        await returns(w, 1, session, after(9))  # not what the other window has left


async def test_front_continues_from_cursor_of_same_parents_front(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        await resume(two := await w.open(1), session)
        await seen(w, one, 4)
        await one.leave()
        await grow(w, session)
        await seen(w, two, 14)
        again = await returns(w, 1, session, after(4) + GROWN)
        await seen(w, again, 13)
        await returns(
            w, 1, session, GROWN[-1:]
        )  # the least of what its fronts that live were shown


async def test_client_with_two_fronts_is_taken_over_whole(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        two = await beside(w, 1, session, 9)
        await seen(w, one, 4)
        await w.die(1, one)
        await w.die(1, two)
        await returns(w, 2, session, after(4))
        await has_everything(w, 3, session)


async def test_a_recycled_pid_is_another_instance(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        await seen(w, one, 6)
        await beside(w, 2, session, 4)
        await w.die(1, one)
        again = await returns(w, 1, session, after(6), start=8)
        await again.leave()
        assert {
            row
            for (row,) in await w.r.database.read("SELECT used_by FROM acp_cursors WHERE seq = 6")
        } == {
            "this boot:1:1:8",
            None,
        }


@pytest.mark.parametrize(
    "hello", [{}, {"parent": None}, {"parent": "nonsense"}, {"parent": {"pid": "x"}}]
)
async def test_front_without_parent_information_loses_nothing(
    tmp_path: Path, hello: dict[str, Any]
) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1, hello=hello))
        await seen(w, one, 6)
        await one.leave()
        await returns(w, 1, session, after(6), hello=hello)
        three = await w.open(1, hello=hello)
        await resume(three, session)
        await nothing_of_the_past(w, three, session)  # the second one is there


async def test_client_from_other_boot_shown_session_counts_alive(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        elsewhere = {"parent": process(1, boot="another boot")}
        session = await begun(w, one := await w.open(1, hello=elsewhere))
        await seen(w, one, 6)
        two = await w.open(2)
        await resume(two, session)
        await one.leave()
        await returns(w, 3, session, after(6))
        back = await w.open(1, hello=elsewhere)  # it lived: what was taken is still its own
        await resume(back, session)
        await shown(back, after(6))
        assert heard(two) == []


async def test_client_returning_after_takeover_leaves_its_cursor_again(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        elsewhere = {"parent": process(1, boot="another boot"), "front": "the one"}
        session = await begun(w, one := await w.open(1, hello=elsewhere))
        await seen(w, one, 6)
        await one.leave()  # a new daemon, to which its front does not connect at once
        two = await w.open(2)
        await resume(two, session)
        back = await w.open(1, hello=elsewhere | {"sessions": {session: {"seq": END, "seen": 6}}})
        await eventually(lambda: back.rests("attached"))
        await back.leave()
        await returns(w, 3, session, after(6))


async def test_updates_in_flight_at_front_reconnect_are_unconfirmed(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, await w.open(1))
        two = await w.open(
            2, sessions={session: {"seq": END, "seen": 6}}
        )  # of what is in no table any more
        await eventually(lambda: two.rests("attached"))
        await two.leave()
        await returns(w, 2, session, after(6))


async def test_sessions_and_names_do_not_mix(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        other = {"protocolVersion": 1, "clientInfo": {"name": "other"}}
        one = await w.open(1)
        first = await begun(w, one)
        second = str((await one.result(3, "session/new", cwd="/", mcpServers=[]))["sessionId"])
        await one.result(4, "session/prompt", **words(second, "say 9"))
        one.say("seen 1 6")
        one.say("seen 2 9")
        await there(w.r, "SELECT 1 FROM acp_cursors WHERE seq = 9")
        await w.die(1, one)
        stranger = await w.open(2, initialize=other)
        await resume(stranger, first)
        two = await w.open(3)
        await resume(two, second)
        await shown(two, after(9))
        await resume(two, first, 2)
        await shown(two, after(9) + after(6))
        assert heard(stranger) == []


async def test_client_that_died_early_sees_later_events(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, await w.open(1))
        await resume(two := await w.open(2), session)
        await there(w.r, f"SELECT 1 FROM acp_cursors WHERE seq = {END}")
        await w.die(2, two)
        await grow(w, session)
        await returns(w, 3, session, GROWN)


async def test_loading_or_positioned_clients_leave_lowest_cursor(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        two, three = await beside(w, 2, session, 7), await beside(w, 3, session, 8)
        await seen(w, one, 5)
        for pid, front_ in ((1, one), (2, two), (3, three)):
            await w.die(pid, front_)
        loads = await w.open(4)
        await loads.result(
            1, "session/load", sessionId=session, cwd="/", mcpServers=[]
        )  # it was the third, or not
        knows = await w.open(5)
        await resume(knows, session, _meta={"pykoclaw.dev/after": 7})
        await shown(knows, after(7))
        await returns(w, 6, session, after(5))


async def test_cursor_beyond_end_of_log_is_ignored(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        await seen(w, one, 6)
        await one.leave()
        await w.r.sessions.confirmations.flush()
        beyond = Statement("UPDATE acp_cursors SET seq = 99")
        await w.r.database.commit(Unit(statements=(beyond,)))
        again = await w.open(1)
        await resume(again, session)
        again.say("seen 1 50")  # from before the copy was put back
        end = await grow(w, session)
        await shown(again, GROWN)
        await seen(w, again, end)
        assert await w.r.database.read("SELECT seq FROM acp_cursors") == [(end,)]


async def test_a_deleted_session_leaves_no_cursor(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        await seen(w, one, 6)
        await w.r.sessions.delete(await w.r.sessions.get(session))
        one.say("seen 1 9")
        assert await new(one, 9) != session
        await w.r.sessions.confirmations.flush()
        assert (
            await w.r.database.read(
                "SELECT 1 FROM acp_cursors WHERE acp_session_id = ?", (session,)
            )
            == []
        )


async def test_front_before_upgrade_takes_cursor_of_its_name(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        await seen(w, one, 9)
        await one.leave()
        await w.r.sessions.confirmations.flush()
        by_name = Statement("UPDATE acp_cursors SET instance = '', front = ''")
        await w.r.database.commit(Unit(statements=(by_name,)))
        back = await w.open(1, hello={"sessions": {session: {"seq": 10, "opened": {}}}})
        await shown(back, after(10))
        await back.leave()
        await returns(w, 2, session, after(9))


def test_what_was_kept_by_name_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "pykoclaw.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate.apply(connection, [one for one in migrate.load() if one.version < 4], path)
        connection.execute("INSERT INTO acp_cursors VALUES ('s', 'mitto', 6, 1)")
        migrate.apply(connection, migrate.load(), path)
        rows = connection.execute(
            "SELECT acp_session_id, client, instance, seq, used_by, ended_clock FROM acp_cursors"
        )
        assert rows.fetchall() == [("s", "mitto", "", 6, None, None)]


async def test_cursor_by_name_counts_as_one_ended_instance(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await left_at(w, 6)
        await w.r.sessions.confirmations.flush()
        by_name = Statement("UPDATE acp_cursors SET instance = '', front = ''")
        await w.r.database.commit(Unit(statements=(by_name,)))
        await returns(w, 2, session, after(6))
        await has_everything(w, 3, session)


async def test_what_cannot_be_written_is_kept_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        await w.r.sessions.confirmations.flush()
        tried = asyncio.Event()

        async def full(changes: Any) -> None:
            tried.set()
            raise OSError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(SessionJournal, "change_cursors", lambda _, changes: full(changes))
            one.say("seen 1 6")
            await tried.wait()
            await w.die(1, one)
            await returns(w, 2, session, after(6))
        await w.r.sessions.confirmations.flush()
        assert ("this boot:1:1:7", 6, "this boot:1:2:7") in await w.r.database.read(
            "SELECT instance, seq, used_by FROM acp_cursors"
        )


async def test_a_confirmation_is_written_under_its_instance(tmp_path: Path) -> None:
    async with windows(tmp_path) as w:
        session = await begun(w, one := await w.open(1))
        await until_there_is(w.r, "state = 'done'")
        await seen(w, one, 6)
        rows = await w.r.database.read(
            "SELECT acp_session_id, client, instance, front, seq FROM acp_cursors"
        )
        assert rows == [(session, "editor", "this boot:1:1:7", "front 1", 6)]


@pytest.mark.parametrize("own", [False, True])
async def test_only_confirmations_of_same_session_repeat_claim_read(
    tmp_path: Path, own: bool
) -> None:
    """Else a client that keeps the database busy keeps all others from opening their sessions."""
    async with rig(tmp_path) as r:
        mine, theirs = await r.session(), await r.session()
        journal = SessionJournal(r.database)
        confirmations = Confirmations(journal, lambda _: False)
        me, other = Reader("editor", "me", "front 1"), Reader("editor", "other", "front 2")
        reads, read = 0, journal.cursors

        async def cursors(session_id: str, client: str) -> list[Cursor]:
            nonlocal reads
            reads += 1
            found = await read(session_id, client)
            if reads < 20:  # what was confirmed after the look is committed before it is used
                confirmations.note(mine.id if own and reads == 1 else theirs.id, other, reads)
                await confirmations.flush()
            return found

        journal.cursors = cursors  # type: ignore[method-assign]
        assert await confirmations.claim(mine.id, 100, me, []) == (1 if own else None)
        assert reads == (2 if own else 1)
