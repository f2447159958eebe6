"""`initialize`: what this agent can do, and nothing that it cannot."""

from __future__ import annotations

from pykoclaw_acp import __version__
from pykoclaw_acp.protocol import lenient
from pykoclaw_acp.protocol.messages import (
    PROTOCOL_VERSION,
    AgentCapabilities,
    Implementation,
    InitializeParams,
    InitializeResult,
)
from pykoclaw_acp.server.connection import Call


async def initialize(call: Call, params: InitializeParams) -> InitializeResult:
    """Answers our own version, whichever was asked for (ACP: never an error, never an unknown number)."""
    client = lenient.decode(bytes(params.client_info), Implementation)
    call.connection.initialized(client)
    return InitializeResult(
        protocol_version=PROTOCOL_VERSION,
        agent_capabilities=AgentCapabilities(),
        agent_info=Implementation(name="pykoclaw-acp", title="pykoclaw", version=__version__),
    )
