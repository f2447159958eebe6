"""Rewinds in other programs, told from programs that run at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.model.imports import rewound
from tests.unit.transcripts import Reading, Transcript, words

# As the CLI writes them: for a terminal, and for a program that has asked for the rewind.
NOWHERE: Final = "00000000-0000-0000-0000-000000000000"
TERMINALS: Final = (
    f'{{"type":"last-prompt","leafUuid":"{NOWHERE}","explicit":true,"sessionId":"s"}}\n'
)
ASKED: Final = (
    '{"type":"last-prompt","leafUuid":"KEPT","explicit":true,"rewound":true,"cutUuid":"two",'
    '"sessionId":"s"}\n'
)
NOTE: Final = "no longer remembers the conversation from “Two wrong” on"


class Rewound:
    """A transcript with two turns, the second of which is rewound."""

    def __init__(self, path: Path, own: tuple[str, ...] = ()) -> None:
        self.t = Transcript(path)
        self.reading = Reading(self.t, own=own)
        self.parents: dict[str, str | None] = {}
        self.t.prompt("One", "one")
        self.kept = self.t.say("first answer")
        self.t.leaf(self.kept)
        self.two = self.t.prompt("Two wrong", "two")
        self.t.call("w", "Write")
        self.result = self.t.result("w")
        self.left = self.t.say("second answer")

    def prompt(self, **more: Any) -> None:
        self.t.raw('{"type":"file-history-snapshot","messageId":"three","snapshot":{}}\n')
        self.t.prompt("Two right", "three", parentUuid=self.kept, entrypoint="cli", **more)

    def look(self) -> list[str]:
        said = words(self.reading.look())
        self.parents |= self.reading.parents
        return said

    def gone(self) -> set[str]:
        rewinds = [one for piece in self.reading.pieces for one in piece.rewinds]
        return rewound(self.parents, rewinds)


@pytest.fixture
def r(tmp_path: Path) -> Rewound:
    return Rewound(tmp_path / "t.jsonl")


def test_rewind_in_terminal_is_said_before_next_prompt(r: Rewound) -> None:
    r.prompt()
    r.t.add("attachment", entrypoint="cli")
    r.t.raw(TERMINALS)
    r.t.say("right answer")
    said = r.look()
    (note,) = [one for one in said if NOTE in one]
    assert "Rewound in a terminal: " in note
    assert said.index(note) == said.index("> Two right") - 1
    assert r.gone() == {"two"}
    assert r.reading.pieces[-1].head == "three"


def test_rewind_is_awaited_until_the_answer(r: Rewound) -> None:
    """The CLI writes the prompt, and a moment later that it follows a rewind."""
    r.look()
    r.prompt()
    assert r.look() == []
    r.t.raw(TERMINALS)
    assert NOTE in r.look()[0]
    assert r.gone() == {"two"}


def test_rewind_before_a_command_is_said(r: Rewound) -> None:
    """The CLI notes it with the first prompt that Claude gets."""
    command = "<command-name>/context</command-name>"
    fields = {"subtype": "local_command", "entrypoint": "cli"}
    r.look()
    r.t.add("system", content=command, parentUuid=r.kept, **fields)
    r.t.add("system", content="<local-command-stdout>1k</local-command-stdout>", **fields)
    assert r.look() == []
    r.t.prompt("Two right", "three", entrypoint="cli")
    r.t.raw(TERMINALS)
    r.t.say("right answer")
    note, *said = r.look()
    assert NOTE in note
    assert said == ["> Two right", "right answer"]
    assert r.gone() == {"two"}


def test_branch_of_terminal_without_note_is_another(r: Rewound) -> None:
    """A terminal goes on from what it has read before, beside a turn that it does not know."""
    r.prompt()
    assert "> Two right" not in r.look()
    r.t.say("right answer")
    assert r.look() == ["> Two right", "right answer"]
    assert r.gone() == set()


@pytest.mark.parametrize("noted", [False, True])
def test_turn_that_goes_on_meanwhile_stays(tmp_path: Path, *, noted: bool) -> None:
    r = Rewound(tmp_path / "t.jsonl", own=("one", "two"))
    r.prompt()
    if noted:
        r.t.raw(TERMINALS)
    prompt = r.t.head
    r.t.say("more", parentUuid=r.left)
    r.t.say("right answer", parentUuid=prompt)
    assert r.look() == ["> Two right", "right answer"]
    assert r.gone() == set()


@pytest.mark.parametrize("own", [False, True])
def test_rewind_that_a_program_asked_for_is_said(tmp_path: Path, *, own: bool) -> None:
    """Also if the next prompt is ours."""
    r = Rewound(tmp_path / "t.jsonl", own=("three",) if own else ())
    r.t.raw(ASKED.replace("KEPT", r.kept))
    r.look()
    r.t.prompt("Two right", "three", parentUuid=r.kept)
    said = r.look()
    assert "Rewound in another program: " in said[0]
    assert NOTE in said[0]
    assert r.gone() == {"two"}
    r.t.prompt("Beside it", "four", parentUuid=r.kept)
    r.look()
    assert r.gone() == set()


def test_rewind_to_the_beginning_forgets_everything(r: Rewound) -> None:
    r.t.prompt("Anew", "three", parentUuid=None, entrypoint="cli")
    r.t.raw(TERMINALS)
    assert "“One”" in "".join(r.look())
    assert r.gone() == {"one", "two"}


def test_rewind_far_back_forgets_many_turns(r: Rewound) -> None:
    """More than the reader remembers."""
    for n in range(20):
        r.t.prompt(f"Wrong {n}", f"w{n}")
        r.t.say(f"answer {n}")
    r.prompt()
    r.t.raw(TERMINALS)
    assert "“…”" in "".join(r.look())
    assert r.gone() == {"two", *(f"w{n}" for n in range(20))}


def test_rewound_turns_of_ours_are_named(tmp_path: Path) -> None:
    r = Rewound(tmp_path / "t.jsonl", own=("one", "two"))
    assert r.look() == []
    r.prompt()
    r.t.raw(TERMINALS)
    assert NOTE in r.look()[0]
    assert r.gone() == {"two"}


def test_transcript_read_anew_says_nothing_again(r: Rewound) -> None:
    r.prompt()
    r.t.raw(TERMINALS)
    r.look()
    fields = {"known": {"one": r.kept, "two": r.left, "three": "three"}}
    again = Reading(r.t, fields=fields)
    assert again.look() == []
    assert not again.pieces[-1].rewinds
