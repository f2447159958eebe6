"""What commands that change tasks say: of what they changed, of a run that was claimed before."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from pykoclaw_acp.commands import show, tasks

CASES = [
    ("pause", {}, "Paused t1."),
    ("pause", {"changed": False, "run": None}, "t1 was paused already."),
    (
        "pause",
        {"run": "waits"},
        "takes place all the same; `pykoclaw-acp tasks cancel t1` prevents",
    ),
    ("pause", {"run": "goes_on", "session": "s1"}, "goes on; `pykoclaw-acp workers stop s1` stops"),
    ("resume", {"nextRun": None}, "Resumed t1. Next run: never."),
    ("resume", {"changed": False, "nextRun": None}, "t1 was active already. Next run: never."),
    ("cancel", {}, "Cancelled and deleted t1."),
    (
        "cancel",
        {"run": "cancelled"},
        "Cancelled and deleted t1. Its run had not begun, and does not take place.",
    ),
    ("cancel", {"run": "goes_on", "session": "s1"}, "goes on; `pykoclaw-acp workers stop s1`"),
]


@pytest.mark.parametrize(("command", "answer", "said"), CASES)
def test_command_says_what_it_changed(
    command: str,
    answer: dict[str, Any],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tasks, "ask", lambda *_, **__: {"id": "t1", "task": "t1", **answer})
    getattr(tasks, command)("t1")
    assert said in capsys.readouterr().out


TASK: dict[str, Any] = {
    "id": "t1", "conversation": "wa-andy-1@g.us" * 3, "running": False, "status": "active",
    "nextRun": "2026-01-01T00:00:00+00:00", "scheduleType": "cron", "scheduleValue": "0 * * * *",
    "prompt": "word " * 60 + "end",
}  # fmt: skip


def listed(
    task: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What the list of this task alone says."""
    scheduler = {"state": "on", "other": None}
    found = {"tasks": [task], "more": False, "scheduler": scheduler}
    monkeypatch.setattr(tasks, "ask", lambda *_, **__: found)
    tasks.list_all(10, as_json=False)
    return capsys.readouterr().out


@pytest.mark.parametrize("forced", ["", "FORCE_COLOR"])
def test_list_is_whole_in_a_pipe(
    forced: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if forced:
        monkeypatch.setenv(forced, "1")
    said = listed(TASK, monkeypatch, capsys)
    assert TASK["prompt"] in said
    assert TASK["conversation"] in said


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("3600000", "1 h"),
        ("5400000", "90 min"),
        ("1500", "1500 ms"),
        ("soon", "soon"),
        pytest.param("9" * 5000, "9" * 100, id="no number of Python's"),
    ],
)
def test_interval_is_shown_with_its_unit(
    value: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = {**TASK, "scheduleType": "interval", "scheduleValue": value}
    assert re.search(rf"interval {shown}(  |9)", listed(task, monkeypatch, capsys))


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_time_at_edge_of_calendar_is_shown(
    zone: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One row that no zone can show must not hide the others."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for at in ("9999-12-31T23:59:59", "0001-01-01T00:00:00"):
            assert at[:10] in listed({**TASK, "nextRun": at}, monkeypatch, capsys)
        for ms in (-62135596800000, 253402300799000):
            assert show.when(ms)
            assert show.stamp(ms)
        for ms in (10**15, 10**30):
            assert (show.when(ms), show.stamp(ms)) == (f"{ms} ms", f"{ms} ms")
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
