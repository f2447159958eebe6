"""The MCP servers of a session: pykoclaw's own, those of its plugins, those of the client."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.model.events import Event, note_event
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.worker import pykoclaw_tools
from pykoclaw_acp.worker.database_calls import DatabaseCalls
from pykoclaw_acp.worker.plugins.loading import Complaint, Plugins

STATES: Final = "|"  # in what was told: what follows is of the servers' states
_SDK: Final = "sdk"  # the type of a server that runs in this process


class Servers:
    """Servers by name, of which a later one replaces an earlier: pykoclaw's, then those of plugins
    in their order, then the client's. A client's server does not take pykoclaw's tools away: they
    get another name.
    """

    def __init__(self, spec: LaunchSpec, calls: DatabaseCalls, plugins: Path | None = None) -> None:
        """`plugins`: the file in which it is remembered which plugins can be loaded."""
        self._spec = spec
        self._calls = calls
        self._plugins = Plugins(spec.options.conversation, calls, plugins)
        self._servers: dict[str, Any] = {}
        self._said = set(spec.told.partition(STATES)[0].split())
        self.own = pykoclaw_tools.NAME
        """Name of pykoclaw's own server."""
        self.unasked: list[str] = []
        """Tools that Claude may use without a question."""

    async def load(self) -> None:
        """Load plugins and collect the servers, once."""
        if self._servers:
            return
        await self._plugins.load()
        options = self._spec.options
        clients = {one.name: one.config for one in options.mcp_servers}
        own = pykoclaw_tools.server(options.conversation, self._calls, options.brave_api_key)
        self._servers[pykoclaw_tools.NAME] = own
        for given in self._plugins.servers:
            self._servers.update(given)
        if pykoclaw_tools.NAME in clients:
            self.own = pykoclaw_tools.name_beside({*self._servers, *clients})
            self._servers[self.own] = self._servers.pop(pykoclaw_tools.NAME)
        self._servers.update(clients)
        if self._servers[self.own] is own:
            self.unasked = [f"mcp__{self.own}__{tool}" for tool in pykoclaw_tools.UNASKED]

    @property
    def inside(self) -> dict[str, Any]:
        """Servers that run in this process; their names may be on a command line."""
        return {name: one for name, one in self._servers.items() if one.get("type") == _SDK}

    @property
    def outside(self) -> dict[str, Any]:
        """Servers that Claude starts or connects to; they may hold secrets."""
        return {name: one for name, one in self._servers.items() if one.get("type") != _SDK}

    @property
    def told(self) -> str:
        """Identifies each thing that is wrong with plugins, also to earlier workers of the session;
        empty if nothing ever was.
        """
        return " ".join(sorted(self._said | set(map(_mark, self._plugins.complaints))))

    def notice(self, turn_id: str) -> list[Event]:
        """What to tell the user about plugins, at the end of a turn; nothing twice in a session."""
        new = [one for one in self._plugins.complaints if _mark(one) not in self._said]
        if not new:
            return []
        self._said.update(map(_mark, new))
        return [note_event(f"{turn_id}-plugins", _words(new))]


def _mark(complaint: Complaint) -> str:
    return hashlib.sha256(_words([complaint]).encode()).hexdigest()[:8]


def _words(complaints: Sequence[Complaint]) -> str:
    return "\n\n".join(
        f"**Plugin `{neutral(one.plugin, 'command')}` {neutral(one.what, 'command')}.**"
        + (" The conversation goes on without what it lacks." if one.serious else "")
        for one in complaints
    )
