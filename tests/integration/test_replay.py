"""What `session/load` sends: windows, long payloads, damaged rows, whole messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from pykoclaw_acp.channel.frames import EventFrame
from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.cutting import MOST
from pykoclaw_acp.model.events import (
    Event,
    Plan,
    PlanEntry,
    Text,
    TextPart,
    TitleChanged,
    ToolEnded,
    ToolStarted,
    Usage,
    UserMessage,
)
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow
from pykoclaw_acp.protocol.projection import UNREADABLE
from pykoclaw_acp.protocol.replay import REPLAY
from pykoclaw_acp.sessions import subscription as subscriptions
from pykoclaw_acp.sessions.log import END_LOST
from pykoclaw_acp.sessions.subscription import PAGE, Subscription
from pykoclaw_acp.store.database import Statement, Unit
from pykoclaw_acp.store.session_journal import SessionJournal
from tests.integration.linked import front
from tests.integration.rig import Rig, rig
from tests.integration.wires import Wire, client, hanging, prompt
from tests.waiting import eventually

ROW = TranscriptRow("claude", "/t/claude.jsonl", 100, 1, 1, 80, "{}", "t1", related=True)
IDS = [f"00000000-0000-4000-8000-00000000000{n}" for n in range(3)]


async def session_with(r: Rig, *events: Event) -> str:
    session = await r.sessions.create("/", (), ())
    await SessionJournal(r.database).append(session.id, events)
    session.record.last_seq = len(events)
    return session.id


def turn(number: int, *events: Event) -> list[Event]:
    asked = UserMessage(IDS[number], {"type": "text", "text": f"asked {number}"})
    return [asked, *events, Text(f"m{number}", f"answer {number}")]


async def load(wire: Wire, session: str, **meta: Any) -> dict[str, Any]:
    given = {"_meta": {REPLAY: meta}} if meta else {}
    return await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[], **given)


def shown(wire: Wire) -> list[str]:
    """Kinds, with texts of messages and names of tools."""
    found: list[str] = []
    for one in wire.updates():
        kind = one["sessionUpdate"]
        words = one.get("content", {}) if kind.endswith("_chunk") else {}
        found.append(f"{kind} {words.get('text', one.get('toolCallId', ''))}".strip())
    return found


async def test_window_has_newest_turns_and_state_there(tmp_path: Path) -> None:
    todo = Plan((PlanEntry("one", "completed"), PlanEntry("two")))
    running = ToolStarted("background", "Bash", "Bash: make", "execute")
    done: list[Event] = [
        ToolStarted("done", "Bash", "Bash: ls", "execute"),
        ToolEnded("done", "completed"),
    ]
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        events = [
            *turn(0, TitleChanged("A title"), todo, running, *done),
            *turn(1),
            *turn(2, ToolEnded("background", "completed", (TextPart("made"),))),
        ]
        session = await session_with(r, *events)
        result = (await load(wire, session, last=2))["result"]
        assert result["_meta"] == {REPLAY: {"after": 7, "turnsLeftOut": 1}}
        assert shown(wire) == [
            "session_info_update",
            "plan",
            "tool_call background",
            "agent_message_chunk *(1 earlier turn of this conversation left out.)*",
            "user_message_chunk asked 1",
            "agent_message_chunk answer 1",
            "user_message_chunk asked 2",
            "tool_call_update background",
            "agent_message_chunk answer 2",
        ]
        assert "_meta" not in (await load(other, session, last=3))["result"].get("_meta", {})
        assert "left out" not in str(shown(other))
        assert len(other.updates()) == len(events)


@pytest.mark.parametrize(
    "given", [{"last": 0}, {"last": -1}, {"last": True}, {"last": 1.5}, {"first": 3}, {}, 3, "all"]
)
async def test_a_window_that_is_none_is_refused(tmp_path: Path, given: Any) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(r, *turn(0))
        params = {"sessionId": session, "cwd": "/", "mcpServers": [], "_meta": {REPLAY: given}}
        answer = await wire.call("session/load", **params)
        assert answer["error"]["code"] == -32602
        assert REPLAY in answer["error"]["message"]
        resumed = await wire.call("session/resume", **{**params, "_meta": {REPLAY: {"last": 1}}})
        assert resumed["error"]["code"] == -32602


async def test_long_payloads_are_cut_naming_where_whole(tmp_path: Path) -> None:
    long = "x" * (MOST + 7)
    started = ToolStarted("t", "Write", "Write f", "edit", input={"content": long, "path": "f"})
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(
            r, *turn(0, started, ToolEnded("t", "completed", (TextPart(long),))), Text("n", long)
        )
        await load(wire, session)
        _, call, update, _, text = wire.updates()
        mark = (
            f"… [cut: {MOST + 7:,} characters in all; `pykoclaw-acp sessions show {session} --seq "
        )
        assert call["rawInput"]["path"] == "f"
        assert call["rawInput"]["content"].startswith("x" * MOST + f"\n{mark}2`")
        assert update["content"][0]["content"]["text"] == "x" * MOST
        assert update["content"][1]["content"]["text"].startswith(f"{mark}3`")
        assert text["content"]["text"] == long  # what was said is not cut


async def test_a_message_over_several_pages_is_one_chunk(tmp_path: Path) -> None:
    """Its pieces are rows of their own, since its turn still runs."""
    pieces = [Text("m", f"{number} ") for number in range(2 * PAGE + 10)]
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(r, Text("before", "x"), *pieces, Text("after", "y"))
        await load(wire, session)
        texts = [one["content"]["text"] for one in wire.updates()]
        assert texts == ["x", "".join(one.text for one in pieces), "y"]


@pytest.mark.parametrize("seq", [0, 2, 5, 6])
async def test_front_that_lost_daemon_gets_windows_rest(tmp_path: Path, seq: int) -> None:
    """It stands before the window, at the title that was shown first, where the window begins, or
    inside of it, and asks again.
    """
    async with rig(tmp_path) as r:
        session = await session_with(r, *turn(0, TitleChanged("A title")), *turn(1), *turn(2))
        params = {
            "sessionId": session,
            "cwd": "/",
            "mcpServers": [],
            "_meta": {REPLAY: {"last": 1}},
        }
        async with front(r, "one") as first:
            await first.result(1, "session/load", **params)
            assert (first.seqs(), first.text()) == ([2, 6, 7], "answer 2")
            await first.leave()
        place = {session: {"seq": seq, "line": 1, "seen": seq}}
        async with front(r, "one", sessions=place) as second:
            second.call(1, "session/load", again=0, **params)
            assert "result" in await second.answer(1)
            assert second.text() == "answer 2"


async def test_window_that_has_moved_leaves_no_gap(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        events = [*turn(0, TitleChanged("A title")), *turn(1), *turn(2)]
        session = await session_with(r, *events)
        # Its window began at 3 when it asked first, and it has the message of turn 1.
        place = {session: {"seq": 4, "line": 1, "seen": 4}}
        async with front(r, sessions=place) as one:
            one.call(
                1, "session/load", again=0, sessionId=session, cwd="/", mcpServers=[],
                _meta={REPLAY: {"last": 1}},
            )  # fmt: skip
            await one.answer(1)
            assert one.text() == "answer 1answer 2"


async def test_load_never_repeated_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "HELD_BACK", 0.01)
    async with rig(tmp_path) as r:
        session = await session_with(r, *turn(0), *turn(1))
        async with front(r, sessions={session: {"seq": 3, "line": 1}}) as one:
            await eventually(lambda: one.text() == "answer 1")


# --- the checklist of seed 0, "Load"


async def test_two_concurrent_loads_each_have_whole_history(tmp_path: Path) -> None:
    """And a client that has the session open already sees nothing of them."""
    async with rig(tmp_path) as r, client(r) as there, client(r) as one, client(r) as other:
        session = await session_with(r, *turn(0), *turn(1))
        await load(there, session)
        seen = len(there.updates())
        params = {"sessionId": session, "cwd": "/", "mcpServers": []}
        calls = [one.begin("session/load", **params) for _ in range(2)]
        await load(other, session)
        assert ["result" in await one.answer(call) for call in calls] == [True, True]
        assert shown(other) == shown(there)
        assert shown(one) == shown(there) * 2
        assert len(there.updates()) == seen


async def test_a_cancel_during_a_replay_changes_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(r, *turn(0), *turn(1))
        wire.blocked.clear()
        call = wire.begin("session/load", sessionId=session, cwd="/", mcpServers=[])
        wire.send({"method": "session/cancel", "params": {"sessionId": session}})
        wire.blocked.set()
        assert "result" in await wire.answer(call)
        assert shown(wire)[-1] == "agent_message_chunk answer 1"
        answer = await wire.call("session/prompt", **prompt(session, "say 1"))
        assert answer["result"]["stopReason"] == "end_turn"


async def begin_load(wire: Wire, session: str) -> tuple[int, Subscription]:
    """Begin a load that does not come further than to its first update."""
    subscriptions = wire.connection.client.subscriber.subscriptions
    before = subscriptions.get(session)
    wire.blocked.clear()
    call = wire.begin("session/load", sessionId=session, cwd="/", mcpServers=[])
    await eventually(lambda: subscriptions.get(session) is not before)
    return call, subscriptions[session]


async def cancel_load(wire: Wire, session: str) -> None:
    call, replay = await begin_load(wire, session)
    wire.send({"method": "$/cancel_request", "params": {"requestId": call}})
    await eventually(lambda: not replay.alive)
    wire.blocked.set()
    assert (await wire.answer(call))["error"]["code"] == -32800


async def test_a_cancelled_load_leaves_what_was_followed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        session = await session_with(r, *turn(0), *turn(1))
        await load(wire, session)
        await load(other, session)
        seen = len(wire.updates())
        await cancel_load(wire, session)
        await other.call("session/prompt", **prompt(session, "say 1"))
        await eventually(lambda: "agent_message_chunk 0" in shown(wire))
        assert shown(wire)[seen] == "user_message_chunk say 1"


async def test_a_cancelled_load_leaves_no_rest_for_later(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(r, *turn(0), *turn(1))
        await cancel_load(wire, session)
        await wire.call("session/prompt", **prompt(session, "say 1"))
        assert wire.text() == "0 "


async def test_client_leaving_during_load_is_gone(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(r, *turn(0), *turn(1))
        await load(wire, session)
        _, replay = await begin_load(wire, session)
        wire.connection.leave()
        await wire.connection.calls.wait_ended()
        await eventually(lambda: not replay.alive)
        assert r.sessions.live[session].subscriptions == []


async def test_a_replay_ends_with_the_usage(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(r, *turn(0, Usage(1, 9)), *turn(1), Usage(5, 9))
        await load(wire, session)
        assert wire.updates()[-1]["used"] == 5


@pytest.mark.parametrize(
    ("column", "damaged"),
    [
        ("payload", '{"kind":"text","message_id":"m1","text":"answer \ufffd'),
        ("payload", b'{"kind":"text","message_id":"m1","text":"\xff\xfe"}'),
        ("payload", b"\x00\x01"),
        ("cuts", "3x!"),
        ("turn", "no number"),
    ],
)
async def test_a_damaged_row_is_one_placeholder(
    tmp_path: Path, column: str, damaged: str | bytes
) -> None:
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        session = await session_with(r, *turn(0), *turn(1), *turn(2))
        damage = f"UPDATE acp_log SET {column} = CAST(? AS TEXT) WHERE seq = 4"
        await r.database.commit(Unit((Statement(damage, (damaged,), rows=1),)))
        await load(wire, session)
        texts = [one["content"]["text"] for one in wire.updates()]
        expected = ["asked 0", "answer 0", "asked 1", "answer 1", "asked 2", "answer 2"]
        if column == "payload":
            expected[3] = UNREADABLE
        assert texts == expected
        await load(other, session, last=1)
        assert other.updates()[-1]["content"]["text"] == "answer 2"


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"type": "nope"},
        {"type": ["text"]},
        {"type": "text"},
        {"type": "text", "text": 5},
        {"type": "text", "text": "x", "annotations": 7},
        {"type": "image", "data": 5},
        {"type": "image", "data": "QQ=="},
        {"type": "image", "mimeType": "image/png", "holds": "data", "sha256": 5, "size": 1},
        {"type": "image", "mimeType": "image/png", "holds": "what", "sha256": "a", "size": 1},
        {"type": "resource", "resource": 7},
        {"type": "resource", "resource": {"uri": "file:///a"}},
        {"type": "resource", "uri": "file:///a", "text": 7},
        {"type": "resource_link", "uri": "file:///a"},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "size": "big"},
    ],
)
async def test_words_that_acp_cannot_carry_become_placeholder(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(r, *turn(0), UserMessage("u", content), *turn(1))
        await load(wire, session)
        texts = [one["content"]["text"] for one in wire.updates()]
        assert texts == ["asked 0", "answer 0", UNREADABLE, "asked 1", "answer 1"]


@pytest.mark.parametrize(
    "content",
    [
        {"type": "text", "text": "x", "annotations": {"audience": ["user"]}},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "size": 5},
        {"type": "image", "data": "QQ==", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": ""}},
    ],
)
async def test_content_of_acp_is_shown_as_it_is(tmp_path: Path, content: dict[str, Any]) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(r, UserMessage("u", content))
        await load(wire, session)
        assert [one["content"] for one in wire.updates()] == [content]


async def test_call_with_damaged_end_is_closed_once(
    tmp_path: Path,
) -> None:
    events = [
        *turn(0, ToolStarted("t", "Bash", "Bash: ls", "execute", content=(TextPart("ls"),))),
        ToolEnded("t", "completed", (TextPart("a"),)),
        *turn(1),
    ]
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        session = await session_with(r, *events)
        damage = "UPDATE acp_log SET payload = 'x' WHERE kind = 'tool_ended'"
        await r.database.commit(Unit((Statement(damage, (), rows=1),)))
        for one, meta in ((wire, {}), (other, {"last": 1}), (wire, {})):
            before = len(one.updates())
            await load(one, session, **meta)
            calls = [
                (told["toolCallId"], told["status"])
                for told in one.updates()[before:]
                if told["sessionUpdate"].startswith("tool_call")
            ]
            assert calls == [("t", "in_progress"), ("t", "failed")]
        assert END_LOST in str(wire.updates()[-1])
        assert "ls" in str(wire.updates()[-1]["content"])


@pytest.mark.parametrize("hindrance", ["locked", "recovery"])
async def test_damaged_call_stays_open_while_end_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hindrance: str
) -> None:
    """Nothing can be stored, or what runs is not known yet: the history is shown all the same."""
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(r, *turn(0, ToolStarted("t", "Bash", "Bash: ls", "execute")))
        found = await r.sessions.get(session)
        with monkeypatch.context() as patch:
            if hindrance == "locked":
                locked = AsyncMock(side_effect=StoreUnavailable("locked", "It is locked."))
                patch.setattr(found.log, "tell", locked)
            else:
                patch.setattr(r.sessions, "awaits_recovery", True)
            await load(wire, session)
        assert [one["status"] for one in wire.updates() if "status" in one] == ["in_progress"]
        await load(wire, session)
        assert "failed" in str(wire.updates()[-1])


async def test_a_call_that_another_program_runs_stays_open(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(r, *turn(0, ToolStarted("t", "Bash", "Bash: ls", "execute")))
        mark = "UPDATE acp_log SET source_uuid = 'theirs' WHERE kind = 'tool_started'"
        await r.database.commit(Unit((Statement(mark, (), rows=1),)))
        await load(wire, session)
        assert "failed" not in str(wire.updates())


async def test_running_turns_call_stays_open(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        session, _, _, _ = await hanging(r, wire)
        found = await r.sessions.find(session)
        assert found is not None
        await found.log.tell([ToolStarted("t", "Bash", "Bash: make", "execute")])
        await load(other, session)
        assert "tool_call t" in shown(other)
        assert "failed" not in str(other.updates())


def plans(wire: Wire) -> list[list[str]]:
    """The lists of tasks that were sent."""
    told = [one for one in wire.updates() if one["sessionUpdate"] == "plan"]
    return [[entry["content"] for entry in one["entries"]] for one in told]


async def test_task_list_is_replayed_as_turns_left_it(tmp_path: Path) -> None:
    """Live each state is sent, also while the newest events are in memory."""
    one, two, three = (Plan(tuple(PlanEntry(name) for name in names)) for names in ("a", "ab", "c"))
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        session, running, worker, turn_id = await hanging(r, wire)
        for event in (one, Text("m", "x"), two, one, two, Plan(()), three, two):
            worker.last += 1
            epoch = worker.spec.epoch
            worker.say(EventFrame(epoch=epoch, n=worker.last, turn_id=turn_id, event=event))
        worker.say(worker.ended(turn_id))
        await wire.answer(running)

        await eventually(lambda: len(plans(wire)) == 7)
        for _ in range(2):
            await load(other, session)
            assert plans(other) == [["a", "b"], [], ["a", "b"]]
            other.lines.clear()
            r.sessions.live[session].log.forget()


async def test_imported_turns_task_list_is_replayed_as_left(
    tmp_path: Path,
) -> None:
    """However many pages the turn has, and wherever they end."""
    one, two, three = (Plan(tuple(PlanEntry(name) for name in names)) for names in ("a", "ab", "c"))
    many = [Text(f"p{n}", ".") for n in range(PAGE - 3)]
    async with rig(tmp_path) as r, client(r) as wire:
        first = turn(0, one, *many, two, *many, *many, three, one)
        said = [*first, *turn(1, two, three), *turn(2, *many, two)]
        piece = ImportedPiece(ROW, [(f"e{n}", event) for n, event in enumerate(said)])
        session = await session_with(r)
        r.sessions.live[session].log.publish(await r.journal.commit_piece(session, piece))
        r.sessions.live[session].log.forget()
        await load(wire, session)
        assert plans(wire) == [["a"], ["c"], ["a", "b"]]
        places = [one["_meta"]["pykoclaw.dev/seq"] for one in wire.updates()]
        assert places == sorted(set(places))
        assert len([one for one in shown(wire) if "." in one]) == 4 * len(many)


async def test_lines_of_a_replay_leave_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await session_with(r, *turn(0), *turn(1))
        told: list[int] = []
        monkeypatch.setattr(wire, "gather", lambda: told.append(len(wire.lines)))
        await load(wire, session)
        assert len(told) == 4
        assert wire.lines[-1]["result"] is not None
        await wire.call("session/prompt", **prompt(session, "say 1"))
        assert len(told) == 4, "what is live waits"
