"""When a task that has run is due again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pykoclaw_acp.model.scheduled import Task


@pytest.mark.parametrize("value", ["0", "-5000", "1000"])
def test_a_minute_at_least_is_between_two_runs(value: str) -> None:
    task = Task("t", "c", "p", "interval", value, "group", None, None, None, None, "active", "x")
    before = datetime.now(UTC)
    assert datetime.fromisoformat(task.after() or "") >= before + timedelta(seconds=60)
