"""What commands say of a session that waits for an answer, as about trust in its directory."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from pykoclaw_acp.cli import cli
from pykoclaw_acp.front import call as front

SUMMARY: dict[str, Any] = {
    "id": "5e55aaaa", "conversation": "acp-5e55aaaa", "title": "The parser", "busy": True, "cwd": "/w",
    "createdAt": 0, "updatedAt": 0, "promptedAt": 0, "closedAt": None, "prunedAt": None, "client": None,
    "auxiliary": False,
}  # fmt: skip
DETAILS: dict[str, Any] = {
    "summary": SUMMARY, "additionalDirectories": [], "mode": None, "model": None, "awayPolicy": None,
    "claudeSession": None, "events": 0, "turnCount": 1, "worker": None, "turns": [],
}  # fmt: skip
ASKED: dict[str, Any] = {"id": "0123456789abcdef", "title": "Trust /w?\x1b[31m"}
TOLD = r"an answer: Trust /w?\x1b[31m (`pykoclaw-acp approve 0123456789ab`)"


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What it answers, by method; its history is empty."""
    answers: dict[str, Any] = {
        "sessions/list": {"sessions": [SUMMARY], "more": False},
        "sessions/show": DETAILS,
        "questions/list": [{**ASKED, "session": "0ther"}, {**ASKED, "session": SUMMARY["id"]}],
    }

    def call(_places: object, method: str, _params: object, **_: Any) -> Any:
        return answers[method.removeprefix("_pykoclaw.dev/")]

    monkeypatch.setattr(front, "call", call)
    monkeypatch.setattr(front, "follow", lambda *_, **__: iter(()))
    return answers


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="pykoclaw-acp")


def test_session_that_waits_for_answer_says_so(daemon: dict[str, Any]) -> None:
    assert "asking" in run("sessions", "list").stdout.splitlines()[2].split()
    shown = run("sessions", "show", "5e55").stdout
    assert shown.count(TOLD) == 1
    tail = run("sessions", "tail", "5e55")
    assert tail.stderr.splitlines() == [f"Waits for {TOLD}"]
    del daemon["questions/list"][1]
    assert "busy" in run("sessions", "list").stdout.splitlines()[2].split()
    assert "waits for" not in run("sessions", "show", "5e55").stdout
    assert run("sessions", "tail", "5e55").stderr == ""
