"""Changes to files: before they are made, and as hunks at their lines."""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.commands import changes
from pykoclaw_acp.model.code_blocks import unfenced
from pykoclaw_acp.model.events import DiffPart, Location, TextPart, ToolEnded, ToolStarted
from pykoclaw_acp.model.refused import REFUSED
from pykoclaw_acp.protocol.tool_results import raw_output
from pykoclaw_acp.translation import diffs, tools
from pykoclaw_acp.translation.diffs import MAX_HUNKS, made
from pykoclaw_acp.translation.results import STOPPED, Result, result
from pykoclaw_acp.translation.texts import MAX_SHOWN
from pykoclaw_acp.translation.translator import ToolResult, Translation


def hunk(line: int, *lines: str, old: int | None = None) -> dict[str, Any]:
    return {"oldStart": old or line, "newStart": line, "lines": list(lines)}


def edited(*hunks: dict[str, Any], **more: Any) -> Result:
    details = {"filePath": "/w/a", "structuredPatch": list(hunks), **more}
    return result("Edit", "The file has been updated", failed=False, details=details)


def test_changes_are_shown_before_they_are_made() -> None:
    edit = {"file_path": "/work/a", "old_string": "x", "new_string": ""}
    assert tools.content("Edit", edit, "/work") == (DiffPart("/work/a", "x", ""),)
    several = {"file_path": "a", "edits": [edit, {"old_string": "y", "new_string": "z"}, 7]}
    assert tools.content("MultiEdit", several, "/work") == (
        DiffPart("/work/a", "x", ""),
        DiffPart("/work/a", "y", "z"),
    )
    cell = {"notebook_path": "/work/n.ipynb", "new_source": "x"}
    assert tools.content("NotebookEdit", cell, "/work") == (TextPart("```\nx\n```", beside=True),)


def test_change_that_was_asked_about_is_kept_cut() -> None:
    long = "x" * (2 * MAX_SHOWN)
    parts = (TextPart("for the person"), DiffPart("/a", long, long), DiffPart("/b", None, "new"))
    (cut, short) = diffs.asked_about(parts)
    assert len(cut.new_text) < len(long) > len(str(cut.old_text))
    assert "characters left out" in cut.new_text
    assert short == parts[2]


def test_only_known_new_file_is_shown_so() -> None:
    given = {"file_path": "a", "content": "x\n"}
    intended = tools.content("Write", given, "/work")
    assert intended == (TextPart("```\nx\n```", beside=True),)
    details = {"filePath": "/work/a", "content": "x\n", "structuredPatch": [], "type": "create"}
    found = result("Write", "", failed=False, details=details)
    assert found.parts == (DiffPart("/work/a", None, "x\n"),)
    too_large = {**details, "type": "update", "originalFile": "y\n"}
    assert result("Write", "", failed=False, details=too_large).parts == ()


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("File created successfully at: a", (DiffPart("/work/a", None, "x"),)),
        ("The file a has been updated successfully.", ()),
    ],
)
def test_new_file_of_subagent_is_shown_so(told: str, shown: tuple[DiffPart, ...]) -> None:
    """The CLI sends no details of it."""
    calls = Translation("/work")
    calls.start_tool("w", "Write", {"file_path": "a", "content": "x"}, "agent")
    [ended] = calls.end_tools([ToolResult("w", told)], None)
    assert isinstance(ended, ToolEnded)
    assert ended.content == shown


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (REFUSED, "Refused."),
        ("[Request interrupted by user for tool use]", STOPPED),
        ("<tool_use_error>String to replace not found.</tool_use_error>",
         "```\nString to replace not found.\n```"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}),
        ("Write", {"file_path": "a", "content": "y"}),
        ("NotebookEdit", {"notebook_path": "n.ipynb", "new_source": "y"}),
    ],
)
def test_edit_that_fails_keeps_what_it_showed(
    tool: str, arguments: dict[str, Any], told: str, said: str
) -> None:
    calls = Translation("/work")
    [began] = calls.start_tool("e", tool, arguments)
    [ended] = calls.end_tools([ToolResult("e", told, is_error=True)], f"Error: {told}")
    assert isinstance(began, ToolStarted)
    assert isinstance(ended, ToolEnded)
    assert began.content
    assert ended.content == (*began.content, TextPart(said))
    assert raw_output(ended) == {"output": unfenced(said)}


def test_hunks_have_their_context_and_their_lines() -> None:
    found = edited(hunk(47, " a", "-b", "+c", "+d", " e"), hunk(91, "-x", " y", old=90))
    assert found.parts == (
        DiffPart("/w/a", "a\nb\ne\n", "a\nc\nd\ne\n", 47, 47),
        DiffPart("/w/a", "x\ny\n", "y\n", 91, 90),
    )
    assert found.locations == (Location("/w/a", 48), Location("/w/a", 91))


def test_paths_are_absolute_as_acp_wants_them() -> None:
    details = {"filePath": "src/a", "structuredPatch": [hunk(1, "-a", "+b")]}
    found = result("Edit", "", failed=False, details=details, cwd="/w")
    assert found.parts == (DiffPart("/w/src/a", "a\n", "b\n", 1, 1),)
    assert found.locations == (Location("/w/src/a", 1),)


def test_end_of_file_without_newline_is_told_apart() -> None:
    (part,) = edited(hunk(1, "-x", "+x", "\\ No newline at end of file")).parts
    assert part == DiffPart("/w/a", "x\n", "x", 1, 1)
    (part,) = edited(hunk(1, "-y", " x", "\\ No newline at end of file")).parts
    assert part == DiffPart("/w/a", "y\nx", "x", 1, 1)


def test_tabs_that_cli_replaces_come_back() -> None:
    """It gives two spaces for each tab that a line begins with."""
    before = "all:\n\tcc a\n\tcc b\n  \tx\n\t\ty\n"
    lines = " all:", "-  cc a", "+  cc c", "   cc b", "   \tx", "     y"
    after = before.replace("\tcc a", "\tcc c")
    edit = {"oldString": "\tcc a", "newString": "\tcc c", "replaceAll": False}
    for more in edit, {"type": "update", "content": after}:
        found = edited(hunk(1, *lines), originalFile=before, **more)
        assert found.parts == (DiffPart("/w/a", before, after, 1, 1),)
    unknown = edited(hunk(1, *lines), originalFile=None, **edit)
    spaces = before.replace("\n\t\t", "\n    ").replace("\n\t", "\n  ")
    kept = DiffPart("/w/a", spaces, spaces.replace("cc a", "cc c"), 1, 1)
    assert unknown.parts == (kept,)
    other = edited(hunk(1, *lines), originalFile="other\n\tfile\n", **edit)
    assert other.parts == (kept,)


def test_tabs_come_back_in_lines_that_move() -> None:
    """As where a line is taken out: the CLI takes its end, too."""
    before = "\ta\n\tb\n\ta\n\td\n"
    edit = {"oldString": "\ta", "newString": "", "replaceAll": True}
    lines = "-  a", "   b", "-  a", "   d"
    (part,) = edited(hunk(1, *lines), originalFile=before, **edit).parts
    assert part == DiffPart("/w/a", before, "\tb\n\td\n", 1, 1)
    edit = {"oldString": "\tb", "newString": "\tb\n\tc", "replaceAll": False}
    added = "   a", "   b", "+  c", "   a", "   d"
    (part,) = edited(hunk(1, *added), originalFile=before, **edit).parts
    assert part == DiffPart("/w/a", before, "\ta\n\tb\n\tc\n\ta\n\td\n", 1, 1)


def test_tabs_made_spaces_are_change_beside_another() -> None:
    edit = {"oldString": "\tx\n\ty", "newString": "  x\n  z", "originalFile": "\tx\n\ty\n"}
    (part,) = edited(hunk(1, "   x", "-  y", "+  z"), **edit).parts
    assert part == DiffPart("/w/a", "\tx\n\ty\n", "  x\n  z\n", 1, 1)


def test_overwrite_is_a_change_unless_the_same() -> None:
    (part,) = edited(hunk(1, "-old", "+new"), type="update", originalFile="old").parts
    assert part == DiffPart("/w/a", "old\n", "new\n", 1, 1)
    same = TextPart("(The file had this content already.)", beside=True)
    assert edited(type="update", originalFile="a\n", content="a\n").parts == (same,)


def test_overwrite_that_cli_did_not_compare_stays() -> None:
    """As of a file that is too large, or where only tabs became spaces."""
    assert edited(type="update", originalFile=None, content="{}").parts == ()
    assert edited(type="update", originalFile="\ta\n", content="  a\n").parts == ()


def test_cell_of_a_notebook_is_a_change() -> None:
    def change(**more: Any) -> Result:
        details = {"notebook_path": "/w/n", "old_source": "a", "new_source": "b", "error": ""}
        return result("NotebookEdit", "", failed=False, details={**details, **more})

    here = (Location("/w/n"),)
    assert change(edit_mode="replace") == Result((DiffPart("/w/n", "a", "b"),), None, here)
    assert change(edit_mode="insert") == Result((DiffPart("/w/n", "", "b"),), None, here)
    assert change(edit_mode="delete") == Result((DiffPart("/w/n", "a", ""),), None, here)


def test_long_changes_are_bounded_and_say_so() -> None:
    many = edited(*[hunk(n, "-a", "+b") for n in range(1, MAX_HUNKS + 11)])
    assert many.parts[-1] == TextPart("(10 more changes of this file are not shown)", beside=True)
    assert (len(many.parts), len(many.locations)) == (MAX_HUNKS + 1, MAX_HUNKS)
    giant = edited(*[hunk(n, "-" + "a" * MAX_SHOWN, "+b") for n in range(1, 9)])
    assert sum(len(str(part)) for part in giant.parts) < 3 * MAX_SHOWN
    assert "characters left out" in str(giant.parts[-1])


def test_damaged_patch_keeps_what_was_shown() -> None:
    damaged: list[object] = [None, 7, [7], [{}], [{"lines": [], "newStart": "x", "oldStart": 1}]]
    for patch in damaged:
        assert made({"structuredPatch": patch}, "/w/a") is None


# --- as text


def test_change_as_text_has_lines_and_little_context() -> None:
    old = "".join(f"{n}\n" for n in range(1, 21))
    part = {"oldText": old, "newText": old.replace("10\n", "ten\n"), "path": "/w/a"}
    shown = list(changes.lines(part))
    assert shown == ["@@", " 7", " 8", " 9", "-10", "+ten", " 11", " 12", " 13"]
    at = {**part, "_meta": {"pykoclaw.dev/line": 100, "pykoclaw.dev/oldLine": 90}}
    assert next(iter(changes.lines(at))) == "@@ -96,7 +106,7 @@"


def test_patch_says_line_count_of_each_hunk() -> None:
    old = "".join(f"{n}\n" for n in range(1, 41))
    new = old.replace("5\n", "five\nand\n", 1).replace("30\n", "")
    part = {"oldText": old, "newText": new, "path": "/w/a"}
    head = ["--- /w/a", "+++ /w/a"]
    shown = list(changes.patch(part))
    assert shown[:2] == head
    headers = ["@@ -2,7 +2,8 @@", "@@ -27,7 +28,6 @@"]
    assert [line for line in shown if line.startswith("@@")] == headers
    made = list(changes.patch({**part, "oldText": None, "newText": "a\nb\n"}))
    assert made == ["--- /dev/null", "+++ /w/a", "@@ -0,0 +1,2 @@", "+a", "+b"]
    emptied = list(changes.patch({**part, "oldText": "a\n", "newText": ""}))
    assert emptied == [*head, "@@ -1,1 +0,0 @@", "-a"]
    at = {**part, "_meta": {"pykoclaw.dev/line": 100, "pykoclaw.dev/oldLine": 90}}
    assert list(changes.patch(at))[2] == "@@ -91,7 +101,8 @@"
    long = {**part, "oldText": "a\n" * changes.MOST, "newText": "b\n"}
    assert list(changes.patch(long))[2] == f"@@ -1,{changes.MOST} +1,1 @@"


def test_change_as_text_hides_no_end_of_line() -> None:
    shown = list(changes.lines({"oldText": "x", "newText": "x\n"}))
    assert shown == ["-x", "\\ No newline at end of file", "+x"]
    assert list(changes.lines({"oldText": "x", "newText": "x\r"})) == ["-x", "+x\r"]
    assert list(changes.lines({"oldText": None, "newText": "a\u2028b"})) == ["+a\u2028b"]


def test_giant_change_as_text_is_whole() -> None:
    old = "a\n" * changes.MOST
    shown = list(changes.lines({"oldText": old, "newText": "b\n"}))
    assert (len(shown), shown[-1]) == (changes.MOST + 1, "+b")
