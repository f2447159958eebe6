"""Entries of a transcript whose parent lies further back than the reader remembers entries, or turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.transcripts.state import MOST_ENTRIES, MOST_TURNS
from tests.unit.transcripts import Reading, Transcript, words

REVIEW = "<command-message>review</command-message>\n<command-name>/review</command-name>"


@pytest.fixture
def t(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path / "t.jsonl")


@pytest.mark.parametrize("looks", [1, 2])
@pytest.mark.parametrize("prompt", ["second", REVIEW, "<bash-input>ls</bash-input>"])
def test_many_calls_at_once_get_results(t: Transcript, prompt: str, looks: int) -> None:
    """Each result follows its own call."""
    t.prompt("ours", "ours")
    t.say("answer")
    t.prompt(prompt, "theirs", entrypoint="cli")
    calls = {f"t{n}": t.call(f"t{n}") for n in range(2 * MOST_ENTRIES)}
    reading = Reading(t, own=("ours",))
    said = words(reading.look()) if looks == 2 else []
    reading.fields = {"known": {"theirs": str(t.head)} if said else {}}
    for call, entry in calls.items():
        t.result(call, parentUuid=entry)
    t.say("All is well")
    t.prompt("third", "third")
    said += words(reading.look())
    assert [one for one in said if one.startswith("t")] == [f"{one} completed" for one in calls]
    assert reading.parents["third"] == "theirs"


def test_notice_without_effect_is_no_turn(t: Transcript) -> None:
    """What follows it belongs to the turn in which it came."""
    t.prompt("one", "p1")
    begun = t.say("begun")
    notice = t.prompt("<task-notification></task-notification>", turnOrigin="task_notification")
    t.prompt("two", "p2")
    t.head = begun
    for _ in range(MOST_ENTRIES):
        t.add("system")
    t.say("end", parentUuid=t.add("system", parentUuid=notice))
    reading = Reading(t)
    assert words(reading.look()) == ["> one", "begun", "> two", "end"]
    assert reading.pieces[-1].last["p1"] == t.head


@pytest.mark.parametrize("read", ["once", "anew", "on"])
def test_turn_ending_behind_many_others_is_whole(t: Transcript, read: str) -> None:
    t.prompt("zero", "zero")
    base = t.say("answer")
    t.prompt("long", "long")
    middle = t.say("begun")
    reading = Reading(t)
    if read != "once":
        reading.look()
        reading.fields = {"known": {"zero": base, "long": middle}}
        reading.offset, reading.state = (reading.offset, reading.state) if read == "on" else (0, "")
    t.head = base
    for n in range(MOST_TURNS + 1):
        t.prompt(f"q{n}", f"q{n}")
        t.say("answer")
    t.say("The answer is 42.", parentUuid=middle)
    assert words(reading.look())[-1] == "The answer is 42."
    assert reading.pieces[-1].last["long"] == t.head
