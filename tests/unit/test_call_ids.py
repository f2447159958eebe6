"""Ids of tool calls from services that use an id again."""

from __future__ import annotations

from binascii import crc32
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from claude_agent_sdk import ClaudeSDKClient
from claude_agent_sdk._internal.message_parser import parse_message

from pykoclaw_acp.channel.frames import EventFrame
from pykoclaw_acp.model.events import Event, TextPart, ToolEnded, ToolStarted
from pykoclaw_acp.translation.call_ids import given
from pykoclaw_acp.worker.claude import ClaudeSession
from pykoclaw_acp.worker.database_calls import DatabaseCalls
from pykoclaw_acp.worker.naming_calls import NamedCalls
from pykoclaw_acp.worker.outbox import Outbox
from pykoclaw_acp.worker.translate import Translator
from tests.unit.transcripts import Reading, Transcript, subagent
from tests.workers import spec

FIRST, SECOND = "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "22222222-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
SHOWN = ["call_0-11111111", "call_0-22222222"]
CLAUDES = "toolu_01ABCDEFGHIJKLMNOPQRSTUV"
INSIDE = f"call_0-{crc32(SHOWN[0].encode()):08x}"  # a call of the subagent of the first one


class Session:
    """Turns whose messages a worker reads."""

    def __init__(self) -> None:
        self.turn = FIRST
        self.translator = Translator("/work")
        self.named = NamedCalls(lambda: [self.turn], self.translator.running)

    def read(self, **frame: Any) -> list[Event]:
        self.named.rename(frame)
        message = parse_message({"session_id": "s", "uuid": "u", **frame})
        return [] if message is None else self.translator.events(message)

    def call(self, call: str = "call_0", name: str = "Bash", **more: Any) -> list[Event]:
        given = {"description": "Look"} if name == "Agent" else {"command": "ls"}
        block = {"type": "tool_use", "id": call, "name": name, "input": given}
        return self.read(type="assistant", message={"model": "x", "content": [block]}, **more)

    def result(self, call: str = "call_0", **more: Any) -> list[Event]:
        block = {"type": "tool_result", "tool_use_id": call, "content": "out"}
        return self.read(type="user", message={"content": [block]}, **more)

    def started(self, call: str, task: str, **more: Any) -> None:
        of = {"task_id": task, "tool_use_id": call, "description": "Look"}
        self.read(type="system", subtype="task_started", **of, **more)


def ids(events: list[Event], kind: type[ToolStarted | ToolEnded]) -> list[str]:
    return [one.tool_call_id for one in events if isinstance(one, kind)]


def test_reused_id_is_a_call_of_its_own() -> None:
    session = Session()
    events: list[Event] = []
    for session.turn in (FIRST, SECOND):
        events += session.call()
        assert session.call() == [], "the same report twice"
        assert session.named.asked("call_0") == ids(events, ToolStarted)[-1]
        events += session.result()
    assert ids(events, ToolStarted) == ids(events, ToolEnded) == SHOWN


def test_id_reused_in_one_turn_is_another_call() -> None:
    session = Session()
    events: list[Event] = []
    for _ in range(3):
        events += session.call()
        assert session.call() == [], "the same report twice"
        assert session.named.asked("call_0") == ids(events, ToolStarted)[-1]
        events += session.result()
    shown = [SHOWN[0], f"{SHOWN[0]}.2", f"{SHOWN[0]}.3"]
    assert ids(events, ToolStarted) == ids(events, ToolEnded) == shown
    assert set(map(given, shown)) == {"call_0"}
    session.turn = SECOND
    assert ids(session.call(), ToolStarted) == SHOWN[1:]


def test_another_worker_names_no_call_like_before() -> None:
    assert [ids(Session().call(), ToolStarted)] == [SHOWN[:1]]
    later = Session()
    later.turn = SECOND
    assert later.named.asked("call_0") == SHOWN[1], "the question overtakes the call"
    assert ids(later.call(), ToolStarted) == SHOWN[1:]


def test_claudes_own_ids_stay_as_they_are() -> None:
    session = Session()
    assert ids(session.call(CLAUDES), ToolStarted) == [CLAUDES]
    assert ids(session.result(CLAUDES), ToolEnded) == [CLAUDES]
    assert (given(CLAUDES), given(SHOWN[0])) == (CLAUDES, "call_0")


def test_subagents_calls_are_under_their_turns_call() -> None:
    session = Session()
    task = {"type": "tool_use", "id": "call_0", "name": "Task", "input": {"description": "Look"}}
    inner = {**task, "id": "call_1", "name": "Bash", "input": {"command": "ls"}}
    session.read(type="assistant", message={"model": "x", "content": [task]})
    [event] = session.read(
        type="assistant", message={"model": "x", "content": [inner]}, parent_tool_use_id="call_0"
    )
    assert isinstance(event, ToolStarted)
    assert (given(event.tool_call_id), event.parent_id) == ("call_1", SHOWN[0])


def test_subagent_that_runs_has_calls_of_its_own() -> None:
    session = Session()
    events = session.call(name="Agent")
    events += session.call(parent_tool_use_id="call_0")
    events += session.result(parent_tool_use_id="call_0")
    events += session.call(parent_tool_use_id="call_0")
    events += session.result(parent_tool_use_id="call_0")
    done = {"status": "completed", "content": [{"type": "text", "text": "All."}]}
    events += session.result(tool_use_result=done)
    assert ids(events, ToolStarted) == [SHOWN[0], INSIDE, f"{INSIDE}.2"]
    assert ids(events, ToolEnded) == [INSIDE, f"{INSIDE}.2", SHOWN[0]]
    assert isinstance(events[-1], ToolEnded)
    assert events[-1].content == (TextPart("All."),)
    assert ids(session.call(), ToolStarted) == [f"{SHOWN[0]}.2"]


@pytest.mark.parametrize("known", [True, False])
def test_subagents_question_is_about_its_own_call(known: bool) -> None:
    """It overtakes the report of the call; `known`: that of its subagent was read."""
    session = Session()
    session.call(name="Agent")
    if known:
        session.started("call_0", "a1", task_type="local_agent")
        session.call("call_1", name="Agent")
        session.started("call_1", "a2", task_type="local_agent")
    assert session.named.asked("call_0", "a1") == INSIDE
    assert ids(session.call(parent_tool_use_id="call_0"), ToolStarted) == [INSIDE]
    assert session.named.asked("call_0", "a1") == INSIDE
    assert session.named.asked("call_0") == SHOWN[0]


def test_agents_at_once_whose_calls_have_one_id() -> None:
    """In the order of the CLI, with two in the background and one that the second begins."""
    session, agents = Session(), ("a1", "a2", "a3")
    for agent in agents[:2]:
        session.call(name="Agent")
        session.started("call_0", agent, task_type="local_agent")
        session.result(tool_use_result={"isAsync": True, "status": "async_launched"})
    inside = {"parent_tool_use_id": "call_0"}
    session.call(name="Agent", **inside, agent_id="a2")
    session.started("call_0", "a3", task_type="local_agent")
    first, second = SHOWN[0], f"{SHOWN[0]}.2"
    third = f"call_0-{crc32(second.encode()):08x}"
    asked = [session.named.asked("call_1", agent) for agent in agents]
    assert asked == [f"call_1-{crc32(one.encode()):08x}" for one in (first, second, third)]
    calls = [session.call("call_1", **inside, agent_id=agent) for agent in agents]
    begun = [one for events in calls for one in events if isinstance(one, ToolStarted)]
    assert [one.tool_call_id for one in begun] == asked
    assert [one.parent_id for one in begun] == [first, second, third]
    ended = [session.result("call_1", **inside, agent_id=agent) for agent in reversed(agents)]
    assert [ids(events, ToolEnded) for events in ended] == [[one] for one in reversed(asked)]
    for agent, call in zip(agents, (first, second, third), strict=True):
        frame = {"type": "system", "subtype": "task_notification", "task_id": agent}
        session.named.rename(frame := {**frame, "tool_use_id": "call_0"})
        assert frame["tool_use_id"] == call


def test_task_of_a_subagents_command_is_its_own() -> None:
    session = Session()
    session.call(name="Agent")
    session.call(parent_tool_use_id="call_0")
    frame = {"type": "system", "subtype": "task_started", "task_id": "b1", "tool_use_id": "call_0"}
    session.named.rename(frame)
    assert frame["tool_use_id"] == INSIDE
    session.result(parent_tool_use_id="call_0")
    session.named.rename(ended := {**frame, "task_id": "a1", "tool_use_id": "call_0"})
    assert ended["tool_use_id"] == SHOWN[0]


def test_each_command_in_background_ends_by_itself() -> None:
    session = Session()
    for session.turn, task in ((FIRST, "job1"), (SECOND, "job2")):
        session.call()
        session.translator.long.known.named(
            session.named.asked("call_0"), task, background=True, tool="Bash"
        )
        session.result(tool_use_result={"backgroundTaskId": task, "stdout": "", "stderr": ""})
    for task, shown in zip(("job1", "job2"), SHOWN, strict=True):
        ended = session.read(
            type="system",
            subtype="task_notification",
            task_id=task,
            tool_use_id="call_0",
            status="completed",
            summary="",
            output_file="",
        )
        assert ids(ended, ToolEnded) == [shown]


@pytest.mark.parametrize("name", ["Bash", "Agent", "SendMessage"])
def test_subagents_call_may_have_its_own_id(name: str) -> None:
    session = Session()
    agent = {"type": "tool_use", "id": "call_0", "name": "Agent", "input": {"description": "Look"}}
    session.read(type="assistant", message={"model": "x", "content": [agent]})
    session.translator.long.known.named(SHOWN[0], "agent1", background=True, tool="Agent")
    session.result(tool_use_result={"isAsync": True, "status": "async_launched"})
    session.turn = SECOND
    inner = {"type": "tool_use", "id": "call_0", "name": name, "input": {"command": "ls"}}
    begun = session.read(
        type="assistant", message={"model": "x", "content": [inner]}, parent_tool_use_id="call_0"
    )
    assert [(one.tool_call_id, one.parent_id) for one in begun if isinstance(one, ToolStarted)] == [
        (INSIDE, SHOWN[0])
    ]
    assert session.translator.end_unanswered() == []


class Inside:
    """The SDK's `Query`, as far as frames go."""

    async def receive_messages(self) -> AsyncIterator[dict[str, Any]]:
        block = {"type": "tool_use", "id": "call_0", "name": "Bash", "input": {"command": "ls"}}
        message = {"model": "x", "content": [block]}
        yield {"type": "assistant", "message": message, "session_id": "s", "uuid": "u"}


async def test_worker_names_calls_and_their_questions_alike(tmp_path: Path) -> None:
    told: list[Any] = []
    outbox = cast("Outbox", SimpleNamespace(put=told.append))
    claude = ClaudeSession(spec(tmp_path), str(tmp_path), outbox, cast("DatabaseCalls", None))
    claude.client = cast("ClaudeSDKClient", SimpleNamespace(_query=Inside()))
    claude.turns.prompted = FIRST
    await claude.run()
    events = [one.event for one in told if isinstance(one, EventFrame)]
    assert ids(events, ToolStarted) == SHOWN[:1]
    assert claude.permissions.named("call_0", None) == SHOWN[0]


def test_transcripts_of_other_programs_are_read_so_too(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")
    reading = Reading(transcript)
    events: list[Event] = []
    for turn in (FIRST, SECOND):
        transcript.prompt("Look.", turn)
        transcript.call("call_0", command="ls")
        events += reading.look()  # its result comes in another look
        transcript.result("call_0")
        events += reading.look()
    assert ids(events, ToolStarted) == ids(events, ToolEnded) == SHOWN


@pytest.mark.parametrize("looks", [1, 2])
def test_transcript_shows_each_call_of_one_turn(looks: int, tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")
    reading = Reading(transcript)
    events: list[Event] = []
    transcript.prompt("Look.", FIRST)
    for _ in range(3):
        transcript.call("call_0", command="ls")
        transcript.result("call_0")
        if looks > 1:
            events += reading.look()
    events += reading.look()
    shown = [SHOWN[0], f"{SHOWN[0]}.2", f"{SHOWN[0]}.3"]
    assert ids(events, ToolStarted) == ids(events, ToolEnded) == shown


def test_two_subagents_calls_of_one_id_are_two(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")
    reading = Reading(transcript)
    transcript.prompt("Look.", FIRST)
    for name in ("call_0", "call_1"):
        transcript.call(name, "Agent", description="look", prompt="Look.")
        own = subagent(transcript, name, name)
        for _ in range(2):
            own.call("call_0", command="ls")
            own.result("call_0")
    for name in ("call_0", "call_1"):
        transcript.result(name, "fine", toolUseResult={"status": "completed", "content": []})
    events = reading.look()
    begun, ended = ids(events, ToolStarted), ids(events, ToolEnded)
    assert len(set(begun)) == len(begun) == 6
    assert sorted(begun) == sorted(ended)
    assert {given(one) for one in begun} == {"call_0", "call_1"}
    parents = [one.parent_id for one in events if isinstance(one, ToolStarted)][2:]
    assert parents == [SHOWN[0]] * 2 + ["call_1-11111111"] * 2


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("turn", [FIRST, SECOND])
def test_each_subagent_of_one_id_shows_its_work(turn: str, named: bool, tmp_path: Path) -> None:
    """Also in one `turn`. `named`: results name subagents; those of calls that failed do not."""
    transcript = Transcript(tmp_path / "t.jsonl")
    agents = ("b1", "", "a2", "c3")  # the second call begins none
    times = [f"2026-01-01T00:00:0{second}.000Z" for second in range(9)]
    for n, agent in enumerate(agents):
        if n == 0 or (n == 1 and turn == SECOND):
            transcript.prompt("Look.", (FIRST, SECOND)[n])
        block = {"type": "tool_use", "id": "call_0", "name": "Agent", "input": {"prompt": "Look."}}
        transcript.assistant(block, None, timestamp=times[2 * n])
        if agent:
            own = subagent(transcript, agent, "call_0")
            own.say(f"I am {agent}.", timestamp=times[2 * n])
            own.call("call_0", command=f"ls {agent}")
            own.result("call_0")
        details = {"status": "completed", "content": [], "agentId": agent}
        more = {"toolUseResult": details} if named and agent else {}
        transcript.result("call_0", "fine", timestamp=times[2 * n + 1], **more)
    events = Reading(transcript).look()
    started = [one for one in events if isinstance(one, ToolStarted)]
    calls = [one.tool_call_id for one in started if one.parent_id is None]
    assert len(set(calls)) == len(agents)
    assert [(one.parent_id, one.input) for one in started if one.parent_id is not None] == [
        (call, {"command": f"ls {agent}"})
        for call, agent in zip(calls, agents, strict=True)
        if agent
    ]
    assert sorted(ids(events, ToolEnded)) == sorted(ids(events, ToolStarted))
