"""What a person sees of a tool call."""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.model.events import DiffPart, ImagePart, Location, TextPart
from pykoclaw_acp.translation import tools


@pytest.mark.parametrize(
    ("name", "arguments", "title"),
    [
        ("Bash", {"command": "pytest -q\n  tests"}, "Bash: pytest -q ⏎ tests"),
        ("Edit", {"file_path": "/work/src/a.py"}, "Edit src/a.py"),
        ("Read", {"file_path": "src/a.py"}, "Read src/a.py"),
        ("Read", {"file_path": "/etc/hosts"}, "Read /etc/hosts"),
        ("Grep", {"pattern": "needle"}, "Grep: needle"),
        ("WebFetch", {"url": "https://example.org"}, "WebFetch: https://example.org"),
        ("Agent", {"description": "look around"}, "Agent: look around"),
        ("mcp__mitto__mitto_list", {}, "mitto: mitto_list"),
        ("EnterPlanMode", {}, "EnterPlanMode"),
    ],
)
def test_titles_say_what_is_done_to_what(name: str, arguments: dict[str, Any], title: str) -> None:
    assert tools.title(name, arguments, "/work") == title


def test_a_title_is_one_short_line() -> None:
    title = tools.title("Bash", {"command": "x\n" * 500}, "/work")
    assert len(title) == tools.MAX_TITLE
    assert title.endswith("… [cut: 501 lines, 1006 characters in all]")


def test_a_title_hides_no_line_and_no_character() -> None:
    assert (
        tools.title("Bash", {"command": "ls" + " " * 300 + "\ncurl x | sh"}, "/work")
        == "Bash: ls ⏎ curl x | sh"
    )
    assert (
        tools.title("Bash", {"command": "a\rb\u202ec\u200bd\x1b[2K"}, "/w")
        == r"Bash: a\rb\u202ec\u200bd\x1b[2K"
    )
    long = tools.title("Bash", {"command": "echo " + "x" * 5000}, "/work")
    assert (len(long), long.endswith("… [cut: 5011 characters in all]")) == (tools.MAX_TITLE, True)


def test_changes_are_shown_before_they_are_made() -> None:
    write = tools.content("Write", {"file_path": "a", "content": ""}, "/work")
    assert write == (DiffPart("/work/a", None, ""),)
    edit = tools.content(
        "Edit", {"file_path": "/work/a", "old_string": "x", "new_string": ""}, "/work"
    )
    assert edit == (DiffPart("/work/a", "x", ""),)
    assert tools.locations({"file_path": "a", "offset": 7}, "/work") == (Location("/work/a", 7),)


def test_only_failed_change_shows_its_result() -> None:
    assert tools.result("Edit", "The file has been updated", failed=False) == ()
    assert tools.result("Edit", "no such text", failed=True) == (
        TextPart("```\nno such text\n```"),
    )


def test_long_output_keeps_its_beginning_and_end() -> None:
    [part] = tools.result("Bash", "begin" + "x" * 10**6 + "the end", failed=False)
    assert isinstance(part, TextPart)
    assert len(part.text) < tools.MAX_SHOWN + 100
    assert "begin" in part.text
    assert part.text.endswith("the end\n```")
    assert "left out" in part.text


def test_images_are_kept_and_giant_ones_named() -> None:
    image = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    }
    assert tools.result("Read", [image], failed=False) == (ImagePart("AAAA", "image/png"),)
    image["source"]["data"] = "A" * (tools.MAX_IMAGE + 1)  # type: ignore[index]
    [part] = tools.result("Read", [image], failed=False)
    assert isinstance(part, TextPart)


def test_input_for_the_log_is_bounded() -> None:
    shown = tools.shown_input({"content": "x" * 10**6, "deep": ["y" * 10**6], "n": 1})
    assert len(str(shown)) < 2 * tools.MAX_SHOWN
    assert shown["n"] == 1
