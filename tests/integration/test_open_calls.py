"""Tool calls that go on for long: what the log keeps of them, who sees it when, and how they end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pykoclaw_acp.channel.frames import EventFrame
from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.model.events import (
    DiffPart,
    Event,
    Output,
    Text,
    TextPart,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.protocol import projection
from pykoclaw_acp.store import events, open_calls
from tests.integration.adopting import alive, daemon, die, found, killed
from tests.integration.linked import Front, front, new
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.queueing import execute
from tests.integration.rig import Client, Rig, hanging, rig
from tests.waiting import eventually

__all__ = ["alive"]

BEGUN = ToolStarted("call", "Bash", "make", "execute")
DIFF = DiffPart("/a", None, "new")
WRITTEN = ToolStarted("call", "Write", "Write a", "edit", pending=True)


def output(text: str, call: str = "call") -> ToolProgressed:
    return ToolProgressed(call, (TextPart(text),), Output(text))


def tell(channel: MemoryChannel, turn_id: str | None, *told: Event) -> None:
    for event in told:
        channel.last += 1
        channel.say(
            EventFrame(epoch=channel.spec.epoch, n=channel.last, turn_id=turn_id, event=event)
        )


async def acknowledged(channel: MemoryChannel) -> None:
    await eventually(lambda: channel.acked == channel.last)


def calls(shown: Sequence[Logged]) -> list[Event | None]:
    return [
        one.event
        for one in shown
        if isinstance(one.event, ToolStarted | ToolProgressed | ToolEnded)
    ]


async def kept(r: Rig, session_id: str) -> list[str]:
    rows = await r.database.read(
        "SELECT kind FROM acp_log JOIN acp_sessions USING (log_key) WHERE acp_session_id = ?"
        " ORDER BY seq",
        (session_id,),
    )
    return [kind for (kind,) in rows]


async def test_load_shows_commands_progress_then_end_once(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        tell(channel, turn.turn_id, BEGUN, Text("m", "It runs."))
        channel.say(channel.ended(turn.turn_id))
        tell(channel, None, output("one"), output("one two"))
        await acknowledged(channel)
        session.log.forget()
        late = Client()
        session.subscribe(late, 0)
        await eventually(lambda: late.shown and late.shown[-1].seq == session.last_seq)
        assert calls(late.shown) == [BEGUN, output("one two")]
        tell(channel, None, output("one two three"), ToolEnded("call", "completed"))
        await eventually(lambda: isinstance(late.shown[-1].event, ToolEnded))
        assert calls(late.shown)[2:] == [output("one two three"), ToolEnded("call", "completed")]
        assert late.places == list(range(1, session.last_seq + 1))


async def test_calls_row_that_is_bytes_is_left_out(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        tell(channel, turn.turn_id, BEGUN)
        channel.say(channel.ended(turn.turn_id))
        await acknowledged(channel)
        upto = session.last_seq
        assert len(await open_calls.find(r.database, session.id, upto)) == 1
        execute(
            r.database.path,
            "UPDATE acp_log SET payload = CAST(payload AS BLOB) WHERE kind = 'tool_started'",
        )
        assert await open_calls.find(r.database, session.id, upto) == []


async def test_long_commands_output_takes_one_row_beside_text(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        tell(channel, turn.turn_id, BEGUN)
        for n in range(20):
            tell(channel, turn.turn_id, Text("m", f"{n} "))
            tell(channel, None, output(f"line {n}"))
        tell(channel, turn.turn_id, ToolEnded("call", "completed", (TextPart("all"),)))
        channel.say(channel.ended(turn.turn_id))
        await acknowledged(channel)
        assert (await kept(r, session.id)).count("tool_progressed") == 0
        again = Client()
        session.log.forget()
        session.subscribe(again, 0)
        await eventually(lambda: again.shown and again.shown[-1].seq == session.last_seq)
        assert again.text == "".join(f"{n} " for n in range(20))
        assert [len(calls(again.shown)), again.places] == [2, list(range(1, session.last_seq + 1))]


async def test_dead_workers_calls_fail_with_reason_keeping_output(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        edit = ToolStarted("edit", "Write", "Write a", "edit", content=(DIFF,))
        tell(channel, turn.turn_id, BEGUN, edit, output("half"))
        await acknowledged(channel)
        client = Client()
        session.subscribe(client, session.last_seq)
        channel.kill()
        await eventually(lambda: len(calls(client.shown)) == 2)
        why = "Cut off before its end. Claude's worker process died."
        assert calls(client.shown) == [
            ToolEnded("call", "failed", (TextPart("half"),), reason=why),
            ToolEnded("edit", "failed", (DIFF,), reason=why),
        ]
        update: Any = projection.update(1, client.shown[0].event)
        assert [part.content.text for part in update.content] == ["half", why]


async def test_worker_dying_with_daemon_fails_calls_once(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        tell(channel, turn.turn_id, BEGUN)
        channel.say(channel.ended(turn.turn_id))
        tell(channel, None, output("half"))
        await acknowledged(channel)
    await die(alive)
    why = "Cut off before its end. pykoclaw-acp was stopped, and Claude's worker with it."
    for _ in range(2):
        async with daemon(tmp_path) as r:
            again = await found(r, session)
            logged = await again.log.read_after(0, 1000)
            ends = [one for one in calls(logged) if isinstance(one, ToolEnded)]
            assert ends == [ToolEnded("call", "failed", (TextPart("half"),), reason=why)]


async def test_calls_of_worker_outliving_its_daemon_continue(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        tell(channel, turn.turn_id, BEGUN)
        channel.say(channel.ended(turn.turn_id))
        tell(channel, None, output("half"))
        await acknowledged(channel)
    tell(channel, None, output("meanwhile"))
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        assert list(again.log.open_tools) == ["call"]
        client = Client()
        again.subscribe(client, 0)
        tell(channel, None, ToolEnded("call", "completed", (TextPart("done"),)))
        await eventually(lambda: client.shown and isinstance(client.shown[-1].event, ToolEnded))
        assert calls(client.shown)[-1] == ToolEnded("call", "completed", (TextPart("done"),))
        assert client.places == list(range(1, again.last_seq + 1))


async def test_only_calls_last_output_is_read_at_end(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.run(session, "say 1")
        await r.pool.stop(session.id)
        other = ToolStarted("other", "Bash", "ls", "execute")
        done = ToolEnded("other", "completed")
        await session.log.tell([BEGUN, other, output("a"), output("x", "other"), done, output("b")])
        tools = await events.open_tools(r.database, session.id, 1)
        assert tools.failed("why") == [ToolEnded("call", "failed", (TextPart("b"),), reason="why")]


def question(channel: MemoryChannel, turn_id: str) -> PermissionRequest:
    """The CLI asks about the call, with another input and title than it has."""
    channel.last += 1
    return PermissionRequest(
        epoch=channel.spec.epoch, n=channel.last, ask_id="ask", turn_id=turn_id,
        tool_call_id="call", title="make", tool_kind="execute", input={"path": "/w/a"},
    )  # fmt: skip


async def test_call_asked_about_fails_with_questions_input(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        client = Client()
        session.subscribe(client, 0)
        tell(channel, turn.turn_id, replace(BEGUN, title="Make it", input={"path": "a"}))
        channel.say(question(channel, turn.turn_id))
        await acknowledged(channel)
        channel.kill()
        await eventually(lambda: isinstance(calls(client.shown)[-1], ToolEnded))
        end = calls(client.shown)[-1]
        assert isinstance(end, ToolEnded)
        assert (end.title, end.input) == ("Make it", {"path": "/w/a"})


@pytest.mark.parametrize("worker", ["dead", "adopted"])
async def test_call_earlier_daemon_asked_about_fails_with_input(
    tmp_path: Path, alive: WorkerProcess, worker: str
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        tell(channel, turn.turn_id, replace(BEGUN, title="Make it", input={"path": "a"}))
        channel.say(question(channel, turn.turn_id))
        await acknowledged(channel)
    if worker == "dead":
        await die(alive)
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        client = Client()
        again.subscribe(client, 0)
        if worker == "adopted":
            channel.kill()
        await eventually(lambda: isinstance((calls(client.shown) or [None])[-1], ToolEnded))
        end = calls(client.shown)[-1]
        assert isinstance(end, ToolEnded)
        assert (end.title, end.input) == ("Make it", {"path": "/w/a"})


async def test_mitto_hears_of_no_progress_it_would_hide(
    tmp_path: Path,
) -> None:
    named = {"protocolVersion": 1, "clientInfo": {"name": "mitto", "version": "dev"}}
    unnamed = {"protocolVersion": 1}  # as Mitto may be, and others
    async with (
        rig(tmp_path) as r,
        front(r, "front-1") as editor,
        front(r, "front-2", initialize=named) as mitto,
        front(r, "front-3", initialize=unnamed) as other,
    ):
        session_id = await new(editor)
        given = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
        await mitto.result(1, "session/load", **given)
        await other.result(1, "session/load", **given)
        session = await r.sessions.find(session_id)
        assert session is not None
        allowed = ToolProgressed("call", title="make", allowed=True)
        told = (BEGUN, allowed, output("a"), output("ab"), ToolEnded("call", "completed"))
        await session.log.tell(told)
        await eventually(lambda: statuses(mitto)[-1:] == ["completed"])
        await eventually(lambda: statuses(editor)[-1:] == ["completed"])
        assert statuses(mitto) == ["in_progress", "completed"]
        assert statuses(editor) == [*["in_progress"] * 4, "completed"]
        await eventually(lambda: statuses(other)[-1:] == ["completed"])
        assert statuses(other) == [*["in_progress"] * 3, "completed"]


def statuses(one: Front) -> list[str]:
    return [update["status"] for update in updates(one)]


def updates(one: Front) -> list[dict[str, Any]]:
    lines = (json.loads(rest.split(" ", 2)[2]) for rest in one.rests("update"))
    return [line["params"]["update"] for line in lines]


async def test_call_announced_before_load_is_whole_there(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r, "front-1") as editor:
        session_id = await new(editor)
        session = await r.sessions.find(session_id)
        assert session is not None
        await session.log.tell([WRITTEN])
        await eventually(lambda: statuses(editor) == ["pending"])
        await editor.result(2, "session/close", sessionId=session_id)
        await session.log.tell([replace(WRITTEN, pending=False, input={"file_path": "a"})])
        given = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
        await editor.result(3, "session/load", **given)
        await eventually(lambda: len(updates(editor)) == 2)
        again = updates(editor)[-1]
        assert (again["sessionUpdate"], again["status"]) == ("tool_call", "in_progress")


async def test_call_announced_under_earlier_daemon_stays_whole(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        tell(channel, turn.turn_id, WRITTEN)
        await acknowledged(channel)
    whole = replace(WRITTEN, pending=False, input={"file_path": "a"})
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        tell(channel, turn.turn_id, whole)
        await acknowledged(channel)
        client = Client()
        again.subscribe(client, 0)
        await eventually(lambda: client.shown and client.shown[-1].seq == again.last_seq)
        assert calls(client.shown) == [whole]
