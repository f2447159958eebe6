"""Reports of our own in place of what the CLI says to a command: which command has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.model.session_environment import shown
from pykoclaw_acp.worker import server_report, usage_report
from pykoclaw_acp.worker.server_report import NO_REPORT, Clean, Report

_LOGINS: Final = {
    "/login": "Run `pykoclaw-acp login --account {}` in a terminal, then send a prompt; nothing needs a restart.",
    "/logout": "Run `pykoclaw-acp logout --account {}` in a terminal.",
}


async def instead_of(
    client: ClaudeSDKClient, content: Sequence[dict[str, Any]], clean: Clean, account: str
) -> Report:
    """The report for a prompt, which is none unless it is one of these commands."""
    words = _words(content)
    if (login := _LOGINS.get(words.strip())) is not None:
        return Report(login.format(shown(account)), {})
    if words.strip() == usage_report.COMMAND:
        return Report(await usage_report.report(client), {})
    if (asked := server_report.asked(words)) is not None:
        return await server_report.report(client, *asked, clean, account)
    return NO_REPORT


def _words(content: Sequence[dict[str, Any]]) -> str:
    return str(content[0].get("text", "")) if len(content) == 1 else ""
