"""`pykoclaw-acp demo`: a conversation, SIGKILLs in mid-answer, and the same conversation
afterwards.

Runs the official Python SDK as client, the real Claude CLI and the scripted model, in a temporary
home.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from acp import RequestError

from pykoclaw_acp import __version__
from pykoclaw_acp.demo import scenes
from pykoclaw_acp.demo.findings import Findings
from pykoclaw_acp.demo.home import Interruption, places, temporary_home
from pykoclaw_acp.demo.show import DemoOutput
from pykoclaw_acp.demo.stage import Stage
from pykoclaw_acp.scripted_model.process import ScriptedModel

_COMPLAINTS: Final = 8  # lines of the log that are shown after a fault
_SIGNALLED: Final = 128  # a shell's exit status for a signal is this much more


def main() -> int:
    """Run the demo. Exit status: 0 as expected, 1 if not, 128 + n after signal n. Everything is
    cleaned up.
    """
    page, findings, complaints = DemoOutput(), Findings(), _Complaints()
    logging.getLogger().addHandler(complaints)
    page.title(
        f"pykoclaw-acp {__version__}: a conversation that survives everything",
        "The real Claude CLI on a scripted model; offline, in a temporary home.",
    )
    facts: list[tuple[str, str]] = []
    with Interruption() as interruption, temporary_home() as home:
        stage = Stage(page, findings, home)
        try:
            with ScriptedModel() as model:
                asyncio.run(_play(stage, model, interruption))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  whatever it was, the table says it
            if interruption.signal is None:
                page.finding(findings.broke(_described(error, stage)))
                complaints.lines += _agent_complaints(stage.log, home)
        facts += _facts(stage, home)
    logging.getLogger().removeHandler(complaints)
    if interruption.signal is not None:
        page.verdict("Interrupted. Its processes are ended, its home is removed.", right=None)
        return _SIGNALLED + interruption.signal
    stage.scene("What was seen")
    page.result(findings.rows, facts)
    return _judge(page, findings, complaints.lines)


async def _play(stage: Stage, model: ScriptedModel, interruption: Interruption) -> None:
    interruption.cancel_with(asyncio.current_task())
    await scenes.play(stage, model)


def _judge(page: DemoOutput, findings: Findings, complaints: list[str]) -> int:
    if findings.passed:
        page.verdict("All as expected. Its processes are ended, its home is removed.", right=True)
        return 0
    page.trouble(complaints[-_COMPLAINTS:])
    for row in findings.wrong:
        page.verdict(
            f"The step {row.step!r} is wrong. Expected: {row.expected}. Seen: {row.seen}",
            right=False,
        )
    return 1


def _described(error: BaseException, stage: Stage) -> str:
    if isinstance(error, RequestError):
        kind = error.data.get("errorKind") if isinstance(error.data, dict) else None
        return f"{error} (error {error.code}{f', {kind}' if kind else ''})"
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"
    if isinstance(error, ConnectionError):
        return f"the front is gone: {stage.front_end}"
    return f"{type(error).__name__}: {error}"


def _facts(stage: Stage, home: Path) -> Iterator[tuple[str, str]]:
    """Versions and places."""
    launched = [line for line in _daemon_log(home) if line.get("action") == "worker_launched"]
    yield "session", stage.session or "none"
    yield (
        "workers",
        ", ".join(f"epoch {line.get('epoch')} (pid {line.get('worker_pid')})" for line in launched)
        or "none",
    )
    yield "claude", "/".join(Path(stage.claude).parts[-3:]) or "not seen"
    yield "home", f"{home}, removed"


def _agent_complaints(fronts: Path, home: Path) -> list[str]:
    said = fronts.read_text(errors="replace").splitlines() if fronts.exists() else []
    return [f"front: {line}" for line in said] + [
        f"daemon: {line.get('event')} {line.get('reason') or ''}".rstrip()
        for line in _daemon_log(home)
        if line.get("level") not in ("debug", "info")
    ]


def _daemon_log(home: Path) -> list[dict[str, Any]]:
    """Log of the daemons; a line that is not JSON becomes an event of its own."""
    log = Path(places(home).log)
    lines: list[dict[str, Any]] = []
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        try:
            lines.append(json.loads(line))
        except ValueError:
            lines.append({"event": line})
    return lines


class _Complaints(logging.Handler):
    """Collects log records of the client library, which logs where it could raise, and would write
    to the terminal.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a record."""
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(f"client: {record.getMessage()}" + (f": {error}" if error else ""))
