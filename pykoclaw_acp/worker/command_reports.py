"""Reports of our own in place of what the CLI says to a command: which command has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.model.session_environment import shown
from pykoclaw_acp.worker import server_report, usage_report
from pykoclaw_acp.worker.server_report import NO_REPORT, Report
from pykoclaw_acp.worker.server_states import ServerStates

_LOGINS: Final = {
    "/login": "Run `pykoclaw-acp login --account {}` in a terminal, then send a prompt; nothing needs a restart.",
    "/logout": "Run `pykoclaw-acp logout --account {}` in a terminal.",
}
# Commands of Claude's own terminal, and where they are found here
_ELSEWHERE: Final = {
    "/rewind": "Run `pykoclaw-acp rewind {}` in a terminal; it shows first what it would change.",
    "/export": "Run `pykoclaw-acp sessions export {}` in a terminal.",
    "/resume": "Choose a conversation in your client, or run `pykoclaw-acp sessions list` in a terminal.",
    "/status": "Run `pykoclaw-acp status` in a terminal; `pykoclaw-acp doctor` finds what is wrong.",
    "/permissions": "Run `pykoclaw-acp rules list` in a terminal; questions of Claude offer to make lasting rules.",
    "/add-dir": "Directories beside the session's own are chosen in your client, when it opens the session.",
}


async def instead_of(
    client: ClaudeSDKClient,
    content: Sequence[dict[str, Any]],
    states: ServerStates,
    session_id: str,
) -> Report:
    """The report for a prompt, which is none unless it is one of these commands."""
    words = _words(content)
    name = words.strip().partition(" ")[0]
    if (elsewhere := _ELSEWHERE.get(name)) is not None and not await _has(client, name):
        return Report(elsewhere.format(session_id[:8]), {})
    if (login := _LOGINS.get(words.strip())) is not None:
        return Report(login.format(shown(states.account)), {})
    if words.strip() == usage_report.COMMAND:
        return Report(await usage_report.report(client), {})
    if (asked := server_report.asked(words)) is not None:
        clean = states.without_secrets
        return await server_report.report(client, *asked, clean, states.account)
    return NO_REPORT


def _words(content: Sequence[dict[str, Any]]) -> str:
    return str(content[0].get("text", "")) if len(content) == 1 else ""


async def _has(client: ClaudeSDKClient, command: str) -> bool:
    info = await client.get_server_info() or {}
    return any(f"/{one.get('name')}" == command for one in info.get("commands") or ())
