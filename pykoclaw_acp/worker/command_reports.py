"""Reports of our own in place of what the CLI says to a command: which command has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.worker import server_report, usage_report
from pykoclaw_acp.worker.server_report import Clean


async def instead_of(
    client: ClaudeSDKClient, content: Sequence[dict[str, Any]], clean: Clean, account: str
) -> str | None:
    """The report for a prompt that is one of these commands; None where the CLI's output stays."""
    words = str(content[0].get("text", "")) if len(content) == 1 else ""
    if words.strip() == usage_report.COMMAND:
        return await usage_report.report(client)
    if (asked := server_report.asked(words)) is not None:
        return await server_report.report(client, *asked, clean, account)
    return None
