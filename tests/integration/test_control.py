"""Our own methods on real sessions and a real database, with workers in memory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pykoclaw_acp import __version__
from pykoclaw_acp.channel.frames import EventFrame, Interrupt
from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.commands import status as status_command
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import Event, Text, TextPart, Thinking, ToolEnded, ToolStarted
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.server.app import App
from pykoclaw_acp.server.lag import LoopLag
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import deletion, moving, overview, permissions, pieces, summaries
from pykoclaw_acp.store.condition import unavailable
from pykoclaw_acp.store.database import Statement, Unit
from pykoclaw_acp.store.hinting_journal import HintingJournal
from tests.integration.callers import caller, prompted
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Rig, rig
from tests.waiting import eventually, not_within


async def hanging(r: Rig) -> tuple[Session, MemoryChannel, str]:
    """A session in whose turn nothing happens by itself, its worker, the turn's id."""
    session = await r.session()
    turn = await r.prompt(session, "hang")

    def working() -> list[MemoryChannel]:
        return [
            channel
            for channel in r.launcher.live
            if channel.spec.session_id == session.id and channel.acked
        ]

    (channel,) = await eventually(working)
    return session, channel, turn.turn_id


def question(channel: MemoryChannel, turn: str, ask_id: str = "question-1") -> PermissionRequest:
    channel.last += 1
    return PermissionRequest(
        epoch=1,
        n=channel.last,
        ask_id=ask_id,
        turn_id=turn,
        tool_call_id="t",
        title="Bash: ls",
        tool_kind="execute",
    )


async def test_status_names_damaged_spools_that_the_launcher_keeps(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        ours = Places(tmp_path, tmp_path, tmp_path / "socket").hash
        r.launcher.damaged = {ours: ["elsewhere:/damaged/1"], "other": ["elsewhere:/damaged/2"]}
        assert (await cli.call("status"))["damaged"] == ["elsewhere:/damaged/1"]


async def test_status_answers_where_sessions_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged(_: object) -> object:
        raise unavailable(DatabaseState.DAMAGED, "The database is damaged.")

    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        monkeypatch.setattr(overview, "counts", damaged)
        status = await cli.call("status")
    assert (status["sessions"], status["running"], status["workers"]) == (None, None, [])
    assert status["daemon"]["pid"] == os.getpid()
    found = status["database"]
    assert (found["condition"], found["reason"]) == ("damaged", "The database is damaged.")
    shown = dict(status_command.facts(status))
    assert shown["sessions"] == "cannot be read now"
    assert "is damaged" in shown["storing"]


async def test_the_status_counts_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoopLag, "worst", lambda self: 0.0123)
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        await prompted(r)
        await r.session()
        session, channel, turn = await hanging(r)
        await r.prompt(session, "say 1")
        status = await cli.call("status")
        assert (status["running"], status["waiting"], status["clients"]) == (1, 1, 2)
        assert status["sessions"] == {"conversations": 2, "helpers": 0, "unused": 1}
        assert [(one["session"], one["state"]) for one in status["workers"]][1:] == [
            (session.id, "working")
        ]
        assert status["damaged"] == []
        assert status["daemon"]["pid"] == os.getpid()
        assert status["daemon"]["version"] == __version__
        assert status["daemon"]["memory"] > 1_000_000
        assert status["daemon"]["loopLag"] == 12.3
        assert await r.database.read("PRAGMA journal_mode") == [
            (status["database"]["journalMode"],)
        ]
        assert status["database"]["size"] >= (tmp_path / "pykoclaw.db").stat().st_size
        for subscription in session.subscriptions:
            subscription.close()  # it would answer at once
        channel.say(question(channel, turn))
        await eventually(lambda: channel.acked == channel.last)
        status = await cli.call("status")
        assert [one["state"] for one in status["workers"]] == ["idle", "asking"]
        assert [(one["id"], one["title"], one["always"]) for one in status["questions"]] == [
            ("question-1", "Bash: ls", False)
        ]


async def test_unused_sessions_are_listed_only_on_demand(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        unused = await r.session()
        first = await prompted(r)
        helper = await prompted(r)
        second = await prompted(r)
        for change, session in (
            ("auxiliary = 1", helper),
            ("used_clock = used_clock + 9000", second),  # as opening does
            ("updated_at = updated_at + 5000", first),
        ):
            row = Statement(
                f"UPDATE acp_sessions SET {change} WHERE acp_session_id = ?", (session.id,), rows=1
            )
            await r.database.commit(Unit(statements=(row,)))
        listed = await cli.call("sessions/list")
        assert [one["id"] for one in listed["sessions"]] == [first.id, second.id]
        assert listed["more"] is False
        every = await cli.call("sessions/list", all=True)
        assert {one["id"] for one in every["sessions"]} == {
            unused.id,
            first.id,
            helper.id,
            second.id,
        }
        some = await cli.call("sessions/list", limit=1)
        assert ([one["id"] for one in some["sessions"]], some["more"]) == ([first.id], True)
        assert "`limit`" in (await cli.refused("sessions/list", limit=0))["message"]


async def test_session_is_found_by_id_prefix_or_name(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await prompted(r)
        other = await r.session()
        for word in (session.id, session.id[:13], session.record.conversation_name):
            assert (await cli.call("sessions/show", session=word))["summary"]["id"] == session.id
        assert (await cli.refused("sessions/show", session="nobody"))["code"] == -32002
        assert (await cli.refused("sessions/show", session=""))["code"] == -32602
        same = Statement(
            "UPDATE acp_sessions SET acp_session_id = ? WHERE acp_session_id = ?",
            ("twin-2", other.id),
        )
        await r.database.commit(Unit(statements=(same,)))
        insert = (
            "INSERT INTO acp_sessions (acp_session_id, conversation_name, created_at, updated_at)"
            " VALUES (?, ?, 0, 0)"
        )
        await r.database.commit(Unit(statements=(Statement(insert, ("twin-1", "acp-twin")),)))
        refused = await cli.refused("sessions/show", session="twin")
        assert "More than one" in refused["message"]


async def test_a_session_is_shown_with_its_turns(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await prompted(r)
        await r.run(session, "die half")
        shown = await cli.call("sessions/show", session=session.id)
        assert shown["mode"] == "default"  # of the settings: it has none of its own
        assert [turn["state"] for turn in shown["turns"]] == ["failed", "done"]
        assert shown["turns"][0]["error"]["kind"] == "worker_lost"
        assert (shown["turnCount"], shown["events"]) == (2, session.last_seq)
        assert shown["claudeSession"] == session.id
        assert shown["worker"] is None


async def test_archive_says_how_many_turns_it_has_cancelled(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session, _, _ = await hanging(r)
        await r.prompt(session, "say 1")
        archived = [await cli.call("sessions/archive", session=session.id) for _ in range(2)]
        assert archived == [{"cancelled": 2, "changed": True}, {"cancelled": 0, "changed": False}]
        taken = [await cli.call("sessions/unarchive", session=session.id) for _ in range(2)]
        assert [one["changed"] for one in taken] == [True, False]


async def test_archived_session_is_unlisted_until_taken_back(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await prompted(r)
        for method, listed in (("archive", []), ("unarchive", [session.id])):
            await cli.call(f"sessions/{method}", session=session.record.conversation_name)
            found = (await cli.call("sessions/list", all=False, limit=9))["sessions"]
            assert [one["id"] for one in found] == listed
        assert (await cli.refused("sessions/archive", session="nobody"))["code"] == -32002


async def test_deleted_session_is_gone_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "LARGEST", 4)
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        kept = await prompted(r, "say 2")
        await prompted(r)
        session, channel, turn = await hanging(r)
        channel.say(*(channel.event(turn, f"{at} ") for at in range(9)))
        await eventually(lambda: channel.acked == channel.last)
        running = session.turns[0]
        await cli.call("sessions/delete", session=session.id)
        assert (await running.ended)[0].state == "cancelled"
        assert await r.sessions.find(session.id) is None
        assert (await cli.refused("sessions/show", session=session.id))["code"] == -32002
        for table in ("acp_turns", "acp_permissions"):
            rows = await r.database.read(
                f"SELECT COUNT(*) FROM {table} WHERE acp_session_id = ?", (session.id,)
            )
            assert rows == [(0,)], table
        assert await r.seqs(session) == []
        assert await r.seqs(kept) == list(range(1, kept.last_seq + 1))
        assert channel not in r.launcher.live


async def test_interrupted_deletion_is_completed_by_next_server(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        left, kept = await prompted(r), await prompted(r)
        half = Statement(
            "UPDATE acp_sessions SET deleted_at = 1 WHERE acp_session_id = ?", (left.id,)
        )
        await r.database.commit(Unit(statements=(half,)))
    places = Places(tmp_path, tmp_path / "state", tmp_path / "socket")
    app = await App.start(Settings(data=tmp_path), places, resident=False)
    try:

        async def owners() -> bool:
            rows = await app.database.read(
                "SELECT acp_session_id FROM acp_log JOIN acp_sessions USING (log_key)"
                " UNION SELECT acp_session_id FROM acp_turns"
            )
            return rows == [(kept.id,)]

        gone: bool = await eventually(owners)
        assert gone
    finally:
        await app.stop(1.0)


async def test_request_of_lost_caller_creates_one_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection broke while the row was written."""
    writes, is_written = asyncio.Event(), asyncio.Event()
    write = HintingJournal.create

    async def late(*given: Any) -> None:
        writes.set()
        await is_written.wait()
        await write(*given)

    async def slow(*given: Any) -> None:
        """As a commit that has begun, which nobody can cancel."""
        await asyncio.shield(asyncio.create_task(late(*given)))

    async with rig(tmp_path) as r:
        monkeypatch.setattr(HintingJournal, "create", slow)
        lost = asyncio.create_task(r.sessions.create("/", (), (), request_key="front:1"))
        await writes.wait()
        lost.cancel()
        again = asyncio.create_task(r.sessions.create("/", (), (), request_key="front:1"))
        await not_within(again.done, 0.2)
        is_written.set()
        made = await again
        assert await r.database.read("SELECT acp_session_id FROM acp_sessions") == [(made.id,)]


async def test_request_of_deleted_session_creates_new_session(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.sessions.create("/", (), (), request_key="front:1")
        await r.sessions.delete(session)
        again = await r.sessions.create("/", (), (), request_key="front:1")
        assert again.id != session.id
        assert (await r.sessions.create("/", (), (), request_key="front:1")) is again


async def test_queries_over_all_sessions_use_indexes(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        read, steps = r.database.read, list[str]()

        async def explained(
            sql: str, parameters: tuple[Any, ...] = (), size: int | None = None
        ) -> list[tuple[Any, ...]]:
            steps.extend(step[3] for step in await read(f"EXPLAIN QUERY PLAN {sql}", parameters))
            return await read(sql, parameters, size)

        r.database.read = explained  # type: ignore[method-assign]
        await summaries.listing(r.database, every=False, limit=1)
        assert any("t USING INDEX acp_turns_unfinished" in step for step in steps)
        await deletion.purge(r.database)
        await moving.finish(r.database)
        await permissions.matching(r.database, "q")
        await permissions.is_open(r.database, "q")
        await permissions.waiting(r.database)
        scanned = {
            step.split()[1]
            for step in steps
            if step.startswith("SCAN") and "acp_permissions_open" not in step
        }
        assert scanned == {"s", "c", "acp_log_leftovers", "m", "r"}, (
            "only sessions, and what is being deleted or moved"
        )


async def test_a_session_is_renamed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await prompted(r)
        await cli.call(
            "sessions/rename", session=session.record.conversation_name, title="  The  parser "
        )
        assert (await cli.call("sessions/show", session=session.id))["summary"][
            "title"
        ] == "The parser"
        assert (
            "`title`"
            in (await cli.refused("sessions/rename", session=session.id, title=" "))["message"]
        )


async def test_the_history_is_followed_to_its_end(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await prompted(r, "say 4")
        await r.run(session, "say 2")
        assert await cli.call("follow", session=session.id) == {"seq": session.last_seq}
        assert [one["seq"] for one in cli.told("event")] == [1, 2, 6, 7, 9]
        assert cli.text() == "0 1 2 3 0 1 "
        cli.notifications.clear()
        await cli.call("follow", session=session.id, turns=1)
        kinds = [one["update"]["sessionUpdate"] for one in cli.told("event")]
        assert kinds[:2] == ["session_info_update", "user_message_chunk"]
        assert cli.text() == "0 1 "
        cli.notifications.clear()
        await cli.call("follow", session=session.id, after=session.last_seq - 1)
        assert len(cli.told("event")) == 1
        await cli.call("follow", session=session.id, after=10_000)
        assert len(cli.told("event")) == 1
        await eventually(lambda: len(session.subscriptions) == 1)


async def test_waiting_prompts_are_none_of_newest_turns(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await prompted(r, "say 4")
        running = await r.prompt(session, "hang")
        await eventually(lambda: session.last_seq > 6)
        waiting = await r.prompt(session, "say 1")
        await cli.call("follow", session=session.id, turns=1)
        kinds = [one["update"]["sessionUpdate"] for one in cli.told("event")]
        assert kinds == ["session_info_update", "user_message_chunk"]
        for turn in (waiting, running):
            session.cancel(turn)
            await turn.ended


async def test_times_of_prompts_come_with_events(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await prompted(r, "say 1")
        await r.run(session, "say 1")
        await cli.call("follow", session=session.id, events=True)
        told = [one for one in cli.told("event") if one["at"] is not None]
        rows = await r.database.read("SELECT created_at FROM acp_turns ORDER BY created_at")
        assert [one["update"]["sessionUpdate"] for one in told] == ["user_message_chunk"] * 2
        assert [one["at"] for one in told] == [at for (at,) in rows]


async def test_newest_turns_are_those_of_a_replay(tmp_path: Path) -> None:
    """What Claude does by itself belongs to the turn before."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await prompted(r, "say 1")
        await r.run(session, "say 2")
        channel, why = r.launcher.launched[-1], "\n\n> The background command `make` has ended.\n\n"
        before = session.last_seq + 1
        channel.last += 1
        note = Text("own-why", why, note=True)
        channel.say(EventFrame(epoch=1, n=channel.last, turn_id=None, event=note))
        channel.say(channel.started("own", background=True))
        channel.say(channel.event("own", "It has."), channel.ended("own"))
        await eventually(lambda: session.last_seq > before and not session.background)
        await cli.call("follow", session=session.id, turns=1)
        assert cli.text() == f"0 1 {why}It has."


async def test_newest_turns_come_with_calls_that_run(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session, channel, turn = await hanging(r)
        begun = ToolStarted("call", "Bash", "make serve", "execute")
        for event in (begun, ToolStarted("over", "Bash", "ls", "execute")):
            channel.last += 1
            channel.say(EventFrame(epoch=1, n=channel.last, turn_id=turn, event=event))
        channel.last += 1
        over = ToolEnded("over", "completed")
        channel.say(EventFrame(epoch=1, n=channel.last, turn_id=turn, event=over))
        channel.say(channel.ended(turn))
        await eventually(lambda: not session.busy)
        await r.run(session, "say 1")
        channel.last += 1
        ends = ToolEnded("call", "completed", background=True)
        channel.say(EventFrame(epoch=1, n=channel.last, turn_id=None, event=ends))
        await eventually(lambda: not list(session.log.open_tools))
        await cli.call("follow", session=session.id, turns=1)
        told = [one["update"] for one in cli.told("event")]
        assert [one["title"] for one in told if one["sessionUpdate"] == "tool_call"] == [
            "make serve"
        ]
        assert [
            one.get("toolCallId") for one in told if one["sessionUpdate"] == "tool_call_update"
        ] == ["call"]


async def test_newest_turns_begin_no_later_for_claudes(tmp_path: Path) -> None:
    """The log is in memory, as a client has the session open."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli, caller(r, tmp_path) as other:
        session = await prompted(r, "say 1")
        other.begin("follow", session=session.id, live=True)
        await eventually(lambda: other.text() == "0 ")
        channel = r.launcher.launched[-1]
        await r.run(session, "say 2")
        channel.begin_own("own")
        channel.say(channel.ended("own"))
        await eventually(lambda: not session.background and "Why." in other.text())
        await r.run(session, "say 3")
        await cli.call("follow", session=session.id, turns=2)
        assert cli.text().startswith("0 1 ")


async def test_live_follow_is_endless_and_not_a_client(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await prompted(r, "say 1")
        before = (await cli.call("status"))["clients"]
        live = cli.begin("follow", session=session.id, live=True)
        await eventually(lambda: cli.text() == "0 ")
        await r.run(session, "say 3")
        await eventually(lambda: cli.text() == "0 0 1 2 ")
        assert live not in cli.answers
        assert (await cli.call("status"))["clients"] == before
        await r.sessions.close(session)
        await eventually(lambda: live in cli.answers)


async def test_hidden_thoughts_are_not_attached(tmp_path: Path) -> None:
    """The log has them, and who reads that."""
    parts = (TextPart("> So.", thought=True), TextPart("I look."))
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        r.sessions.showing.thoughts = False
        session = await r.session()
        started = ToolStarted("a", "Agent", "Agent: look", "think")
        events: list[Event] = [
            Thinking("m1", "Hm."),
            started,
            ToolEnded("a", "completed", parts),
            Text("m2", "Ok"),
        ]
        await r.journal.append(session.id, events)
        session.record.last_seq = len(events)
        cli.begin("follow", session=session.id, live=True)
        await eventually(lambda: cli.text() == "Ok")
        for _ in range(2):
            assert not any(words in str(cli.notifications) for words in ("Hm.", "So."))
            assert "I look." in str(cli.notifications)
            cli.notifications.clear()
            await cli.call("follow", session=session.id, asShown=True, events=True)
        cli.notifications.clear()
        await cli.call("follow", session=session.id)
        assert all(words in str(cli.notifications) for words in ("Hm.", "So."))


@pytest.mark.parametrize(
    ("method", "params"),
    [("follow", {"live": True}), ("prompt", {"text": "hang"})],
    ids=["attach", "prompt"],
)
async def test_client_leaving_during_quiet_is_gone(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as viewer:
        session = await prompted(r, "say 1")
        for one in session.subscriptions:
            one.close()
        async with caller(r, tmp_path) as cli:
            cli.begin(method, session=session.id, present=True, **params)
            await eventually(lambda: session.subscriptions)
            assert (await viewer.call("status"))["clients"] == 1
            await cli.leave()
            await eventually(lambda: not session.subscriptions)
            assert (await viewer.call("status"))["clients"] == 0


async def test_present_follower_is_shown_questions_and_answers_them(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli, caller(r, tmp_path) as viewer:
        session, channel, turn = await hanging(r)
        for subscription in session.subscriptions:
            subscription.close()
        cli.begin("follow", session=session.id, live=True, present=True)
        viewer.begin("follow", session=session.id, live=True)
        await eventually(lambda: len(session.subscriptions) == 2)
        channel.say(question(channel, turn))
        await eventually(lambda: cli.told("question"))
        (told,) = cli.told("question")
        known = {"id": "question-1", "session": session.id, "title": "Bash: ls", "always": False}
        assert {name: told[name] for name in known} == known
        assert (
            "can be decided with: --allow, --deny."
            in (await cli.refused("questions/answer", question="q", decision="allow_always"))[
                "message"
            ]
        )
        await cli.call("questions/answer", question="question", decision="allow_once")
        how = {"outcome": "selected", "decision": "allow_once", "by": "cli"}
        await eventually(lambda: cli.told("settled") == [{"id": "question-1", **how}])
        assert await cli.call("questions/list") == []
        rows = await r.database.read("SELECT outcome, option_id, answered_by FROM acp_permissions")
        assert rows == [("selected", "allow_once", "cli")]
        assert not viewer.told("question")
        late = await cli.refused("questions/answer", question="question-1", decision="deny")
        assert late["code"] == -32600


async def test_rules_of_unknown_session_are_refused_as_such(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session = await prompted(r)
        unknown = await cli.refused("rules/remove", session="nobody")
        assert unknown["code"] == -32002
        for word in (session.id[:8], session.record.conversation_name):
            none = await cli.refused("rules/remove", session=word)
            assert (none["code"], "no such rule" in none["message"]) == (-32602, True)
            rule = Statement(
                "INSERT INTO acp_session_rules VALUES (?, 'Bash(ls)', '', 1)", (session.id,)
            )
            await r.database.commit(Unit(statements=(rule,)))
            (gone,) = await cli.call("rules/remove", session=word)
            assert gone["session"] == session.id


async def test_operator_is_told_what_became_of_plan(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session, channel, turn = await hanging(r)
        for subscription in session.subscriptions:
            subscription.close()
        for reason, said in (("", "is told to ask"), ("Smaller.", "is told what should change")):
            channel.say(replace(question(channel, turn, f"plan-{reason}"), plan=True))
            await eventually(lambda: cli.call("questions/list"))
            (one,) = await cli.call("questions/list", whole=True)
            assert (one["cwd"], one["sessionTitle"]) == (session.record.cwd, session.record.title)
            given: dict[str, Any] = {"question": "plan", "decision": "deny", "reason": reason}
            assert said in (await cli.call("questions/answer", **given))["done"]


async def test_request_of_session_on_disk_names_its_directory(tmp_path: Path) -> None:
    """As of a parked one after a restart."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session, channel, turn = await hanging(r)
        for subscription in list(session.subscriptions):
            subscription.close()
        channel.say(question(channel, turn, "q1"))
        await eventually(lambda: cli.call("questions/list"))
        await r.database.commit(Unit(statements=(permissions.park("q1"),)))
        r.sessions.live.remove(session.id)
        (one,) = await cli.call("questions/list", whole=True)
        assert (one["cwd"], one["sessionTitle"]) == (session.record.cwd, session.record.title)


@pytest.mark.parametrize("method", ["trust/show", "trust/add", "trust/remove"])
@pytest.mark.parametrize(
    "path",
    ["", ".", "work", "/nothing/there", "/a\0b", "/" + "a/" * 3000, "/" + "a" * 300, "/\udcff"],
)
async def test_trust_is_for_directories_that_are_there(
    tmp_path: Path, method: str, path: str
) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        assert (await cli.refused(method, path=path))["code"] == -32602


async def test_stopping_the_workers_ends_their_turns_as_cancelled(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        one, _, first = await hanging(r)
        two, _, second = await hanging(r)
        waiting = await r.prompt(two, "say 1")
        assert await cli.call("workers/stop", session=one.id) == {"workers": 1}
        assert (await r.states())[first] == "cancelled"
        assert [row["session"] for row in await cli.call("workers/list")] == [two.id]
        assert await cli.call("workers/stop", all=True, now=True) == {"workers": 1}
        states = await r.states()
        assert (states[second], states[waiting.turn_id]) == ("cancelled", "cancelled")
        assert await cli.call("workers/list") == []
        assert not r.launcher.live
        assert (await r.run(two, "say 1")).state == "done"


async def test_dead_worker_with_row_is_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row waits for a spool that cannot be read; its pid may be another process's by then."""

    async def unreadable(*_: object) -> None:
        raise OSError("Input/output error")

    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        r.launcher.process = WorkerProcess(os.getpid(), 1, "an earlier boot")
        dead = await prompted(r)
        r.launcher.process = None
        live = await prompted(r)
        monkeypatch.setattr(r.launcher, "deliver_spool", unreadable)
        r.launcher.launched[0].kill()
        await eventually(lambda: not r.pool.is_live(dead.id) and r.launcher.kept)
        rows = await r.database.read("SELECT acp_session_id FROM acp_workers ORDER BY 1")
        assert rows == sorted([(dead.id,), (live.id,)])
        assert [one["session"] for one in await cli.call("workers/list")] == [live.id]
        assert [one["session"] for one in (await cli.call("status"))["workers"]] == [live.id]
        assert await cli.call("workers/stop", session=dead.id) == {"workers": 0}
        assert await cli.call("workers/stop", all=True) == {"workers": 1}


@pytest.mark.parametrize("busy", [True, False])
async def test_prompt_sent_after_workers_stop_has_another_worker(
    tmp_path: Path, *, busy: bool
) -> None:
    """While the command still waits for a worker that does not obey."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session, worker, turn = await hanging(r)
        worker.deaf = True
        if not busy:
            session = await r.session()
            await r.run(session, "say 1")
        before = list(r.launcher.launched)
        stopping = cli.begin("workers/stop", all=True)
        await eventually(lambda: [frame for frame in worker.got if isinstance(frame, Interrupt)])
        later = await r.prompt(session, "hang")
        await eventually(lambda: stopping in cli.answers)
        assert (await r.states())[turn] == "cancelled"
        await eventually(lambda: len(r.launcher.launched) > len(before))
        newest = r.launcher.launched[-1]
        await eventually(lambda: newest.prompts == ["hang"])
        newest.say(newest.ended(later.turn_id))
        assert (await asyncio.wait_for(later.ended, 60))[0].state == "done"


async def test_stopping_all_workers_requires_naming_all(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        session, _, turn = await hanging(r)
        for unclear in ({}, {"now": True}, {"session": session.id, "all": True}):
            assert "`all: true`" in (await cli.refused("workers/stop", **unclear))["message"]
        assert (await r.states())[turn] == "running"


async def test_wrong_parameters_are_named(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        assert "session" in (await cli.refused("sessions/show"))["message"]
        assert (
            "decision"
            in (await cli.refused("questions/answer", question="q", decision="perhaps"))["message"]
        )
        assert (await cli.refused("nothing"))["code"] == -32601


async def test_megabytes_in_a_conversations_row_are_cut(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        for n in range(3):
            row = Statement(
                "INSERT INTO conversations (name, session_id, cwd, created_at) VALUES (?, 's', ?, '2026')",
                (f"wa-{n}" + "x" * 5_000_000, "/" + "y" * 9_000_000),
            )
            await r.database.commit(Unit((row,)))
        listed = await cli.call("sessions/list", all=True)
        assert len(listed["sessions"]) == 3
        assert not listed["more"]
        assert listed["sessions"][0]["cut"]["conversation"] == 5_000_004
        found = await cli.call("sessions/show", session=listed["sessions"][0]["id"])
        assert found["summary"]["cut"]["conversation"] == 5_000_004


async def test_prompt_tells_new_session_before_it_ends(tmp_path: Path) -> None:
    """Who ends the command before Claude says anything is to know how to go on."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        at = cli.begin("prompt", new=str(tmp_path), text="hang")
        await eventually(lambda: cli.told("taken"))
        assert at not in cli.answers
        (session,) = r.sessions.live
        assert cli.told("taken") == [{"session": session}]
