"""What `pykoclaw-acp trust` shows in a narrow terminal can be copied."""

from __future__ import annotations

from typing import Any

import click
import pytest

from pykoclaw_acp import terminal
from pykoclaw_acp.commands import trust

PATH = "/srv/clones/" + "/".join(["a-directory-with-a-long-name"] * 2)
PROGRAM = ".claude/hooks/" + "b" * 50 + ".sh"
DIGEST = "f" * 64


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the daemon answers to each method."""
    answers: dict[str, Any] = {}
    monkeypatch.setattr(terminal, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(trust, "ask", lambda method, **_params: answers[method])
    return answers


def test_long_words_of_findings_stay_whole(
    answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    found = [f".claude/settings.json: hook at SessionStart: {PROGRAM} {DIGEST} --now", "short  two"]
    answer["trust/show"] = {
        "path": PATH, "found": found, "dotenv": [], "trusted": False, "changes": [f"new: {PROGRAM} x"],
    }  # fmt: skip
    trust.look(".", as_json=False)
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert all(len(line) <= 80 for line in lines[1:])  # the path is not broken
    for word in (PROGRAM, DIGEST):
        assert word in out
    assert lines[0] == f"{PATH} has this active content:"
    assert lines[2].startswith("    .claude/hooks/")  # none passes for another finding
    assert "  short  two" in lines


def test_listed_directories_are_whole(
    answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"path": PATH, "tree": True, "pending": False, "dotenv": True, "by": "cli", "at": 0}
    answer["trust/list"] = [row, {**row, "path": "/w", "trusted": False, "by": ""}]
    trust.list_all(as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == PATH
    assert lines[1].startswith(
        "    trusted with whatever it holds, and below; .env is read; by cli,"
    )
    second = lines.index("/w")
    assert lines[second + 1].startswith("    run without; .env is read; by nobody, since ")
    assert all(len(line) <= 80 for line in lines)


def test_short_directories_are_a_table(
    answer: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"path": "/w", "tree": False, "pending": False, "dotenv": False, "by": "cli", "at": 0}
    answer["trust/list"] = [row]
    trust.list_all(as_json=False)
    assert click.unstyle(capsys.readouterr().out).split()[:2] == ["directory", "state"]
