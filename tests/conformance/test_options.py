"""The suite on an agent that a command line gives."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = (
    "ids_are_echoed_exactly or a_malformed_version_is_invalid or text_is_accepted or login_opens"
)


def examined(fault: str) -> subprocess.CompletedProcess[str]:
    agent = [sys.executable, "-m", "tests.conformance.fake", *([fault] if fault else [])]
    options = ["--agent", shlex.join(agent), "--agent-env", f"PYTHONPATH={ROOT}"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/conformance", *options,
         "--agent-login", "key", "-k", RULES],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("fault", [pytest.param("", marks=pytest.mark.long), "text_is_accepted"])
def test_an_agent_that_is_given_is_examined(fault: str) -> None:
    run = examined(fault)
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == bool(fault), run.stdout
    assert all(fault in line for line in failed)
    assert f"{4 - bool(fault)} passed" in run.stdout
