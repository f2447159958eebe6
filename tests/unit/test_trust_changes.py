"""What has changed in a directory since it was trusted."""

from __future__ import annotations

from pykoclaw_acp.model.events import TextPart
from pykoclaw_acp.model.permissions import Workspace
from pykoclaw_acp.model.trust import ANY, FIRST_USE, MAX_NAMED, NOTHING, Trusted, changes
from pykoclaw_acp.sessions import workspace_words

UNKNOWN = ["other content; what has changed is not known"]


def row(content: str, at: int, files: dict[str, str] | None, path: str = "/work") -> Trusted:
    return Trusted(path, content, None, "Zed", at, files)


def test_files_are_compared_by_digest() -> None:
    known = [row("x", 1, {"a": "1", "b": "1", "c": "1"})]
    assert changes("/work", {"a": "1", "b": "2", "d": "1"}, known) == [
        "changed: b",
        "new: d",
        "gone: c",
    ]


def test_closest_of_several_trusted_contents_counts() -> None:
    known = [
        row("x", 1, {"a": "1", "b": "1"}),
        row("y", 2, {"a": "9", "b": "9"}),
        row("z", 3, None),
    ]
    assert changes("/work", {"a": "1", "b": "2"}, known) == ["changed: b"]


def test_never_trusted_directory_causes_no_words() -> None:
    known = [row("x", 1, {}, "/"), row(ANY, 1, None), row(FIRST_USE, 1, None)]
    assert changes("/work", {"a": "1"}, known) == []


def test_all_is_new_where_nothing_acted() -> None:
    assert changes("/work", {"a": "1"}, [row(NOTHING, 1, {})]) == ["new: a"]


def test_without_digests_it_says_so() -> None:
    assert changes("/work", {"a": "1"}, [row("x", 1, None)]) == UNKNOWN
    assert changes("/work", {}, [row("x", 1, {"a": "1"})]) == UNKNOWN


def test_many_changes_are_counted() -> None:
    files = {f"{at:03}": "1" for at in range(MAX_NAMED + 7)}
    said = changes("/work", files, [row("x", 1, {})])
    assert len(said) == MAX_NAMED + 1
    assert said[-1] == "and 7 more"


def test_changed_files_names_are_neutral_inside_block() -> None:
    changed = {"/work": ["new: a\n```\n\u202eb"]}
    question = workspace_words.request("t", [Workspace("/work", "c", ("x",))], changed)
    said = str(question.content)
    assert "\u202e" not in said
    assert "new: a\\\\n```" in said.replace("````", "")


def test_question_about_change_names_way_out() -> None:
    places = [Workspace(path, "c", ("x",)) for path in ("/my work", "/other")]
    way = "pykoclaw-acp trust add --tree"
    first = workspace_words.request("t", places)
    assert way not in str(first.content)
    again = workspace_words.request("t", places, {"/my work": ["changed: a"], "/other": []})
    (said,) = again.content
    assert isinstance(said, TextPart)
    assert f"```sh\n{way} '/my work'\n```" in said.text
