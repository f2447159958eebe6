"""The event loop's lag: measured, kept for a minute, and named in the log."""

from __future__ import annotations

import asyncio
import gc
import re
import warnings

import pytest
import structlog

from pykoclaw_acp.commands.status import loop_lag
from pykoclaw_acp.long_texts import finished
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.server import lag
from pykoclaw_acp.server.lag import WINDOW, LoopLag
from pykoclaw_acp.system import threads
from tests.waiting import eventually


def hold_up(measured: LoopLag) -> None:
    """Work without end on texts, until the watcher has seen this round do so."""
    while not measured.seen:
        finished(prompt_text.fingerprint([{"type": "text", "text": "x" * 10_000}]))


def test_what_holds_the_loop_up_is_named() -> None:
    measured = LoopLag(limit=0.02)

    async def serve() -> None:
        hold_up(measured)
        await asyncio.sleep(0)

    async def main() -> None:
        for _ in range(5):  # on a busy machine a round may be seen before it has come so far
            await asyncio.get_running_loop().create_task(serve(), name="session/prompt")
        await asyncio.get_running_loop().create_task(serve())

    with structlog.testing.capture_logs() as lines:
        measured.run(main())
    blocked = [line for line in lines if line["action"] == "loop_blocked"]
    place = re.compile(r"pykoclaw_acp\.(model\.prompt_text|long_texts)\.\w+")
    named = (line for line in blocked if line["task"] == "session/prompt")
    first = next(line for line in named if place.match(line["place"]))
    second = next(line for line in blocked if line["task"].endswith("serve"))
    assert first["log_level"] == "warning"
    assert second["log_level"] == "warning"
    assert first["seconds"] >= 0.02
    assert 0 < first["cpu"] <= first["seconds"] + 0.1
    assert measured.worst() >= 0.02


def test_call_that_holds_gil_is_named_too() -> None:
    measured = LoopLag(limit=0.02)

    async def main() -> None:
        while not measured.seen:
            re.fullmatch("(?:a?){18}a{18}", "a" * 18)  # no thread runs meanwhile
        await asyncio.sleep(0)

    with structlog.testing.capture_logs() as lines:
        measured.run(main())
    # On a busy machine the end of the loop may be late as well.
    assert any(line["task"].endswith("main") for line in lines)


def test_waiting_loop_is_not_late_and_watcher_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykoclaw_acp.server.lag.LOOK", 0.01)
    measured = LoopLag(limit=5)  # s; a wait is longer than it seems on a busy machine

    async def main() -> None:
        await eventually(lambda: not measured.seen)
        await asyncio.get_running_loop().run_in_executor(None, _until_resting, measured)
        assert lines == []
        measured.limit = 0.02
        hold_up(measured)  # the watcher wakes up for it
        await asyncio.sleep(0)

    with structlog.testing.capture_logs() as lines:
        measured.run(main())
    assert lines[-1]["action"] == "loop_blocked"


def _until_resting(measured: LoopLag) -> None:
    from tests.waiting import eventually_sync

    eventually_sync(lambda: measured.resting)


def test_the_worst_of_the_last_minute_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("pykoclaw_acp.server.lag.time.monotonic", lambda: now)
    measured = LoopLag(limit=10)
    for began, took in ((1000.0, 0.1), (1000.2, 0.3), (1000.6, 0.2), (1010.0, 0.05)):
        now = began
        measured.begins()
        now = began + took
        measured.ends()
    assert measured.worst() == pytest.approx(0.3)
    now = 1000 + WINDOW + 1
    assert measured.worst() == pytest.approx(0.05)
    now = 1010 + WINDOW + 1
    assert measured.worst() == 0
    measured.begins()
    now += 7
    assert measured.worst() == 7, "a round that goes on counts"


def test_status_shows_lag_or_that_it_is_unmeasured() -> None:
    assert loop_lag({"loopLag": 12.4}) == "at most 12 ms in the last minute"
    assert loop_lag({}) == "not measured"


def test_loop_that_cannot_start_leaves_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    async def main(_: LoopLag) -> None:
        raise AssertionError("there is no loop to run it")

    monkeypatch.setattr(threads, "started", refuse)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="new thread"):
            lag.run(main)
        gc.collect()
    assert [str(one.message) for one in said] == []
