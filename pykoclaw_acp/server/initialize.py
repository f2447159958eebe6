"""`initialize`; the answer is in link/greeting.py."""

from __future__ import annotations

from typing import Any

from pykoclaw_acp.link.greeting import greeting
from pykoclaw_acp.protocol.messages import InitializeParams
from pykoclaw_acp.server.call import Call


async def initialize(call: Call, params: InitializeParams) -> dict[str, Any]:
    """The answer, which is the same for every client."""
    call.client.initialized(params)
    return greeting()
