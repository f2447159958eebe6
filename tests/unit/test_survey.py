"""What the transcripts of all projects say of themselves, and which of them have changed."""

from __future__ import annotations

import errno
import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.system.regular_files import opened
from pykoclaw_acp.transcripts import survey
from pykoclaw_acp.transcripts.wire import Compare, Examined, Survey
from tests.unit.transcripts import Transcript
from tests.unit.wrapped_prompts import CONTEXT

ONE = "11111111-1111-4111-8111-111111111111"
TWO = "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def t(tmp_path: Path) -> Transcript:
    (tmp_path / "-w").mkdir()
    return Transcript(tmp_path / "-w" / f"{ONE}.jsonl")


def test_helper_that_user_named_is_no_session(t: Transcript) -> None:
    t.prompt("You are a changelog writer. Write.")
    assert found(t).prompted
    one = survey.examine(str(t.path), ("You are a changelog",))
    assert one is not None
    assert not one.prompted


def found(t: Transcript) -> Examined:
    one = survey.examine(str(t.path))
    assert one is not None
    return one


def line(**fields: Any) -> str:
    return json.dumps(fields) + "\n"


def test_transcript_says_where_it_began_and_first_prompt(t: Transcript) -> None:
    t.raw(line(type="queue-operation", sessionId=ONE))
    t.prompt([{"type": "text", "text": "<ide-file>x</ide-file>"}, {"type": "text", "text": "Hi"}])
    t.say("Hello", timestamp="2026-01-02T03:04:05.678Z")
    t.add("attachment", cwd="/elsewhere", timestamp="2027-01-01T00:00:00Z")
    one = found(t)
    assert (one.claude_session_id, one.cwd, one.prompted) == (ONE, "/w", True)
    assert one.words == ["<ide-file>x</ide-file>", "Hi"]
    assert one.updated_at == 1767323045678
    assert one.size == t.path.stat().st_size


def test_notes_given_to_claude_are_no_prompt(t: Transcript) -> None:
    asked = [{"type": "text", "text": "Hi"}]
    blocks, _ = prompt_text.with_notes(asked, [prompt_text.Note("1", "The job is done.")])
    t.prompt(blocks)
    assert found(t).words == ["Hi"]


def test_persons_title_counts_before_claudes(t: Transcript) -> None:
    t.prompt("Hi")
    t.raw(line(type="ai-title", aiTitle="Greeting"))
    assert found(t).title == "Greeting"
    t.raw(line(type="custom-title", customTitle="Old"))
    t.raw(line(type="custom-title", customTitle="Mine"))
    t.raw(line(type="ai-title", aiTitle="Another"))
    assert found(t).title == "Mine"


def test_the_end_of_a_long_transcript_is_enough(t: Transcript) -> None:
    t.prompt("Hi")
    t.say("x" * survey.TAIL, timestamp="2026-01-01T00:00:00Z")
    t.say("the last", timestamp="2026-01-01T00:00:01Z")
    assert found(t).updated_at == 1767225601000


def test_a_prompt_of_megabytes_is_cut(t: Transcript) -> None:
    t.prompt("word " * 400_000)
    one = found(t)
    assert one.prompted
    assert len(one.words[0]) == survey.MOST_WORDS


def test_title_is_users_words_however_long(t: Transcript) -> None:
    t.prompt(CONTEXT.format("Fix the parser. " + "x" * survey.MOST_WORDS))
    one = found(t)
    assert one.words[0].startswith("Fix the parser. xxx")
    assert len(one.words[0]) == survey.MOST_WORDS


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        "<command-name>/model</command-name><command-args>opus</command-args>",
        "<bash-input>ls</bash-input>",
        "List ALL MCP tools currently available to you. Say nothing else.",
    ],
)
def test_what_nobody_asked_claude_is_no_session(t: Transcript, prompt: str | None) -> None:
    t.add("system")
    if prompt is not None:
        t.prompt(prompt)
        t.prompt("<local-command-stdout>Set</local-command-stdout>")
    assert not found(t).prompted


def test_slash_command_claude_answered_is_session(t: Transcript) -> None:
    t.prompt("<command-name>/review</command-name>")
    t.say("Reviewed")
    one = found(t)
    assert (one.prompted, one.words) == (True, [])


def test_shell_command_before_first_prompt_is_no_title(t: Transcript) -> None:
    t.prompt("<bash-input>ls</bash-input>")
    t.prompt("<bash-stdout>a.txt</bash-stdout><bash-stderr></bash-stderr>")
    t.say("One file.")
    assert (found(t).prompted, found(t).words) == (True, [])
    t.prompt("Read it")
    assert found(t).words == ["Read it"]


def test_a_subagents_transcript_is_no_session(t: Transcript) -> None:
    t.prompt("Do it", isSidechain=True)
    assert not found(t).prompted


def test_damage_is_passed_over(t: Transcript) -> None:
    t.raw('{"type": "user", "uuid"\n\0\0\0\n[]\n')
    t.prompt("Hi")
    t.raw('"timestamp":')
    assert found(t).words == ["Hi"]
    assert survey.examine(str(t.path) + "x") is None
    assert survey.examine(str(t.path / "x")) is None
    with pytest.raises(OSError, match="not a file"):
        survey.examine(str(t.path.parent))


def test_only_what_has_changed_is_read(t: Transcript) -> None:
    folder = str(t.path.parent)
    t.prompt("Hi")
    (t.path.parent / "agent-1.jsonl").write_text("{}")
    (t.path.parent.parent / "-empty").mkdir()
    projects = str(t.path.parent.parent)
    asked = survey.survey(Survey(projects, {"/gone": "x"}))
    assert (asked.changed, asked.gone) == ([folder], ["/gone"])
    assert len(asked.every) == 2
    (answer,) = survey.compare(Compare(folder, {}))
    assert [one.claude_session_id for one in answer.transcripts] == [ONE]
    assert answer.done
    assert survey.survey(Survey(projects, {folder: answer.digest})).changed == []

    known = {
        one.path[len(folder) + 1 :]: survey.mark(one.size, one.mtime) for one in answer.transcripts
    }
    other = Transcript(t.path.with_name(f"{TWO}.jsonl"))
    other.prompt("Another")
    assert survey.survey(Survey(projects, {folder: answer.digest})).changed == [folder]
    (answer,) = survey.compare(Compare(folder, known))
    assert [one.claude_session_id for one in answer.transcripts] == [TWO]
    os.unlink(t.path)
    (answer,) = survey.compare(Compare(folder, known))
    assert answer.gone == [t.path.name]


def test_unreadable_transcript_is_looked_at_again(
    t: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    t.prompt("Hi")
    folder, projects = str(t.path.parent), str(t.path.parent.parent)
    other = Transcript(t.path.with_name(f"{TWO}.jsonl"))
    other.prompt("Another")

    def refusing(path: str) -> AbstractContextManager[int]:
        if path == str(t.path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(survey, "opened", refusing)
        (answer,) = survey.compare(Compare(folder, {t.path.name: "an earlier size"}))
    assert [one.claude_session_id for one in answer.transcripts] == [TWO]
    assert (answer.gone, answer.done) == ([], True)
    assert "Permission denied" in answer.unread
    assert survey.survey(Survey(projects, {folder: answer.digest})).changed == [folder]
    (answer,) = survey.compare(Compare(folder, {}))
    assert (len(answer.transcripts), answer.unread) == (2, "")
    assert survey.survey(Survey(projects, {folder: answer.digest})).changed == []


def test_unreadable_folder_is_not_gone(t: Transcript) -> None:
    loop = t.path.parent.parent / "loop"
    loop.symlink_to(loop)
    for asked in (
        lambda: survey.survey(Survey(str(loop), {})),
        lambda: [*survey.compare(Compare(str(loop), {}))],
    ):
        with pytest.raises(OSError, match="symbolic links"):
            asked()
    assert survey.survey(Survey(str(loop) + "x", {"/gone": ""})).gone == ["/gone"]


def test_what_cannot_be_looked_at_is_not_gone(
    t: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a folder that may be read and not searched, or behind such a link."""
    t.prompt("Hi")
    folder = t.path.parent
    stat = os.stat

    def refusing(path: Any, **more: Any) -> os.stat_result:
        if str(path).startswith((str(t.path), f"{folder}-link")) and more.get(
            "follow_symlinks", True
        ):
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", refusing)
    with pytest.raises(PermissionError):
        list(survey.compare(Compare(str(folder), {t.path.name: "as it was"})))
    assert survey.survey(Survey(str(folder.parent), {str(folder): "as it was"})).changed == [
        str(folder)
    ]


def test_many_transcripts_come_in_several_answers(t: Transcript, monkeypatch: Any) -> None:
    monkeypatch.setattr(survey, "BATCH", 2)
    for n in range(5):
        Transcript(t.path.with_name(f"{n}{ONE[1:]}.jsonl")).prompt("Hi")
    answers = list(survey.compare(Compare(str(t.path.parent), {})))
    assert [len(one.transcripts) for one in answers] == [2, 2, 1]
    assert [one.done for one in answers] == [False, False, True]


def test_what_is_no_folder_of_claudes_costs_itself(t: Transcript) -> None:
    t.prompt("Hi")
    projects = t.path.parent.parent
    (projects / "loop").symlink_to("loop")
    (projects / "dangling").symlink_to("nowhere")
    os.mkdir(os.fsencode(projects) + b"/bad\xff")
    asked = survey.survey(Survey(str(projects), {}))
    assert asked.every == asked.changed == [str(t.path.parent)]
    msgspec.json.encode(asked)


def test_first_prompt_behind_large_images_is_found(t: Transcript) -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": "A" * 3_000_000}
    image = {"type": "image", "source": picture}
    t.prompt([image, image, {"type": "text", "text": "What is this?"}])
    one = found(t)
    assert (one.cwd, one.words) == ("/w", ["What is this?"])
