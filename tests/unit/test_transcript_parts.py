"""The small parts of the import: who sent a prompt, where a transcript is, which branch lacks what."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pykoclaw_acp.model.events import UserMessage
from pykoclaw_acp.model.imports import TranscriptTurn, chain
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.protocol import projection
from pykoclaw_acp.protocol.updates import UserMessageChunk
from pykoclaw_acp.sessions.tail import Tail
from pykoclaw_acp.system import transcript_files as files
from pykoclaw_acp.system.regular_files import opened
from pykoclaw_acp.transcripts.branches import lacking
from pykoclaw_acp.transcripts.digest import digest
from pykoclaw_acp.transcripts.origins import origin
from tests.unit.transcripts import Transcript
from tests.unit.wrapped_prompts import CONTEXT

ID = "c1a0de00-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("entrypoint", "conversation", "prompt", "said"),
    [
        ("cli", "wa-andy-1", "x", "terminal"),
        ("sdk-cli", "acp-1", "x", "terminal"),
        ("claude-vscode", "acp-1", "x", "claude-vscode"),
        ("sdk-ts", "acp-1", "x", "sdk-ts"),
        ("sdk-ts", "wa-andy-1", "job", "sdk-ts"),
        ("sdk-py", "acp-1", "job", "scheduler"),
        ("sdk-py", "wa-andy-1", "x", "whatsapp"),
        ("sdk-py", "tg-7", "x", "telegram"),
        ("sdk-py", "matrix-7", "x", "matrix"),
        ("sdk-py", "acp-1", "x", "pykoclaw"),
        (None, "notes", "x", "notes"),
    ],
)
def test_origin_of_a_prompt(
    entrypoint: str | None, conversation: str, prompt: str, said: str
) -> None:
    assert origin(entrypoint, conversation, prompt, ["job"]) == said


def test_client_is_told_the_origin() -> None:
    message = UserMessage("m", {"type": "text", "text": "x"}, "terminal")
    update = projection.update(7, message)
    assert isinstance(update, UserMessageChunk)
    assert update.meta == {"pykoclaw.dev/seq": 7, "pykoclaw.dev/origin": "terminal"}
    plain = projection.update(8, UserMessage("m", {"type": "text", "text": "x"}))
    assert plain.meta == {"pykoclaw.dev/seq": 8}


def test_transcript_is_found_in_any_project(tmp_path: Path) -> None:
    projects = tmp_path / "projects"
    assert files.find(str(projects), ID) is None
    for name in ("-a", "-b", "-c"):
        (projects / name).mkdir(parents=True)
    (projects / "-b" / f"{ID}.jsonl").touch()
    assert files.find(str(projects), ID) == str(projects / "-b" / f"{ID}.jsonl")
    newer = projects / "-c" / f"{ID}.jsonl"
    newer.touch()
    os.utime(projects / "-b" / f"{ID}.jsonl", (1, 1))
    assert files.find(str(projects), ID) == str(newer)


@pytest.mark.parametrize("name", ["../a", "a/b", "", "*", "a" * 65, "a.b"])
def test_only_ids_are_looked_for(tmp_path: Path, name: str) -> None:
    (tmp_path / "-p").mkdir()
    (tmp_path / "a.jsonl").touch()
    assert files.find(str(tmp_path), name) is None


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "nothing"):
        assert files.look(str(path)) is None
        with pytest.raises(OSError), opened(str(path)):  # noqa: PT011  of any kind
            pass


def test_what_is_no_file_obstructs_the_transcript(tmp_path: Path) -> None:
    for name in ("-a", "-b"):
        (tmp_path / name).mkdir()
    (tmp_path / "-a" / f"{ID}.jsonl").touch()
    assert not files.is_obstructed(str(tmp_path), ID)
    os.mkfifo(tmp_path / "-b" / f"{ID}.jsonl")
    assert files.is_obstructed(str(tmp_path), ID)
    assert files.find(str(tmp_path), ID) == str(tmp_path / "-a" / f"{ID}.jsonl")


def test_projects_are_where_the_cli_has_them() -> None:
    assert files.folder({"CLAUDE_CONFIG_DIR": "/c"}) == "/c/projects"
    assert files.folder({"CLAUDE_CONFIG_DIR": ""}) == os.path.expanduser("~/.claude/projects")


def turn(
    uuid: str, parent: str | None = None, *, told: bool = False, told_in: str | None = None
) -> TranscriptTurn:
    return TranscriptTurn(uuid, "c", parent, told=told, told_in=told_in)


def test_branches_not_leading_to_head_are_lacking() -> None:
    turns = [
        turn("a"),
        turn("b", "a"),
        turn("c", "a"),
        turn("d", "c"),
        turn("side"),
        turn("e", "b"),
    ]
    assert chain({one.uuid: one.parent for one in turns}, "d") == {"a", "c", "d"}
    assert [one.uuid for one in lacking(turns, "d", [])] == ["b", "side", "e"]
    assert [one.uuid for one in lacking(turns, "d", ["e"])] == ["b", "side"]
    assert lacking([turn("a"), turn("x", told=True)], "a", []) == []
    assert chain({"a": "b", "b": "a"}, "a") == {"a", "b"}  # damaged, and no endless loop
    assert [one.uuid for one in lacking(turns, None, [])] == [one.uuid for one in turns]


@pytest.mark.parametrize(
    ("head", "running", "told_again"),
    [("c", [], False), ("d", [], True), ("d", ["c"], False)],
)
def test_turns_told_on_another_branch_are_lacking(
    head: str, running: list[str], told_again: bool
) -> None:
    turns = [turn("a"), turn("b", "a", told=True, told_in="c"), turn("c", "a"), turn("d", "a")]
    found = [one.uuid for one in lacking(turns, head, running)]
    assert ("b" in found) is told_again


def test_digest_says_what_was_asked_done_and_answered(tmp_path: Path) -> None:
    t = Transcript(tmp_path / "t.jsonl")
    t.prompt("not this one", "p0")
    t.say("nor this")
    t.prompt("What is new?", "p1")
    t.call("t1", "WebSearch", query="x")
    t.call("t2", "WebSearch", query="y")
    t.result("t1")
    t.say("Much.")
    t.say("z" * 5000)
    t.prompt("later", "p2")
    t.say("not told")
    said = digest([(str(t.path), ["p1"])])
    assert said.startswith("Asked: What is new?\nTools: WebSearch (2)\nAnswered: … zzz")
    assert "not" not in said
    assert len(said) < 2000


def test_digest_has_the_users_words_alone(tmp_path: Path) -> None:
    t = Transcript(tmp_path / "t.jsonl")
    file, asked = "<ide-file>x</ide-file>", CONTEXT.format("Delete it.")
    t.prompt([{"type": "text", "text": one} for one in (file, asked)], "p1")
    said = digest([(str(t.path), ["p1"])])
    assert said.startswith(f"Asked: {file}\nDelete it.\nAnswered:")


def test_digest_has_words_from_during_turn(tmp_path: Path) -> None:
    t = Transcript(tmp_path / "t.jsonl")
    t.prompt("Build it.", "p1")
    for mode, text in (("prompt", "And test it."), ("task-notification", "<task-id>b1</task-id>")):
        said = {"type": "queued_command", "prompt": text, "commandMode": mode}
        t.add("attachment", attachment=said)
    t.say("Done.")
    said_to_claude = digest([(str(t.path), ["p1"])])
    assert said_to_claude == "Asked: Build it.\nAnd test it.\nAnswered: Done."


def test_digest_is_bounded(tmp_path: Path) -> None:
    t = Transcript(tmp_path / "t.jsonl")
    for n in range(30):
        t.prompt(f"{n} " + "q" * 10_000, f"p{n}")
        t.say("a" * 10_000)
    said = digest([(str(t.path), [f"p{n}" for n in range(30)])])
    assert len(said) < 20_000
    assert said.startswith("(22 earlier turns are left out.)")
    assert "Asked: 29 q" in said
    assert "Asked: 21 q" not in said


def test_digest_has_all_of_many_short_turns(tmp_path: Path) -> None:
    t = Transcript(tmp_path / "t.jsonl")
    for n in range(40):
        t.prompt(f"Question {n}.", f"p{n}")
        t.say(f"Answer {n}.")
    said = digest([(str(t.path), [f"p{n}" for n in range(40)])])
    assert [said.count(f"Asked: Question {n}.\nAnswered: Answer {n}.") for n in range(40)] == [
        1
    ] * 40
    assert "left out" not in said


def test_tail_of_a_log_has_no_gap() -> None:
    tail = Tail()
    tail.extend([Logged(n, None, None) for n in (1, 2, 5, 6)])
    assert [one.seq for one in tail.after(4)] == [5, 6]
    assert tail.after(1) == []
    tail.extend([Logged(3, None, None), Logged(4, None, None)])  # committed before, told later
    assert [one.seq for one in tail.after(2)] == [3, 4]
    assert tail.after(5) == []
