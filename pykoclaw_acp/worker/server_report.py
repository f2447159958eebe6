"""What `/mcp` shows and does: the states of MCP servers as Markdown, and another try of one, or an
end to it. The CLI's own answer only counts them, and sends the user to a terminal.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import structlog
from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.worker.server_states import NEEDS_SIGN_IN, PENDING, advice, sign_in_command
from pykoclaw_acp.worker.usage_report import plain

LIMIT: Final = 10.0  # s; for the states
SETTLE: Final = 8.0  # s; for servers that connect as Claude starts
PAUSE: Final = 0.2  # s between two looks at those
TRY_LIMIT: Final = 30.0  # s; for a server to connect
ALL: Final = "all"
LONGEST: Final = 1_000  # characters of a command; nobody has a server with a longer name
_COMMAND: Final = re.compile(r"/mcp(?:\s+(reconnect|enable|disable)(?:\s+(\S.*))?)?")
_STATES: Final = {
    "connected": "connected",
    "failed": "does not work",
    NEEDS_SIGN_IN: "wants a sign-in",
    PENDING: "still connects",
    "disabled": "disabled",
}
_DONE: Final = {"reconnect": "connected anew", "enable": "enabled", "disable": "disabled"}
HINT: Final = (
    "`/mcp reconnect NAME` tries one again. `/mcp disable NAME` ends the use of one in this directory, as in"
    " a terminal, and `/mcp enable NAME` begins it again."
)

log: Final = structlog.get_logger()
Clean = Callable[[str, str], str]
"""An error of a server, by its name, without what may be secret."""


class Report(NamedTuple):
    """What a command shows in place of the CLI's words, which stay for None, and the states of MCP
    servers in it, by name.
    """

    words: str | None
    servers: Mapping[str, str]


NO_REPORT: Final = Report(None, {})


def asked(words: str) -> tuple[str | None, str] | None:
    """What to do, and with which servers, if a prompt's words are this command."""
    words = words.strip()
    found = _COMMAND.fullmatch(words) if len(words) <= LONGEST else None
    return None if found is None else (found[1], found[2] or ALL)


async def report(
    client: ClaudeSDKClient, action: str | None, wanted: str, clean: Clean, account: str
) -> Report:
    """Do `action` with the `wanted` server, then report all, unless the CLI does not know them.
    `account`: of the session.
    """
    try:
        lines = await _do(client, action, wanted, clean) if action else []
        known = await _settled(client)
        words = "\n\n".join([*lines, markdown(known, clean, account)])
        return Report(words, {name: str(one.get("status")) for name, one in known.items()})
    except Exception as error:  # noqa: BLE001  the SDK raises bare ones, and an answer may be another
        log.info("The MCP servers are not known", action="mcp_unknown", why=str(error)[:200])
        return NO_REPORT


def markdown(servers: Mapping[str, Mapping[str, Any]], clean: Clean, account: str) -> str:
    """The states of servers; raises what a value of another type raises."""
    if not servers:
        return "There are no MCP servers in this session."
    rows = "\n".join(_rows(servers, clean, account))
    return f"## MCP servers\n\n| server | state | tools | |\n|---|---|--:|---|\n{rows}\n\n{HINT}"


def _rows(servers: Mapping[str, Mapping[str, Any]], clean: Clean, account: str) -> Iterator[str]:
    for name, one in servers.items():
        state = str(one.get("status"))
        tools = len(one.get("tools") or ()) if state == "connected" else ""
        why = plain(clean(name, str(one.get("error") or "")))
        if state == NEEDS_SIGN_IN:
            why = sign_in_command(name, one, account).rstrip(",")
        elif what := advice(why):
            why = f"{why.rstrip('.')}. {what}."
        yield f"| {plain(name)} | {_STATES.get(state, plain(state))} | {tools} | {why} |"


async def _settled(client: ClaudeSDKClient) -> dict[str, dict[str, Any]]:
    """The servers, when each has connected or cannot, or SETTLE is over."""
    until = time.monotonic() + SETTLE
    while True:
        known = await _known(client)
        if PENDING not in (one.get("status") for one in known.values()) or time.monotonic() > until:
            return known
        await asyncio.sleep(PAUSE)


async def _known(client: ClaudeSDKClient) -> dict[str, dict[str, Any]]:
    async with asyncio.timeout(LIMIT):
        known: Any = await client.get_mcp_status()
    return {str(one["name"]): one for one in known["mcpServers"]}


async def _do(client: ClaudeSDKClient, action: str, wanted: str, clean: Clean) -> list[str]:
    """Do it, and say what became of it."""
    known = await _known(client)
    names = [name for name in known if wanted in (ALL, name)]
    if action == "reconnect" and wanted == ALL:
        names = [name for name in names if known[name].get("status") in ("failed", NEEDS_SIGN_IN)]
    if not names:
        return [f"There is no MCP server {plain(wanted)}." if wanted != ALL else "Nothing to do."]
    return list(await asyncio.gather(*(_do_one(client, action, name, clean) for name in names)))


async def _do_one(client: ClaudeSDKClient, action: str, name: str, clean: Clean) -> str:
    try:
        async with asyncio.timeout(TRY_LIMIT):
            if action == "reconnect":
                await client.reconnect_mcp_server(name)
            else:
                await client.toggle_mcp_server(name, enabled=action == "enable")
    except TimeoutError:
        return f"MCP server {plain(name)}: no answer within {TRY_LIMIT:g} s."
    except Exception as error:  # noqa: BLE001  the SDK raises bare ones
        why = plain(clean(name, str(error)))
        one = (await _known(client)).get(name, {})
        if one.get("status") == NEEDS_SIGN_IN:
            return f"MCP server {plain(name)} wants a sign-in: see below."
        if why and why == plain(clean(name, str(one.get("error") or ""))):
            why = "see below."
        return f"MCP server {plain(name)} could not be {_DONE[action]}{f': {why}' if why else '.'}"
    return f"MCP server {plain(name)} was {_DONE[action]}."
