"""`pykoclaw-acp demo`: a conversation, SIGKILL of everything in mid-answer, and the conversation again.

With the official Python SDK as its client, on the real Claude CLI and the scripted model, in a temporary home.
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
from pykoclaw_acp.demo.findings import Findings
from pykoclaw_acp.demo.scenes import Scenes
from pykoclaw_acp.demo.show import Page
from pykoclaw_acp.demo.surroundings import Interruption, temporary_home
from pykoclaw_acp.scripted_model.process import ScriptedModel

_COMPLAINTS: Final = 8  # lines of the log that are shown after a fault
_SIGNALLED: Final = 128  # a shell's exit status for a signal is this much more


def main() -> int:
    """Play it. 0 if all was as expected, 1 if not, 128 + n when signal n ended it; nothing of it stays."""
    page, findings, complaints = Page(), Findings(), _Complaints()
    logging.getLogger().addHandler(complaints)
    page.title(
        f"pykoclaw-acp {__version__}: a conversation that survives everything",
        "The real Claude CLI on a scripted model; offline, in a temporary home.",
    )
    facts: list[tuple[str, str]] = []
    with Interruption() as interruption, temporary_home() as home:
        scenes = Scenes(page, findings, home)
        try:
            with ScriptedModel() as model:
                asyncio.run(_play(scenes, model, interruption))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  whatever it was, the table says it
            if interruption.signal is None:
                page.finding(findings.broke(_described(error, scenes)))
                complaints.lines += _server_complaints(scenes.log)
        facts += _facts(scenes, home)
    logging.getLogger().removeHandler(complaints)
    if interruption.signal is not None:
        page.verdict("Interrupted. Its processes are ended, its home is removed.", right=None)
        return _SIGNALLED + interruption.signal
    page.scene(8, "What was seen")
    page.result(findings.rows, facts)
    return _judge(page, findings, complaints.lines)


async def _play(scenes: Scenes, model: ScriptedModel, interruption: Interruption) -> None:
    interruption.cancel_with(asyncio.current_task())
    await scenes.play(model)


def _judge(page: Page, findings: Findings, complaints: list[str]) -> int:
    if findings.passed:
        page.verdict("All as expected. Its processes are ended, its home is removed.", right=True)
        return 0
    page.trouble(complaints[-_COMPLAINTS:])
    for row in findings.wrong:
        page.verdict(f"The step {row.step!r} is wrong. Expected: {row.expected}. Seen: {row.seen}", right=False)
    return 1


def _described(error: BaseException, scenes: Scenes) -> str:
    if isinstance(error, RequestError):
        kind = error.data.get("errorKind") if isinstance(error.data, dict) else None
        return f"{error} (error {error.code}{f', {kind}' if kind else ''})"
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"
    if isinstance(error, ConnectionError):
        return f"the server is gone: {scenes.server_end}"
    return f"{type(error).__name__}: {error}"


def _facts(scenes: Scenes, home: Path) -> Iterator[tuple[str, str]]:
    """Where it was."""
    launched = [line for line in _log_lines(scenes.log) if line.get("action") == "worker_launched"]
    yield "session", scenes.session or "none"
    yield (
        "workers",
        ", ".join(f"epoch {line.get('epoch')} (pid {line.get('worker_pid')})" for line in launched) or "none",
    )
    yield "claude", "/".join(Path(scenes.claude).parts[-3:]) or "not seen"
    yield "home", f"{home}, removed"


def _server_complaints(log: Path) -> list[str]:
    return [
        f"server: {line.get('event')} {line.get('reason') or ''}".rstrip()
        for line in _log_lines(log)
        if line.get("level") not in ("debug", "info")
    ]


def _log_lines(log: Path) -> list[dict[str, Any]]:
    """The server's log; a line that is no JSON is its own event."""
    lines: list[dict[str, Any]] = []
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        try:
            lines.append(json.loads(line))
        except ValueError:
            lines.append({"event": line})
    return lines


class _Complaints(logging.Handler):
    """Keeps what the client library logs: it logs where it could raise, and a terminal is no place for that."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(f"client: {record.getMessage()}" + (f": {error}" if error else ""))
