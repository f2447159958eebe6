"""The handlers of `_pykoclaw.dev/mcp/…`: the MCP servers that clients have given, from memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.protocol.control.mcp import FindParams, FoundServers, GivenServer, SignInTarget
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.sessions.registry import Sessions


class McpControl:
    """What an operator may ask about the servers of sessions that are in memory."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """The dispatch table of these methods."""
        return {
            "_pykoclaw.dev/mcp/list": Method(Params, self.list_all, before_initialize=True),
            "_pykoclaw.dev/mcp/find": Method(FindParams, self.find, before_initialize=True),
        }

    async def list_all(self, call: Call, params: Params) -> list[GivenServer]:  # noqa: ARG002
        """The servers by name and address, each once."""
        found = Counter((one.name, one.transport, _address(one)) for _, one in self._given())
        return [
            GivenServer(name=name, transport=transport, address=address, sessions=count)
            for (name, transport, address), count in sorted(found.items())
        ]

    async def find(self, call: Call, params: FindParams) -> FoundServers:  # noqa: ARG002
        """Web servers of this name or address as Claude is configured with them, each once."""
        found: dict[bytes, SignInTarget] = {}
        own = os.environ.get("CLAUDE_CONFIG_DIR")
        for account, one in self._given():
            if one.url and params.server in (one.name, one.url, _address(one)):
                place = self._sessions.daemon_environment.configuration(account) or own
                target = SignInTarget(name=one.name, config=one.config, claude_config_dir=place)
                found[msgspec.json.encode(target)] = target
        return FoundServers(servers=list(found.values()), claude_config_dir=own)

    def _given(self) -> Iterator[tuple[str, McpServer]]:
        """The servers, each with the account of its session."""
        for session in self._sessions.live.values():
            for one in session.options.mcp_servers:
                yield session.environment.account, one


def _address(one: McpServer) -> str:
    """The address without user and query; of a program its path."""
    if not one.url:
        return one.command
    parts = urlsplit(one.url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
