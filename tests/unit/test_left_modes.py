"""In which permission mode a transcript was left: by its prompts, and by the notes of a terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pykoclaw_acp.transcripts import left_modes
from pykoclaw_acp.transcripts.left_modes import left_mode
from tests.unit.transcripts import Transcript


@pytest.fixture
def t(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path / "t.jsonl")


def mode(t: Transcript) -> str | None:
    descriptor = os.open(t.path, os.O_RDONLY)
    try:
        return left_mode(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def asked(t: Transcript, in_mode: str, entrypoint: str = "cli") -> None:
    t.prompt("Do it", permissionMode=in_mode, entrypoint=entrypoint)
    t.say("Done")


def noted(t: Transcript, in_mode: str) -> None:
    t.raw(json.dumps({"type": "permission-mode", "permissionMode": in_mode}) + "\n")


def leaves_plan(t: Transcript) -> None:
    t.add("attachment", attachment={"type": "plan_mode_exit"})


def test_newest_prompt_says_the_mode(t: Transcript) -> None:
    asked(t, "plan")
    asked(t, "acceptEdits", "sdk-cli")
    t.call("c")
    t.result("c")
    t.prompt("Of a subagent", permissionMode="default", isSidechain=True)
    t.raw('{"type": "user", "permissionMode"\n\0\n["permissionMode"]\n')
    assert mode(t) == "acceptEdits"


def test_transcript_without_modes_says_nothing(t: Transcript) -> None:
    t.path.touch()
    assert mode(t) is None
    t.prompt('"permissionMode": "plan"')
    assert mode(t) is None


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ([lambda t: asked(t, "default"), lambda t: noted(t, "plan")], "plan"),
        ([lambda t: asked(t, "plan"), lambda t: noted(t, "default")], "default"),
        ([lambda t: noted(t, "plan"), lambda t: asked(t, "default")], "default"),
        # An SDK repeats the note of a terminal that it has resumed.
        ([lambda t: asked(t, "default", "sdk-ts"), lambda t: noted(t, "plan")], "default"),
    ],
)
def test_terminals_note_counts_after_its_prompts(
    t: Transcript, written: list[Callable[[Transcript], None]], left: str
) -> None:
    for one in written:
        one(t)
    assert mode(t) == left


def test_plan_mode_that_was_left_is_not_taken(t: Transcript) -> None:
    asked(t, "plan")
    noted(t, "plan")
    leaves_plan(t)
    assert mode(t) is None
    noted(t, "acceptEdits")
    assert mode(t) == "acceptEdits"
    asked(t, "plan", "sdk-py")
    leaves_plan(t)
    assert mode(t) is None
    asked(t, "default")
    leaves_plan(t)
    noted(t, "plan")
    assert mode(t) == "plan"


def test_mode_is_found_before_long_turn(t: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_modes, "STEP", 1024)
    t.prompt("x" * 10_000, permissionMode="plan")
    for _ in range(20):
        t.say("y" * 5000)
    assert mode(t) == "plan"
    monkeypatch.setattr(left_modes, "MOST", 50_000)
    assert mode(t) is None
