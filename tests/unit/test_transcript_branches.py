"""Two programs at once in one Claude session: which of its turns the branch that goes on has, and which
it lacks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.imports import TranscriptTurn
from pykoclaw_acp.transcripts.branches import lacking
from tests.unit.transcripts import Reading, Transcript


class Branches:
    """A transcript in which `ours` is our prompt, and what is known of it after each look."""

    def __init__(self, path: Path) -> None:
        self.t = Transcript(path)
        self.reading = Reading(self.t, own=("start", "ours", "again"))
        self.parents: dict[str, str | None] = {}
        self.t.prompt("start", "start")
        self.t.leaf(self.t.say("started"))
        self.prompt = self.t.prompt("ours", "ours")

    def theirs(self, **more: Any) -> None:
        """A terminal's prompt, behind what its CLI has put there."""
        self.t.synthetic(**more)
        self.t.prompt("theirs", "theirs")
        self.t.add("attachment")

    def lacks(self) -> list[str]:
        """What Claude lacks, after a look."""
        self.reading.look()
        self.parents |= self.reading.parents
        turns = [TranscriptTurn(uuid, "c", parent) for uuid, parent in self.parents.items()]
        return [one.uuid for one in lacking(turns, self.reading.pieces[-1].head, [])]


@pytest.fixture
def b(tmp_path: Path) -> Branches:
    return Branches(tmp_path / "t.jsonl")


def test_answer_on_another_branch_is_lacking(b: Branches) -> None:
    b.theirs()
    their_prompt = b.t.head
    assert b.lacks() == []
    b.t.say("our answer", parentUuid=b.prompt)
    b.t.leaf(str(b.t.head))
    assert b.lacks() == ["theirs"]
    theirs = b.t.say("their answer", parentUuid=their_prompt)
    b.t.leaf(theirs)
    assert b.lacks() == ["ours"]
    b.t.prompt("again", "again", parentUuid=theirs)
    b.t.say("our next answer")
    assert b.lacks() == ["ours"]


def test_answer_before_another_branch_is_lacking(b: Branches) -> None:
    """A CLI that read the transcript during our turn is given its prompt after that."""
    ours = b.t.say("our answer")
    b.t.leaf(ours)
    b.theirs(parentUuid=b.prompt)
    b.lacks()
    theirs = b.t.say("their answer")
    assert b.lacks() == ["theirs"], "the entry that was noted last is ours"
    b.t.leaf(theirs)
    assert b.lacks() == ["ours"]


def test_branch_behind_noted_prompt_goes_on(b: Branches) -> None:
    """A CLI notes its last entry also before the answer."""
    b.t.leaf(b.prompt)
    b.theirs()
    their_prompt = b.t.head
    b.t.say("our answer", parentUuid=b.prompt)
    b.t.say("their answer", parentUuid=their_prompt)
    assert b.lacks() == ["ours"]


def test_end_of_turn_on_another_branch_is_lacking(b: Branches) -> None:
    """Both have the tool call, only one its result, and what came of it."""
    call = b.t.call("t1", command="ls")
    b.t.result("t1", "[Tool call interrupted]")
    b.theirs()
    b.t.leaf(b.t.say("their answer"))
    assert b.lacks() == []
    b.t.result("t1", "out", parentUuid=call)
    b.t.say("our answer")
    assert b.lacks() == ["ours"]


def test_each_branch_lacks_answers_of_those_before(b: Branches) -> None:
    b.theirs()
    their_prompt = b.t.head
    b.t.prompt("again", "again", parentUuid=b.t.synthetic())
    b.lacks()
    b.t.say("their answer", parentUuid=their_prompt)
    b.t.say("our answer", parentUuid=b.prompt)
    b.t.leaf("again")
    assert b.lacks() == ["ours", "theirs"]


@pytest.mark.parametrize("begun", [False, True], ids=["nothing", "a_call"])
@pytest.mark.parametrize("who", ["theirs", "again"])
def test_turn_cut_off_by_kill_is_known(b: Branches, who: str, begun: bool) -> None:
    """What there is of it is on the branch that goes on."""
    if begun:
        b.t.call("t1", command="ls")
        b.t.result("t1", "[Tool call interrupted]")
    b.t.synthetic()
    b.t.prompt("more", who)
    assert b.lacks() == []
    b.t.leaf(b.t.say("an answer"))
    assert b.lacks() == []


@pytest.mark.parametrize("begun", [False, True], ids=["nothing", "a_call"])
@pytest.mark.parametrize(
    "block", [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "\n\n"}]
)
def test_what_a_resume_drops_is_no_answer(b: Branches, block: dict[str, Any], begun: bool) -> None:
    """The CLI goes on from the entry before a thought, or blank text, without more behind it."""
    last = b.prompt
    if begun:
        b.t.call("t1", command="ls")
        last = b.t.result("t1", "out")
    b.t.assistant(block, "m")
    b.t.synthetic(parentUuid=last)
    b.t.prompt("again", "again")
    assert b.lacks() == []
    b.t.say("our answer")
    assert b.lacks() == []


def test_results_beside_each_other_are_one_branch(b: Branches) -> None:
    """Each result of calls made at once follows its own call."""
    one, two = {"type": "tool_use", "id": "t1"}, {"type": "tool_use", "id": "t2"}
    first = b.t.assistant({**one, "name": "Bash", "input": {}}, "m")
    second = b.t.assistant({**two, "name": "Bash", "input": {}}, "m")
    b.t.result("t1", parentUuid=first)
    b.t.result("t2", parentUuid=second)
    b.t.say("our answer")
    b.t.prompt("again", "again")
    b.t.say("our next answer")
    assert b.lacks() == []


def test_fork_knows_the_turn_that_told_it() -> None:
    """The turn has its source's id after its own."""
    turns = [
        TranscriptTurn("start", "c"),
        TranscriptTurn("ours", "c", "start"),
        TranscriptTurn("theirs", "c", told=True, told_in="fork/source/ours"),
    ]
    assert [one.uuid for one in lacking(turns, "start", [])] == ["ours", "theirs"]
    assert lacking(turns, "ours", []) == []
