"""The line that says which tests were skipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import skips

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest


@pytest.mark.parametrize("number", [1, 2])
def test_clients_on_node(number):
    pytest.skip("there is no node")


@pytest.mark.skipif(True, reason="no systemd")
def test_the_sorted_units():
    pass


@pytest.mark.long
def test_what_lasts_long():
    pass
"""


def test_skips_are_counted_by_reason() -> None:
    reasons = ["Skipped: there is no fish", *["Skipped: no node"] * 2, f"Skipped: {skips.LONG}"]
    assert skips.line(reasons) == "NOT TESTED HERE: 3 tests: 2 × no node; 1 × there is no fish"
    assert skips.line(reasons[-1:]) == ""


def test_run_ends_with_what_was_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    configured = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.conftest", *configured]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "NOT TESTED HERE: 3 tests: 2 × there is no node; 1 × no systemd" in done.stdout
