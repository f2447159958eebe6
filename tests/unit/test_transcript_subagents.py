"""The files of subagents beside a transcript become part of the calls that began them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.events import Event, TextPart, ToolEnded, ToolStarted
from pykoclaw_acp.transcripts import subagents
from tests.unit.transcripts import Reading, Transcript, words
from tests.unit.transcripts import subagent as agent

WAITED = {"status": "completed", "agentId": "a1", "content": [{"type": "text", "text": "All."}]}


@pytest.fixture
def t(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path / "t.jsonl")


def report(events: list[Event], call: str = "agent") -> str:
    """What the call shows in the end."""
    [ended] = (one for one in events if isinstance(one, ToolEnded) and one.tool_call_id == call)
    return "\n".join(part.text for part in ended.content if isinstance(part, TextPart))


def test_subagents_calls_and_words_are_under_their_call(t: Transcript) -> None:
    """Also of one that another one has called, and of calls that got no result."""
    outer, inner = agent(t, "a1", "agent"), agent(t, "a2", "deeper", "claude")
    outer.prompt("Look.")
    outer.say("I look.")
    outer.call("deeper", "Agent", description="dig", subagent_type="claude", prompt="Dig.")
    inner.say("I dig.")
    inner.call("read", "Read", file_path="/w/a.txt")
    outer.result("deeper", "fine", toolUseResult=WAITED)
    outer.call("lost", command="sleep 9")
    t.prompt("Hello", "p1")
    t.call("agent", "Agent", description="look", subagent_type="Explore", prompt="Look.")
    reading = Reading(t)
    assert words(reading.look()) == ["> Hello", "Agent: look (Explore) …"]
    t.result("agent", "frame", toolUseResult=WAITED)
    events = reading.look()
    assert words(events) == [
        *(
            "Explore: Agent: dig (claude) …",
            "claude: Read a.txt …",
            "read failed",
            "deeper completed",
        ),
        *("Explore: sleep 9 …", "lost failed", "agent completed"),
    ]
    parents = {one.tool_call_id: one.parent_id for one in events if isinstance(one, ToolStarted)}
    assert parents == {"deeper": "agent", "read": "deeper", "lost": "agent"}
    assert "I look." in report(events)
    assert "I dig." in report(events, "deeper")
    assert "I dig." not in report(events)


def test_background_subagent_is_shown_when_ended(t: Transcript) -> None:
    own = agent(t, "a1", "agent")
    t.prompt("Hello", "p1")
    t.call("agent", "Agent", description="look", subagent_type="Explore", prompt="Look.")
    t.result("agent", "metadata", toolUseResult={"isAsync": True, "agentId": "a1"})
    t.say("It looks.")
    reading = Reading(t)
    assert words(reading.look()) == ["> Hello", "Agent: look (Explore) …", "It looks."]
    own.say("I look.")
    own.call("ls", command="ls")
    own.result("ls", "a.txt")
    said = "<tool-use-id>agent</tool-use-id><status>completed</status><result>All.</result>"
    t.prompt(f"<task-notification>{said}</task-notification>", turnOrigin="task_notification")
    t.say("I see.")
    events = reading.look()
    assert words(events)[:3] == ["Explore: ls …", "ls completed", "agent completed"]
    assert report(events) == "I look.\nAll."


def notice(t: Transcript, said: str, at: str, **more: Any) -> None:
    text = f"<task-notification><task-id>a1</task-id>{said}</task-notification>"
    t.prompt(text, turnOrigin="task_notification", timestamp=at, **more)


def launched(t: Transcript) -> None:
    t.prompt("Hello", "p1")
    t.call("agent", "Agent", description="look", subagent_type="Explore", prompt="Look.")
    t.result("agent", "metadata", toolUseResult={"isAsync": True, "agentId": "a1"})


def test_a_waiting_subagent_ends_with_its_last_report(t: Transcript) -> None:
    own = agent(t, "a1", "agent")
    launched(t)
    own.call("make", command="make", run_in_background=True)
    own.result("make", "running", toolUseResult={"backgroundTaskId": "b1"})
    own.say("I wait.")
    waits = "<summary>Agent “look” is waiting on its own background work</summary>"
    called = "<tool-use-id>agent</tool-use-id><status>completed</status>"
    notice(t, f"{called}{waits}<result>I wait.</result>", "2026-01-01T00:00:01.000Z")
    t.say("It waits.")
    reading = Reading(t)
    assert [one.strip() for one in words(reading.look())[-2:]] == [
        "> The background agent “look” waits for background work of its own.", "It waits."
    ]  # fmt: skip
    ended = "<tool-use-id>make</tool-use-id><status>completed</status><summary>(exit code 0)"
    own.prompt(
        f"[SYSTEM]<task-notification>{ended}</summary></task-notification>",
        origin={"kind": "task-notification"},
        isMeta=True,
    )
    own.say("It is made, not with exit code 1.")
    made = "<status>completed</status><result>It is made, not with exit code 1.</result>"
    notice(t, made, "2026-01-01T00:00:02.000Z")
    t.say("I see.")
    events = reading.look()
    assert [one.strip() for one in words(events)] == [
        *("Explore: make …", "make completed", "agent completed"),
        *("> The background agent “look” has ended.", "I see."),
    ]
    assert report(events) == "I wait.\nIt is made, not with exit code 1."


def test_message_to_subagent_shows_its_answer_only(t: Transcript) -> None:
    """Also in a later look than the message."""
    own = agent(t, "a1", "agent")
    launched(t)
    times = [f"2026-01-01T00:00:0{second}.000Z" for second in range(1, 6)]
    own.say("I look.", timestamp=times[0])
    own.say("I look again.", timestamp=times[3])
    own.call("ls", command="ls")
    own.result("ls", "a.txt")
    said = "<tool-use-id>{}</tool-use-id><status>completed</status><result>{}</result>"
    notice(t, said.format("agent", "First."), times[1])
    block = {
        "type": "tool_use", "id": "sent", "name": "SendMessage",
        "input": {"to": "looker", "summary": "more", "message": "Again."},
    }  # fmt: skip
    t.assistant(block, None, timestamp=times[2])
    t.result("sent", "{}", toolUseResult={"success": True, "resumedAgentId": "a1"})
    reading = Reading(t)
    events = reading.look()
    assert report(events) == "I look.\nFirst."
    assert words(events)[-1] == "Message to looker: more …"
    notice(t, said.format("sent", "Second."), times[4])
    t.say("I see.")
    events = reading.look()
    assert words(events)[:3] == ["Explore: ls …", "ls completed", "sent completed"]
    assert report(events, "sent") == "I look again.\nSecond."


def test_repeated_results_of_background_subagent_read_nothing(t: Transcript) -> None:
    own = agent(t, "a1", "agent")
    own.say("I look.")
    t.prompt("Hello", "p1")
    t.call("agent", "Agent", description="look", subagent_type="Explore", prompt="Look.")
    t.result("agent", "metadata", toolUseResult={"isAsync": True, "agentId": "a1"})
    for _ in range(3):
        t.result("agent", "once more")
    said = "<tool-use-id>agent</tool-use-id><status>completed</status><result>All.</result>"
    t.prompt(f"<task-notification>{said}</task-notification>", turnOrigin="task_notification")
    t.say("I see.")
    assert report(Reading(t).look()) == "I look.\nAll."


def test_a_hostile_file_is_bounded_or_passed_over(
    t: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subagents, "MOST", 2000)
    long = agent(t, "a1", "agent")
    for count in range(100):
        long.call(f"call{count}", command="ls")
    os.mkfifo(agent(t, "a2", "fifo").path)
    (long.path.parent / "agent-a3.meta.json").write_text('{"toolUseId": 3}')
    t.prompt("Hello", "p1")
    for call in ("agent", "fifo"):
        t.call(call, "Agent", description="look", subagent_type="Explore", prompt="Look.")
        t.result(call, "frame", toolUseResult=WAITED)
    events = Reading(t).look()
    assert 1 < len(events) < 40
    assert subagents.LEFT_OUT in report(events)
    assert report(events, "fifo") == "All."
