"""Names for people of MCP servers and their tools. In the name of a tool, that of its server has
`_` for each character that the Messages API does not take.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pykoclaw_acp.model.choices import OF_SERVER
from pykoclaw_acp.translation.texts import one_line

MOST: Final = 100  # characters of a server's name
_NOT_TAKEN: Final = re.compile(r"[^a-zA-Z0-9_-]")


class McpName(NamedTuple):
    """A server, as the user has named it; the name of its tool, and that for people."""

    server: str
    tool: str
    human: str | None = None


@dataclass(slots=True)
class McpNames:
    """Names in one Claude session."""

    _servers: dict[str, str] = field(default_factory=dict)  # by what names of tools have
    tools: dict[str, str] = field(default_factory=dict)  # for people, by call

    def connected(self, listed: object) -> None:
        """The servers of the session, as the CLI lists them."""
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict) and isinstance(name := one.get("name"), str):
                self._servers[in_tools(name)] = one_line(name, MOST)

    def split(self, name: str) -> McpName:
        """The name of a tool, or of all tools of a server; their names may have `__`, too."""
        rest = name.removeprefix(OF_SERVER)
        known = (one for one in self._servers if f"{rest}__".startswith(f"{one}__"))
        part = max(known, key=len, default=rest.partition("__")[0])
        return McpName(self._servers.get(part, part), rest[len(part) :].removeprefix("__"))

    def called(self, call: str, name: str) -> McpName:
        """The tool of this name that a call is about to begin."""
        return self.split(name)._replace(human=self.tools.pop(call, None))


def in_tools(server: str) -> str:
    """A server as names of its tools have it."""
    return _NOT_TAKEN.sub("_", server)
