"""`_pykoclaw.dev/mcp/…`: the MCP servers that clients have given."""

from __future__ import annotations

from typing import Any, Literal

from pykoclaw_acp.protocol.control.answers import FullAnswer
from pykoclaw_acp.protocol.limits import Name
from pykoclaw_acp.protocol.wire import Params


class GivenServer(FullAnswer, frozen=True, kw_only=True):
    """A server, and of how many sessions; `address`: where it is, without what may be secret."""

    name: str
    transport: Literal["stdio", "http", "sse"]
    address: str
    sessions: int


class FindParams(Params, frozen=True, kw_only=True):
    """The `name` of a server, or its address."""

    server: Name


class SignInTarget(FullAnswer, frozen=True, kw_only=True):
    """A server as Claude is configured with it, secrets included. `claude_config_dir`: as in
    FoundServers, of the account of its session.
    """

    name: str
    config: dict[str, Any]
    claude_config_dir: str | None


class FoundServers(FullAnswer, frozen=True, kw_only=True):
    """`claude_config_dir`: where Claude keeps what it knows; null: in its usual place."""

    servers: list[SignInTarget]
    claude_config_dir: str | None
