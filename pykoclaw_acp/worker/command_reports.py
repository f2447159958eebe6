"""Reports of our own in place of what the CLI says to a command: which command has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.model.session_environment import shown
from pykoclaw_acp.worker import server_report, usage_report
from pykoclaw_acp.worker.server_report import Clean

_LOGINS: Final = {
    "/login": "Run `pykoclaw-acp login --account {}` in a terminal, then send a prompt; nothing needs a restart.",
    "/logout": "Run `pykoclaw-acp logout --account {}` in a terminal.",
}


def shows_servers(content: Sequence[dict[str, Any]]) -> bool:
    """Whether the report for this prompt says the states of MCP servers."""
    return server_report.asked(_words(content)) is not None


async def instead_of(
    client: ClaudeSDKClient, content: Sequence[dict[str, Any]], clean: Clean, account: str
) -> str | None:
    """The report for a prompt that is one of these commands; None where the CLI's output stays."""
    words = _words(content)
    if (login := _LOGINS.get(words.strip())) is not None:
        return login.format(shown(account))
    if words.strip() == usage_report.COMMAND:
        return await usage_report.report(client)
    if (asked := server_report.asked(words)) is not None:
        return await server_report.report(client, *asked, clean, account)
    return None


def _words(content: Sequence[dict[str, Any]]) -> str:
    return str(content[0].get("text", "")) if len(content) == 1 else ""
