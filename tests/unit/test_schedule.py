"""When a scheduled task runs next."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from pykoclaw_acp.model.schedule import LONGEST_SCHEDULE, compute_next_run, now_text

BASE = datetime(2025, 12, 31, 10, 0, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("cron", "0 9 * * *", "2026-01-01T09:00:00+00:00"),
        ("cron", "@daily", "2026-01-01T00:00:00+00:00"),
        ("cron", "* * * * * 30", "2025-12-31T10:00:30+00:00"),
        ("cron", "0 0 1 1 * 0 2030", "2030-01-01T00:00:00+00:00"),
        ("interval", "60000", "2025-12-31T10:01:00.000005+00:00"),
        ("interval", "60_000", "2025-12-31T10:01:00.000005+00:00"),
        ("interval", "0", "2025-12-31T10:00:00.000005+00:00"),
        ("interval", "-1000", "2025-12-31T09:59:59.000005+00:00"),
        ("once", "2030-01-01T00:00:00", "2030-01-01T00:00:00"),
        ("once", "junk", "junk"),
        ("sometimes", "1", None),
    ],
)
def test_next_run_is_as_pykoclaw_computes_it(kind: str, value: str, expected: str | None) -> None:
    assert compute_next_run(kind, value, BASE) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("cron", "junk"),
        ("cron", ""),
        ("cron", "0 0 31 2 *"),
        ("cron", ",".join("1" * LONGEST_SCHEDULE) + " * * * *"),
        ("interval", "1.5"),
        ("interval", ""),
        ("interval", "9" * 20),
    ],
)
def test_value_that_cannot_be_used_is_value_error(kind: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        compute_next_run(kind, value, BASE)


def test_next_run_counts_from_now_in_utc() -> None:
    before = now_text()
    computed = compute_next_run("interval", "0")
    assert computed is not None
    assert before <= computed <= now_text()
    assert computed.endswith("+00:00")


def test_cron_library_is_imported_only_when_needed() -> None:
    code = (
        "import sys; from pykoclaw_acp.model.schedule import compute_next_run as c; "
        "c('interval', '5'); assert 'croniter' not in sys.modules; "
        "c('cron', '@daily'); assert 'croniter' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
