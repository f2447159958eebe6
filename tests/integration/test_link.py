"""What the daemon promises to fronts that come and go, on real sessions and a real database, with
workers in memory.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pykoclaw_acp.channel.frames import Interrupt
from pykoclaw_acp.errors import Overloaded
from pykoclaw_acp.model import client_traits
from pykoclaw_acp.protocol import long_lines
from pykoclaw_acp.server.line_room import MOST, LineRoom
from pykoclaw_acp.server.session_recovery import hand_over
from pykoclaw_acp.server.sockets import SocketTransport
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import deduplication
from pykoclaw_acp.store.database import Statement
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.units import Unit
from tests.integration.adopting import recovered
from tests.integration.linked import (
    INITIALIZE,
    Front,
    front,
    new,
    prompts,
    there,
    until_there_is,
    words,
)
from tests.integration.rig import Rig, rig
from tests.waiting import eventually, not_within


async def finish(r: Rig, text: str = "done") -> None:
    """Let the hanging turn say something and end."""
    await there(r, "SELECT 1 FROM acp_turns WHERE state = 'running'")
    (channel,) = r.launcher.live
    (turn,) = [turn for turn, state in (await r.states()).items() if state == "running"]
    channel.say(channel.event(turn, text), channel.ended(turn))


async def test_prompt_resent_by_front_is_same_turn(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        one.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: prompts(r))
        await one.leave()
        async with front(r, sessions={session: {"seq": 0, "opened": {}}}) as again:
            again.call(2, "session/prompt", again=1, **words(session, "hang"))
            await finish(r)
            assert (await again.answer(2))["result"]["stopReason"] == "end_turn"
            assert again.seqs() == [
                2,
                3,
            ]  # 1 is its own message, of which it is only told the place; 2 the title
            assert [rest.split(" ")[1] for rest in again.rests("cursor")] == ["1"]
        async with front(r, sessions={session: {"seq": 3, "opened": {}}}) as later:
            later.call(
                2, "session/prompt", again=1, **words(session, "hang")
            )  # the answer did not arrive
            assert (await later.answer(2))["result"]["stopReason"] == "end_turn"
            assert later.seqs() == []
        assert prompts(r) == ["hang"]


async def test_request_that_killed_two_daemons_is_refused_unread(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with front(r, deaths={"1": 2, "2": 1, "7": 2}) as one:
            one.say(">> 1 5 no JSON: to read this would show that")
            one.call(2, "session/new", again=5, cwd="/", mcpServers=[])
            await one.answer(2)
            number, _, error = one.rests("refuse")[0].partition(" ")
            assert number == "1"
            assert json.loads(error)["data"] == {"errorKind": "server_died"}
            assert "Nothing of the request is kept" in json.loads(error)["message"]
            assert len(one.rests("answer")) == 1
            session = (await one.answer(2))["result"]["sessionId"]
            one.call(
                7, "session/prompt", **words(session, "hang")
            )  # new: nobody died over this one
            await eventually(lambda: one.rests("taken"))
            assert one.rests("taken") == ["7"]
        # What was taken all the same is answered as ever: the daemon died before it had said so.
        async with front(r, deaths={"2": 2, "7": 9}) as again:
            again.call(2, "session/new", again=5, cwd="/", mcpServers=[])
            assert (await again.answer(2))["result"]["sessionId"] == session
            again.call(7, "session/prompt", again=5, **words(session, "hang"))
            await eventually(lambda: again.rests("taken"))
            assert again.rests("refuse") == []
            assert await r.database.read("SELECT COUNT(*) FROM acp_turns") == [(1,)]


async def test_restored_database_runs_no_forgotten_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        async with front(r) as one:
            session = await new(one)
            one.call(2, "session/prompt", **words(session, "hang"))
            await eventually(lambda: one.rests("taken"))
        async with front(r, taken=[2, 3], sessions={session: {"seq": 0}}) as again:
            again.call(2, "session/prompt", again=5, **words(session, "hang"))
            again.call(3, "session/prompt", again=6, **words(session, "not in the journal"))
            again.call(4, "session/prompt", again=7, **words(session, "say 1"))
            await eventually(lambda: len(again.rests("taken")) == 2)
            assert again.rests("taken") == ["2", "4"]
            unfollowed = {"errorKind": "restored", "turnState": "unknown", "retryable": False}
            assert (await again.answer(3))["error"]["data"] == unfollowed
            assert await r.database.read("SELECT COUNT(*) FROM acp_turns") == [(2,)]


@pytest.mark.parametrize("lack", ["room", "memory"])
async def test_resent_line_that_cannot_be_read_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: str
) -> None:
    """Nobody is told that a prompt was not read which an earlier daemon has taken."""
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        long = words(session, "hang")
        long["prompt"].insert(0, {"type": "text", "text": "x" * 1024 * 1024})
        one.call(2, "session/prompt", **long)
        await eventually(lambda: one.rests("taken"))
        await one.leave()
        place = {session: {"seq": 0, "opened": {}}}
        hello = {"front": "front-1", "initialize": INITIALIZE, "taken": [2], "sessions": place}
        with monkeypatch.context() as patch:
            if lack == "memory":
                patch.setattr(long_lines, "shorten", Mock(side_effect=MemoryError))
            two = Front(r, hello, LineRoom(most=0 if lack == "room" else MOST))
            await eventually(lambda: two.rests("welcome"))
            two.call(2, "session/prompt", again=1, **long)
            await eventually(lambda: two.serving.done() or two.rests("answer"))
            assert not two.rests("answer")
            assert isinstance(two.serving.exception(), Overloaded)
        async with front(r, taken=[2], sessions=place) as again:
            again.call(2, "session/prompt", again=1, **long)
            await finish(r)
            assert (await again.answer(2))["result"]["stopReason"] == "end_turn"
            assert await r.database.read("SELECT COUNT(*) FROM acp_turns") == [(1,)]


async def test_line_that_joined_anothers_turn_rejoins_it(tmp_path: Path) -> None:
    """Its front is killed, then the daemon: the journal has the turn under the first line only."""
    meta: dict[str, Any] = {"_meta": {"pykoclaw.dev/idempotencyKey": "mine"}}
    async with rig(tmp_path) as r:
        async with front(r) as one:
            session = await new(one)
            one.call(2, "session/prompt", **words(session, "hang"), **meta)
            await eventually(lambda: one.rests("taken"))
        other: dict[str, Any] = {"front": "another", "sessions": {session: {"seq": 0}}}
        async with front(r, **other) as two:
            two.call(5, "session/prompt", again=5, **words(session, "hang"), **meta)
            await eventually(lambda: two.rests("taken") == ["5"])
        async with front(r, taken=[5], **other) as again:
            again.call(5, "session/prompt", again=5, **words(session, "hang"), **meta)
            await eventually(lambda: again.rests("taken") == ["5"])
            assert again.rests("refuse") == []
            assert await r.database.read("SELECT COUNT(*) FROM acp_turns") == [(1,)]


async def test_session_requested_again_is_created_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.leave()
        async with front(r) as again:
            again.call(1, "session/new", again=1, cwd="/", mcpServers=[])
            assert (await again.answer(1))["result"]["sessionId"] == session
        async with front(r, "another front") as other:
            assert await new(other) != session


async def test_prompt_resent_by_lost_client_joins_turn_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        one.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: prompts(r))
        await one.leave()
        async with front(r, "front-2") as two:
            await two.result(1, "session/resume", sessionId=session, cwd="/")
            two.call(2, "session/prompt", **words(session, "hang"))
            await finish(r)
            assert (await two.answer(2))["result"]["stopReason"] == "end_turn"
            two.say("done 2")
            await there(r, "SELECT 1 FROM acp_turns WHERE answered_at IS NOT NULL")
            assert prompts(r) == ["hang"]
            two.call(3, "session/prompt", **words(session, "hang"))  # this time the user means it
            await eventually(lambda: prompts(r) == ["hang", "hang"])


async def test_prompt_resent_after_unseen_end_gets_its_outcome(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        one.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: prompts(r))
        await one.leave()
        await finish(r)
        await there(r, "SELECT 1 FROM acp_turns WHERE state = 'done'")
        async with front(r, "front-2") as two:
            await two.result(1, "session/load", sessionId=session, cwd="/", mcpServers=[])
            assert (await two.result(2, "session/prompt", **words(session, "hang")))[
                "stopReason"
            ] == "end_turn"
            told = [kind for kind, _ in two.heard if kind in ("update", "answer")]
            assert "Claude was not asked again." in two.text()
            assert told[-2:] == ["update", "answer"], "and a person reads it with the answer"
        assert prompts(r) == ["hang"]


async def test_prompt_resent_with_other_annotations_joins_turn(tmp_path: Path) -> None:
    """They may have the time at which a client sends."""
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        sent = words(session, "hang")
        again = words(session, "hang")
        for given, at in ((sent, "10:00"), (again, "10:01")):
            given["prompt"][0]["annotations"] = {"lastModified": f"2026-11-29T{at}:00Z"}
        one.call(2, "session/prompt", **sent)
        await eventually(lambda: prompts(r))
        await one.leave()
        async with front(r, "front-2") as two:
            await two.result(1, "session/resume", sessionId=session, cwd="/")
            two.call(2, "session/prompt", **again)
            await finish(r)
            assert (await two.answer(2))["result"]["stopReason"] == "end_turn"
        assert prompts(r) == ["hang"]


@pytest.mark.parametrize("ends", ["before", "after"])
async def test_words_long_after_opening_are_new_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """A client sends again at once, by itself; a person reads the answer, and says "Go on." again."""
    monkeypatch.setattr(deduplication, "BY_ITSELF", 0.0)
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        one.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: prompts(r))
        await one.leave()
        if ends == "before":
            await finish(r)
            await there(r, "SELECT 1 FROM acp_turns WHERE state = 'done'")
        async with front(r, "front-2") as two:
            await two.result(1, "session/load", sessionId=session, cwd="/", mcpServers=[])
            if ends == "after":
                await finish(r)
                await there(r, "SELECT 1 FROM acp_turns WHERE state = 'done'")
            two.call(2, "session/prompt", **words(session, "hang"))
            await eventually(lambda: prompts(r) == ["hang", "hang"])
            assert "not asked again" not in two.text()


async def test_same_prompt_runs_again_while_client_is_connected(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one, front(r, "front-2") as two:
        session = await new(one)
        await two.result(1, "session/resume", sessionId=session, cwd="/")
        one.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: prompts(r))
        two.call(2, "session/prompt", **words(session, "hang"))
        await finish(r)
        await one.answer(2)
        await eventually(lambda: prompts(r) == ["hang", "hang"])


async def test_an_idempotency_key_names_a_prompt(tmp_path: Path) -> None:
    key = {"pykoclaw.dev/idempotencyKey": "k1"}
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        one.call(2, "session/prompt", **words(session, "hang", **key))
        await eventually(lambda: prompts(r))
        one.call(3, "session/prompt", **words(session, "hang", **key))
        await finish(r)
        assert (await one.answer(2))["result"] == (await one.answer(3))["result"]
        assert (
            await one.result(4, "session/prompt", **words(session, "hang", **key))
            == (await one.answer(2))["result"]
        )
        one.call(5, "session/prompt", **words(session, "something else", **key))
        assert "idempotencyKey" in (await one.answer(5))["error"]["message"]
        one.call(
            6, "session/prompt", **words(session, "hang", **{"pykoclaw.dev/idempotencyKey": ""})
        )
        assert (await one.answer(6))["error"]["code"] == -32602
        assert prompts(r) == ["hang"]


async def test_resent_cancel_spares_later_prompts(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        before = time.time_ns() // 1_000_000 - 1000
        one.call(3, "session/prompt", **words(session, "hang"))
        await eventually(lambda: prompts(r))
        (channel,) = r.launcher.live
        channel.say(channel.started("by itself", background=True))
        await until_there_is(r, "turn_id = 'by itself'")
        one.notify(2, "session/cancel", again=before + 3_600_000, sessionId=session)
        await eventually(lambda: "2" in one.rests("ack"))
        async with front(r, "front-2") as two:  # of another front, the time decides
            two.notify(9, "session/cancel", again=before, sessionId=session)
            await eventually(lambda: "9" in two.rests("ack"))
            assert set((await r.states()).values()) == {"running"}
            two.notify(10, "session/cancel", again=before + 3_600_000, sessionId=session)
            assert (await one.answer(3))["result"]["stopReason"] == "cancelled"
            assert (await r.states())["by itself"] == "running"


async def test_cancel_is_acknowledged_once_sent_to_worker(tmp_path: Path) -> None:
    """From then on it outlives the daemon; before, the front has to send it again."""
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        one.call(3, "session/prompt", **words(session, "hang"))
        await eventually(lambda: prompts(r))
        (channel,) = r.launcher.live
        channel.full = asyncio.Event()
        one.notify(4, "session/cancel", sessionId=session)
        await eventually(lambda: any(isinstance(frame, Interrupt) for frame in channel.got))
        assert "4" not in one.rests("ack")
        channel.full.set()
        await eventually(lambda: "4" in one.rests("ack"))
        assert (await one.answer(3))["result"]["stopReason"] == "cancelled"


async def test_cancel_without_worker_is_acknowledged_once_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        r.launcher.slow = True
        one.call(3, "session/prompt", **words(session, "hang"))
        await eventually(lambda: r.launcher.live)
        asked, may_end, end = asyncio.Event(), asyncio.Event(), SessionJournal.finish

        async def finish(*given: Any, **more: Any) -> Any:
            asked.set()
            await may_end.wait()
            return await end(*given, **more)

        monkeypatch.setattr(SessionJournal, "finish", finish)
        one.notify(4, "session/cancel", sessionId=session)
        await asyncio.wait_for(asked.wait(), 30)
        assert "4" not in one.rests("ack")
        may_end.set()
        await eventually(lambda: "4" in one.rests("ack"))
        assert list((await r.states()).values()) == ["cancelled"]


async def test_prompt_and_cancel_queued_without_daemon_cancel_out(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        sent_at = time.time_ns() // 1_000_000 - 300
        one.call(2, "session/prompt", again=sent_at, **words(session, "hang"))
        one.notify(3, "session/cancel", again=sent_at, sessionId=session)
        assert (await one.answer(2))["result"]["stopReason"] == "cancelled"


@pytest.mark.parametrize("line", [7, 8])
async def test_resent_load_continues_if_identical(tmp_path: Path, line: int) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 9"))
        await one.leave()
        async with front(r, sessions={session: {"seq": 6, "line": 7}}) as again:
            again.call(line, "session/load", again=1, sessionId=session, cwd="/", mcpServers=[])
            await again.answer(line)
            assert again.seqs()[-1] == 11
            assert again.text().endswith("4 5 6 7 8 " if line == 7 else "0 1 2 3 4 5 6 7 8 ")
            assert (1 in again.seqs()) == (line == 8)


async def close_as_daemon_dies(r: Rig, session: str) -> None:
    """As a daemon leaves it that dies once the close is committed."""
    await r.journal.mark_closed(session)
    r.sessions.live[session].record.closed = True


async def closed_behind(r: Rig, one: Front, said: str) -> str:
    """A session whose client has had an answer and is away, and that is closed as its daemon dies."""
    session = await new(one)
    await one.result(2, "session/prompt", **words(session, said))
    await one.leave()
    await close_as_daemon_dies(r, session)
    return session


async def test_resent_load_continues_in_closed_session(tmp_path: Path) -> None:
    """The daemon could not store that the load has opened it again."""
    async with rig(tmp_path) as r, front(r) as one:
        session = await closed_behind(r, one, "say 9")
        async with front(r, sessions={session: {"seq": 6, "line": 7}}) as again:
            again.call(7, "session/load", again=1, sessionId=session, cwd="/", mcpServers=[])
            await again.answer(7)
            assert again.text().endswith("4 5 6 7 8 ")
            assert 1 not in again.seqs()
            await again.result(8, "session/prompt", **words(session, "say 1"))
            assert again.text().endswith("8 0 ")


@pytest.mark.parametrize("gone", [False, True])
async def test_returning_client_leaves_closed_session(tmp_path: Path, gone: bool) -> None:
    """The daemon had died before it told so, and the client may not follow it once another client
    has opened it again.
    """
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 1"))
        await one.leave()
        if gone:
            await r.sessions.delete(r.sessions.live[session])
        else:
            await close_as_daemon_dies(r, session)
        places = {session: {"seq": 1, "opened": {}}}
        async with front(r, sessions=places) as again:
            again.call(3, "session/close", again=1, sessionId=session)
            assert ("result" in await again.answer(3)) == (not gone)
            attached = json.dumps(session)
            assert again.rests("attached") == [f"1 1 0 {attached}"]
            await eventually(lambda: again.rests("detached") == ["1"])
            assert again.text() == ("" if gone else one.text())


async def test_returning_client_is_shown_end_of_closed_session(tmp_path: Path) -> None:
    """Another client has closed it; the daemon died before it had shown what was left."""
    async with rig(tmp_path) as r, front(r) as one:
        session = await closed_behind(r, one, "say 3")
        async with front(r, sessions={session: {"seq": 2, "opened": {}}}) as again:
            await eventually(lambda: again.rests("detached"))
            assert again.text() == one.text() != ""
            assert not r.sessions.live[session].subscriptions


async def test_returning_client_follows_turn_left_in_closed_session(tmp_path: Path) -> None:
    """Its worker goes on, as the daemon died before it was told to stop."""
    async with rig(tmp_path) as r, front(r, "front-0") as author, front(r) as one:
        session = await new(author)
        await one.result(1, "session/load", sessionId=session, cwd="/", mcpServers=[])
        author.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].acked)
        await one.leave()
        await close_as_daemon_dies(r, session)
        async with front(r, sessions={session: {"seq": 1, "opened": {}}}) as again:
            await eventually(lambda: r.sessions.live[session].subscriptions)
            live = r.sessions.live[session]
            live.cancel()
            await eventually(lambda: again.rests("detached"))
            assert again.seqs()[-1] == live.last_seq
            assert not live.busy


async def test_returning_client_follows_claudes_own_turn_left(tmp_path: Path) -> None:
    """Claude has begun it by itself, in a session that another client has closed since."""
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 1"))
        live, (channel,) = r.sessions.live[session], r.launcher.live
        channel.begin_own("own")
        await eventually(lambda: live.background)
        await one.leave()
        await close_as_daemon_dies(r, session)
        async with front(r, sessions={session: {"seq": live.last_seq, "opened": {}}}) as again:
            await not_within(lambda: again.rests("detached"))
            channel.say(channel.event("own", "more"), channel.ended("own"))
            await eventually(lambda: again.rests("detached"))
            assert again.text() == "more"
            assert not live.subscriptions


async def test_returning_client_stays_while_recovery_waits(tmp_path: Path) -> None:
    """The daemon cannot take up yet what was left in the closed session: the next one lets go of it."""
    async with rig(tmp_path) as r, front(r) as one:
        session = await closed_behind(r, one, "say 1")
        r.sessions.awaits_recovery = True
        places = {session: {"seq": r.sessions.live[session].last_seq, "opened": {}}}
        async with front(r, sessions=places) as again:
            await not_within(lambda: again.rests("detached"))
        r.sessions.awaits_recovery = False
        async with front(r, sessions=places) as later:
            await eventually(lambda: later.rests("detached"))


async def test_resent_prompt_in_closed_session_leaves_no_gap(tmp_path: Path) -> None:
    """Another client has closed the session, and the daemon died before it told so."""
    async with rig(tmp_path) as r, front(r) as one:
        session = await closed_behind(r, one, "say 3")
        async with front(r, sessions={session: {"seq": 2, "opened": {}}}, taken=[2]) as again:
            again.call(2, "session/prompt", again=1, **words(session, "say 3"))
            await again.answer(2)
            assert again.text() == one.text() != ""
            await eventually(lambda: not r.sessions.live[session].subscriptions)


@pytest.mark.parametrize("known", [False, True])
async def test_resent_prompt_follows_closed_session_no_longer(tmp_path: Path, known: bool) -> None:
    """The client was let go of before its prompt came again, of which no daemon may have heard."""
    async with rig(tmp_path) as r, front(r) as one:
        session = await closed_behind(r, one, "say 3")
        places = {session: {"seq": r.sessions.live[session].last_seq, "opened": {}}}
        async with front(r, sessions=places) as again:
            await eventually(lambda: again.rests("detached"))
            again.call(2 if known else 3, "session/prompt", again=1, **words(session, "say 3"))
            assert ("result" in await again.answer(2 if known else 3)) == known
            await eventually(lambda: len(again.rests("detached")) == 2)
            assert not r.sessions.live[session].subscriptions


async def test_plain_resume_continues_after_confirmed_updates(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 9"))
        one.say("seen 1 6")
        await there(r, "SELECT 1 FROM acp_cursors WHERE seq = 6")
        await one.leave()
        async with front(r, "front-2") as two:
            two.call(1, "session/resume", sessionId=session, cwd="/")
            await eventually(lambda: two.seqs() == [11])
            assert two.text() == "4 5 6 7 8 "
            kinds = [kind for kind, _ in two.heard]
            assert kinds.index("answer") < kinds.index("update")
        async with front(
            r, "front-3", initialize={"protocolVersion": 1, "clientInfo": {"name": "other"}}
        ) as other:
            await other.result(1, "session/resume", sessionId=session, cwd="/")
            await other.result(2, "session/prompt", **words(session, "say 1"))
            assert other.seqs() == [13]  # a client that never saw anything is not told the past


async def test_a_resume_with_a_cursor_gets_what_follows(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 9"))
        for number, after in ((3, -1), (4, "1"), (5, True), (6, 1.5), (7, 12)):
            one.call(
                number,
                "session/resume",
                sessionId=session,
                cwd="/",
                _meta={"pykoclaw.dev/after": after},
            )
            assert (await one.answer(number))["error"]["code"] == -32602
        async with front(r, "front-2") as two:
            await two.result(
                1, "session/resume", sessionId=session, cwd="/", _meta={"pykoclaw.dev/after": 4}
            )
            await eventually(lambda: two.seqs() == [11])
            assert two.text() == "2 3 4 5 6 7 8 "


async def test_broken_introductions_end_the_connection_only(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        for hello in (b"front nonsense\n", b'front {"front": 3}\n', b"front {}\n"):
            broken = Front(r, {})
            broken.incoming = asyncio.Queue()
            broken.incoming.put_nowait(hello)
            broken.incoming.put_nowait(b"")
            with pytest.raises(Exception, match=r"introduc|read"):
                await broken.serving
        async with front(r) as one:
            one.say("what is this")
            one.say("> x y")
            one.say("seen 9 9")
            one.say("done 77")
            assert await new(one)


async def test_returning_client_is_answered_beside_damaged_session(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        damaged, good = await r.session(), await r.session()
        broken = Statement(
            "UPDATE acp_sessions SET last_seq = 'x' WHERE acp_session_id = ?", (damaged.id,)
        )
        await r.database.commit(Unit((broken,)))
        r.sessions.live.remove(damaged.id)
        places = {one.id: {"seq": 0, "seen": 0, "opened": {}} for one in (damaged, good)}
        async with front(r, sessions=places) as one:
            one.call(1, "session/load", sessionId=damaged.id, cwd="/", mcpServers=[])
            error = (await one.answer(1))["error"]
            assert (error["code"], error["data"]) == (-32603, {"sessionId": damaged.id})
            assert "damaged" in error["message"]
            assert await one.result(2, "session/prompt", **words(good.id, "say 1"))


async def test_repeated_prompt_gets_last_daemons_outcome_older_runs(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 1"))
    async with rig(tmp_path) as r:
        async with front(r, "front-2") as two:
            await two.result(1, "session/resume", sessionId=session, cwd="/")
            await two.result(2, "session/prompt", **words(session, "say 1"))
            assert prompts(r) == []
        month = 30 * 24 * 3600 * 1000
        ago = "UPDATE acp_turns SET ended_clock = ended_clock - ?"
        await r.database.commit(Unit(statements=(Statement(ago, (month,)),)))
    async with rig(tmp_path) as r, front(r, "front-3") as three:
        await three.result(1, "session/resume", sessionId=session, cwd="/")
        await three.result(2, "session/prompt", **words(session, "say 1"))
        assert prompts(r) == ["say 1"]


async def test_same_front_repeating_prompt_with_new_id_reruns(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 1"))
    place = {"seq": 99, "opened": {}}
    async with rig(tmp_path) as r, front(r, sessions={session: place}) as again:
        await again.result(3, "session/prompt", **words(session, "say 1"))
        assert prompts(r) == ["say 1"]


async def test_earlier_daemons_answer_is_confirmed_despite_resent_requests(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 1"))
        await one.leave()
        async with front(r, sessions={session: {"seq": 99}}) as again:
            again.call(1, "session/list", again=1)
            await again.answer(1)
            again.say("done 2")
            await until_there_is(r, "answered_at IS NOT NULL")


async def test_answer_of_no_call_is_looked_up_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with many sessions may send many lines that are no JSON."""
    looked = list[str]()
    monkeypatch.setattr(Session, "mark_request_answered", lambda _, key: looked.append(key))
    async with rig(tmp_path) as r:
        async with front(r) as one:
            session = await new(one)
        async with front(r, deaths={"5": 99}, sessions={session: {"seq": 0}}) as again:
            again.say("> 4 garbage")
            assert (await again.answer(4))["error"]["code"] == -32700
            again.call(5, "session/prompt", again=5, **words(session, "say 1"))
            await eventually(lambda: again.rests("refuse"))
            for number in (4, 5, 3):
                again.say(f"done {number}")
            await again.result(6, "session/list")
            assert looked == ["front-1:3"], "of which this daemon knows nothing"


async def test_prompt_of_turn_stopped_by_user_runs_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        one.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: prompts(r))
        one.notify(3, "session/cancel", sessionId=session)
        await one.answer(2)
        await one.leave()
        async with front(r, "front-2") as two:
            await two.result(1, "session/resume", sessionId=session, cwd="/")
            two.call(2, "session/prompt", **words(session, "hang"))
            await eventually(lambda: prompts(r) == ["hang", "hang"])


async def test_interrupted_replay_shows_user_messages_afterwards(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        for number in (2, 3, 4):
            await one.result(number, "session/prompt", **words(session, "say 2"))
        await one.leave()
        async with front(r, sessions={session: {"seq": 3, "line": 7}}) as again:
            again.call(7, "session/load", again=1, sessionId=session, cwd="/", mcpServers=[])
            await again.answer(7)
            assert sum("user_message_chunk" in update for update in again.rests("update")) == 2


async def test_unreadable_response_does_not_end_connection(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        one.say('> 1 {"jsonrpc":"2.0","id":1e999,"result":{}}')
        await eventually(lambda: "1" in one.rests("ack"))
        assert await new(one, 2)


SERVERS = [{"name": "m", "command": "/bin/true", "args": [], "env": []}]


def servers(r: Rig) -> list[str]:
    """Those of the worker that was launched last."""
    return [server.name for server in r.launcher.launched[-1].spec.options.mcp_servers]


async def test_session_requested_again_keeps_its_servers(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        await one.result(1, "session/new", cwd="/", mcpServers=SERVERS)
    async with rig(tmp_path) as r, front(r) as again:
        again.call(1, "session/new", again=1, cwd="/", mcpServers=SERVERS)
        session = (await again.answer(1))["result"]["sessionId"]
        await again.result(2, "session/prompt", **words(session, "say 1"))
        assert servers(r) == ["m"]
        opened = {"cwd": "/", "mcpServers": []}
        async with front(
            r, "front-2", sessions={session: {"seq": 0, "opened": opened}}
        ):  # it had been there before
            await again.result(3, "session/prompt", **words(session, "say 1"))
            assert len(r.launcher.launched) == 1
            assert servers(r) == ["m"]


async def test_many_servers_and_capabilities_survive_restart(tmp_path: Path) -> None:
    variables = [{"name": f"V{number}", "value": "v"} for number in range(8)]
    given = [SERVERS[0] | {"name": f"m{number}", "env": variables} for number in range(20)]
    async with rig(tmp_path) as r, front(r) as one:
        session = (await one.result(1, "session/new", cwd="/", mcpServers=given))["sessionId"]
    initialize = INITIALIZE | {"_meta": {"more": [{} for _ in range(200)]}}
    async with rig(tmp_path) as r:
        places = {session: {"seq": 0, "opened": {"mcpServers": given}}}
        async with front(r, initialize=initialize, sessions=places) as again:
            assert again.connection is not None
            assert again.connection.client.name == "editor"
            await again.result(2, "session/prompt", **words(session, "say 1"))
            assert servers(r) == [server["name"] for server in given]


async def test_waiting_prompt_runs_with_its_clients_servers(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = (await one.result(1, "session/new", cwd="/", mcpServers=SERVERS))["sessionId"]
        queued = (
            "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, request_key, state, created_at)"
            " VALUES ('t', ?, 'client', ?, 'front-1:2', 'queued', 1)"
        )
        prompt = json.dumps([{"type": "text", "text": "say 1"}])
        await r.database.commit(Unit(statements=(Statement(queued, (session, prompt)),)))
    async with rig(tmp_path) as r:
        await hand_over(await recovered(r, tmp_path), r.sessions, r.pool, r.database)
        opened = {"cwd": "/", "mcpServers": SERVERS}
        async with front(r, sessions={session: {"seq": 0, "opened": opened}}) as again:
            again.call(2, "session/prompt", again=1, **words(session, "say 1"))
            await eventually(lambda: prompts(r) == ["say 1"])
            assert servers(r) == ["m"]


async def test_last_prompt_of_leaving_front_runs(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        one.gone = True
        prompt = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "session/prompt",
            "params": words(session, "hang"),
        }
        one.say(
            f'> 2 {{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":7}}}}\n> 3 {json.dumps(prompt)}'
        )
        await one.leave()
        await eventually(lambda: prompts(r) == ["hang"])


async def test_prompt_of_cancelled_call_is_accepted_atomically(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        found = await r.sessions.find(session)
        assert found is not None
        await found.intake.lock.acquire()
        one.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: found.intake)
        assert one.connection is not None
        one.connection.leave()
        found.intake.lock.release()
        await eventually(lambda: prompts(r) == ["hang"])
        assert [(turn.waiting, turn.lost_at is None) for turn in found.turns] == [(0, False)]


async def test_close_refuses_or_stops_racing_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one, front(r, "front-2") as two:
        session = await new(one)
        await two.result(1, "session/resume", sessionId=session, cwd="/")
        found = await r.sessions.find(session)
        assert found is not None
        await found.intake.lock.acquire()
        two.call(2, "session/close", sessionId=session)
        one.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: found.intake)
        found.intake.lock.release()
        await two.answer(2)
        answer = await one.answer(2)
        assert (
            answer.get("result", {}).get("stopReason") == "cancelled"
            or "not open" in answer["error"]["message"]
        )
        assert not found.busy
        await eventually(lambda: two.rests("detached") == ["1"])
        await one.result(3, "session/prompt", **words(session, "say 3"))
        assert one.text().endswith("0 1 2 ")
        assert not one.rests("detached")


@pytest.mark.parametrize("method", ["session/new", "session/resume"])
async def test_updates_do_not_overtake_answer_of_resent_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 9"))

        async def slowly(_: float) -> None:
            for _ in range(50):
                await r.database.read("SELECT 1")

        monkeypatch.setattr(r.sessions.confirmations, "written", slowly)
        hasty = replace(client_traits.find("editor", "1"), catch_up_pause=0)
        monkeypatch.setattr(client_traits, "find", lambda *_: hasty)
        name = "front-1" if method == "session/new" else "front-2"
        opening = {"cwd": "/"} if method == "session/new" else {"cwd": "/", "sessionId": session}
        async with front(r, name, sessions={session: {"seq": 6}}) as again:
            await eventually(lambda: again.rests("attached"))
            again.call(1, method, again=1, mcpServers=[], **opening)
            await eventually(lambda: again.seqs() == [11])
            kinds = [kind for kind, _ in again.heard]
            assert kinds.count("attached") == 1
            assert kinds.index("answer") < kinds.index("update")


@pytest.mark.parametrize("meta", [{}, {"_meta": {"pykoclaw.dev/after": 6}}])
async def test_no_update_overtakes_answer_of_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meta: dict[str, Any]
) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 9"))
        one.say("seen 1 6")
        await there(r, "SELECT 1 FROM acp_cursors WHERE seq = 6")
        await one.leave()

        async def slowly(_: float) -> None:
            for _ in range(50):
                await r.database.read("SELECT 1")

        monkeypatch.setattr(r.sessions.confirmations, "written", slowly)
        async with front(r, "front-2") as two:
            assert two.connection is not None
            subscriber = two.connection.client.subscriber
            subscriber.traits = replace(subscriber.traits, catch_up_pause=0)
            two.call(1, "session/resume", sessionId=session, cwd="/", **meta)
            await eventually(lambda: two.seqs() == [11])
            kinds = [kind for kind, _ in two.heard]
            assert kinds.index("answer") < kinds.index("update")


async def test_a_front_is_told_of_a_cancelled_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would ask the next daemon for the rest."""
    async with rig(tmp_path) as r, front(r) as one, front(r, "front-2") as two:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 9"))
        write, free = two.write, asyncio.Event()

        async def slowly(line: bytes) -> None:
            if line.startswith(b"update"):
                await free.wait()
            await write(line)

        monkeypatch.setattr(two, "write", slowly)
        two.call(1, "session/load", sessionId=session, cwd="/", mcpServers=[])
        await eventually(lambda: two.rests("attached"))
        two.notify(2, "$/cancel_request", requestId=1)
        assert (await two.answer(1))["error"]["code"] == -32800
        await eventually(lambda: two.rests("detached") == ["1"])


async def test_a_cancelled_resume_stops_no_later_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, front(r) as one, front(r, "front-2") as two:
        session = await new(one)
        waits = asyncio.Event()

        async def never(_: float) -> None:
            waits.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(r.sessions.confirmations, "written", never)
            two.call(1, "session/resume", sessionId=session, cwd="/")
            await waits.wait()
            two.notify(2, "$/cancel_request", requestId=1)
            assert (await two.answer(1))["error"]["code"] == -32800
        answer = await two.result(3, "session/prompt", **words(session, "say 1"))
        assert answer["stopReason"] == "end_turn"


async def test_resume_as_notification_stops_no_later_answer(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one, front(r, "front-2") as two:
        session = await new(one)
        two.notify(1, "session/resume", sessionId=session, cwd="/")
        answer = await two.result(2, "session/prompt", **words(session, "say 1"))
        assert answer["stopReason"] == "end_turn"


async def test_a_delivery_can_be_stopped_at_every_moment() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    transport = await SocketTransport.of(ours, 30)

    async def deliver() -> None:
        for _ in range(100):
            await transport.write(b"x")
            await asyncio.sleep(0)

    for steps in range(10):
        delivery = asyncio.ensure_future(deliver())
        for _ in range(steps + 1):
            await asyncio.sleep(0)
        delivery.cancel()
        await asyncio.wait([delivery])
        assert delivery.cancelled()
    await transport.close()
    theirs.close()
