"""What `tasks pause` and `cancel` say of a run that was claimed before."""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.commands import tasks

CASES = [
    ("pause", {}, "Paused t1."),
    ("pause", {"changed": False, "run": None}, "t1 was paused already."),
    (
        "pause",
        {"run": "waits"},
        "takes place all the same; `pykoclaw-acp tasks cancel t1` prevents",
    ),
    ("pause", {"run": "goes_on", "session": "s1"}, "goes on; `pykoclaw-acp workers stop s1` stops"),
    ("cancel", {}, "Deleted t1."),
    ("cancel", {"run": "cancelled"}, "Deleted t1. Its run had not begun, and does not take place."),
    ("cancel", {"run": "goes_on", "session": "s1"}, "goes on; `pykoclaw-acp workers stop s1`"),
]


@pytest.mark.parametrize(("command", "answer", "said"), CASES)
def test_command_says_what_a_run_does(
    command: str,
    answer: dict[str, Any],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tasks, "ask", lambda *_, **__: {"id": "t1", "task": "t1", **answer})
    getattr(tasks, command)("t1")
    assert said in capsys.readouterr().out
