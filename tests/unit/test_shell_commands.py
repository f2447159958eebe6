"""What a user gives to a shell with `!` in a terminal becomes turns of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.events import TextPart, ToolEnded, ToolStarted
from pykoclaw_acp.transcripts.digest import digest
from pykoclaw_acp.transcripts.lines import WHOLE
from tests.unit.transcripts import Reading, Transcript, words

ID = "00000000-0000-4000-8000-00000000000{}"
# Written by the terminal of CLI 2.1.327; shortened
TERMINAL: list[dict[str, Any]] = [
    {"parentUuid": None, "promptId": "049a", "type": "user", "uuid": ID.format(1),
     "permissionMode": "auto", "origin": {"kind": "human"}, "promptSource": "typed",
     "turnOrigin": "human", "message": {"role": "user", "content": "Hi"}},
    {"parentUuid": ID.format(1), "apiBlockIndex": 0, "type": "assistant", "uuid": ID.format(2),
     "madeBy": "model", "message": {"id": "msg_01", "model": "claude-opus-5-5",
     "content": [{"type": "text", "text": "hi"}]}},
    {"parentUuid": ID.format(2), "type": "system", "subtype": "turn_duration", "durationMs": 939,
     "messageCount": 13, "uuid": ID.format(3), "isMeta": False},
    {"type": "file-history-snapshot", "messageId": ID.format(4), "isSnapshotUpdate": False},
    {"parentUuid": ID.format(3), "promptId": "6fbf", "type": "user", "uuid": ID.format(4),
     "message": {"role": "user",
                 "content": "<bash-input>printf '\\033[31mred\\033[0m\\n'; echo '<a> & b'</bash-input>"}},
    {"parentUuid": ID.format(4), "promptId": "6fbf", "type": "user", "uuid": ID.format(5),
     "turnOrigin": "human", "message": {"role": "user", "content": "<bash-stdout>\x1b[31mred\x1b[0m"
     "\n&lt;a&gt; &amp; b</bash-stdout><bash-stderr></bash-stderr>"}},
    {"parentUuid": ID.format(5), "apiBlockIndex": 0, "type": "assistant", "uuid": ID.format(6),
     "madeBy": "model", "message": {"id": "msg_02", "model": "claude-opus-5-5",
     "content": [{"type": "text", "text": "I see."}]}},
    {"parentUuid": ID.format(6), "promptId": "9d68", "type": "user", "isMeta": True,
     "uuid": ID.format(7), "message": {"role": "user",
     "content": "<local-command-caveat>The command below was run directly in Claude Code …"
                "</local-command-caveat>"}},
    {"parentUuid": ID.format(7), "promptId": "9d68", "type": "user", "uuid": ID.format(8),
     "message": {"role": "user", "content": "<bash-input>true</bash-input>"}},
    {"parentUuid": ID.format(8), "promptId": "9d68", "type": "user", "uuid": ID.format(9),
     "message": {"role": "user", "content": "<bash-stdout>(Bash completed with no output)"
     "</bash-stdout><bash-stderr></bash-stderr>"}},
]  # fmt: skip
FIRST = f"bash-{ID.format(4)}"


@pytest.fixture
def t(tmp_path: Path) -> Transcript:
    return Transcript(tmp_path / "t.jsonl")


def run(t: Transcript, command: str, out: str = "out", err: str = "", uuid: str = "") -> str:
    """A user of a terminal runs a command; returns the uuid of its entry."""
    uuid = t.prompt(f"<bash-input>{command}</bash-input>", uuid or None, entrypoint="cli")
    shown = f"<bash-stdout>{out}</bash-stdout><bash-stderr>{err}</bash-stderr>"
    t.prompt(shown, entrypoint="cli")
    return uuid


def output(t: Transcript) -> str:
    """What the only command of the transcript shows."""
    (ended,) = (one for one in Reading(t).look() if isinstance(one, ToolEnded))
    return "".join(one.text for one in ended.content if isinstance(one, TextPart))


def test_commands_of_real_terminal_are_turns(t: Transcript) -> None:
    for line in TERMINAL:
        t.raw(json.dumps({"isSidechain": False, "entrypoint": "cli", **line}) + "\n")
    reading = Reading(t)
    events = reading.look()
    command = "printf '\\033[31mred\\033[0m\\n'; echo '<a> & b'"
    assert words(events) == [
        *("> Hi", "hi"),
        *(f"> !{command}", f"{command} …", f"{FIRST} completed", "I see."),
        *("> !true", "true …", f"bash-{ID.format(8)} completed"),
    ]
    assert reading.parents == {
        ID.format(1): None, ID.format(4): ID.format(1), ID.format(8): ID.format(4)
    }  # fmt: skip
    assert reading.pieces[-1].head == ID.format(8)
    started = next(one for one in events if isinstance(one, ToolStarted))
    assert (started.tool_kind, started.input) == ("execute", {"command": command})
    shown, nothing = (one.content for one in events if isinstance(one, ToolEnded))
    assert shown == (TextPart("```\nred\n<a> & b\n```", coloured="\x1b[31mred\x1b[0m\n<a> & b"),)
    assert nothing == ()


def test_live_commands_output_ends_its_call(t: Transcript) -> None:
    t.prompt("ours", "p1")
    t.say("done")
    reading = Reading(t, own=("p1",))
    assert reading.look() == []
    t.prompt("<bash-input>ls</bash-input>", "b1")
    assert words(reading.look()) == ["> !ls", "ls …"]
    assert reading.parents == {"b1": "p1"}
    t.prompt("<bash-stdout>a.txt</bash-stdout><bash-stderr></bash-stderr>")
    assert words(reading.look()) == ["bash-b1 completed"]
    t.say("One file.")
    assert words(reading.look()) == ["One file."]
    assert reading.pieces[-1].last == {"b1": t.head}


def test_command_without_output_entry_has_failed(t: Transcript) -> None:
    t.prompt("<bash-input>sleep 9</bash-input>", "b1")
    t.prompt("two", "p2")
    assert words(Reading(t).look()) == ["> !sleep 9", "sleep 9 …", "bash-b1 failed", "> two"]


def test_output_shows_errors_below_it(t: Transcript) -> None:
    run(t, "ls x", "a.txt", "ls: cannot access 'x'\n")
    assert output(t) == "```\na.txt\nls: cannot access 'x'\n```"


def test_command_that_was_refused_has_failed(t: Transcript) -> None:
    t.prompt("<bash-input>ls</bash-input>", "b1")
    t.prompt("<bash-stderr>Not run: the session has another directory</bash-stderr>")
    assert words(Reading(t).look())[-1] == "bash-b1 failed"
    assert "Not run: the session has another directory" in output(t)


@pytest.mark.parametrize("err", ["", "e" * WHOLE])
def test_megabytes_of_output_are_bounded(t: Transcript, err: str) -> None:
    run(t, "cat", "a\n" * WHOLE, err)
    shown = output(t)
    assert 100_000 < len(shown) <= WHOLE
    assert "left out" in shown
    assert "bash-std" not in shown


def test_long_outputs_end_is_in_claudes_file(t: Transcript, tmp_path: Path) -> None:
    kept = tmp_path / "session" / "tool-results" / "b1.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("".join(f"line {n}\n" for n in range(100_000)))
    t.path = tmp_path / "t" / "t.jsonl"
    t.path.parent.mkdir()
    run(t, "seq", f"<persisted-output>\nOutput too large (1MB). Full output saved to: {kept}\n\n"
        "Preview (first 2KB):\nline 0\n...\n</persisted-output>")  # fmt: skip
    shown = output(t)
    assert "line 0\n" in shown
    assert "line 99999" in shown
    assert str(kept) in shown


def test_earlier_import_stays_as_it_is(t: Transcript) -> None:
    """Earlier versions left these commands out; the file may be read anew, as in a fork."""
    t.prompt("one", "p1")
    t.say("first")
    run(t, "old")
    last = t.say("answer")
    t.prompt("ours", "p2")
    t.say("mine")
    run(t, "older")
    t.say("left out")
    t.prompt("ours", "p3")
    t.say("mine")
    run(t, "new", uuid="b1")
    t.say("seen")
    reading = Reading(t, own=("p2", "p3"), fields={"known": {"p1": last}})
    assert words(reading.look()) == ["> !new", "new …", "bash-b1 completed", "seen"]
    assert reading.parents == {"p1": None, "p2": "p1", "p3": "p2", "b1": "p3"}


def test_known_commands_are_passed_over(t: Transcript) -> None:
    t.prompt("one", "p1")
    first = t.say("first")
    run(t, "ls", uuid="b1")
    last = t.say("answer")
    t.prompt("two", "p2")
    second = t.say("second")
    known = {"p1": first, "b1": last, "p2": second}
    assert Reading(t, fields={"known": known}).look() == []


def test_summary_for_claude_has_command_and_output(t: Transcript) -> None:
    t.prompt("one", "p1")
    t.say("first")
    run(t, "echo a", "a\n&lt;b&gt;", uuid="b1")
    t.say("answer")
    assert digest([(str(t.path), ["p1"])]) == "Asked: one\nAnswered: first"
    assert digest([(str(t.path), ["b1"])]) == "Asked: !echo a\na\n<b>\nAnswered: answer"
