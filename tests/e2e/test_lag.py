"""A daemon that keeps everybody waiting says so: in its log, with what it was that ran, and in its
status.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

from pykoclaw_acp.front import call
from tests.e2e.harness import Stack
from tests.e2e.late_daemon import SECONDS
from tests.waiting import eventually

REPOSITORY: Final = Path(__file__).parents[2]
LATE: Final = (sys.executable, "-m", "tests.e2e.late_daemon")


def blocked(stack: Stack) -> list[dict[str, Any]]:
    """What its log tells of calls that held it up."""
    lines = (stack.root / "daemon.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if '"loop_blocked"' in line]
    return [line for line in found if line["task"] == "_pykoclaw.dev/sessions/list"]


async def test_loop_lag_cause_is_in_log_and_status(stack: Stack) -> None:
    await stack.daemon(program=LATE, PYTHONPATH=str(REPOSITORY))
    await asyncio.to_thread(
        call.call, stack.places, "_pykoclaw.dev/sessions/list", {"all": True, "limit": 1}
    )
    (line,) = await eventually(lambda: blocked(stack))
    assert line["place"].startswith("pykoclaw_acp.server.session_control.SessionControl.list_all:")
    assert line["level"] == "warning"
    assert line["seconds"] >= SECONDS
    assert line["cpu"] < line["seconds"]
    status = await asyncio.to_thread(call.call, stack.places, "_pykoclaw.dev/status", {})
    assert status["daemon"]["loopLag"] >= SECONDS * 1000
