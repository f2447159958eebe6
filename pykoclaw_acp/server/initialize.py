"""`initialize`; the answer is in link/greeting.py."""

from __future__ import annotations

from typing import Any

import msgspec

from pykoclaw_acp.link.greeting import greeting
from pykoclaw_acp.model.session_environment import shown
from pykoclaw_acp.protocol.messages import InitializeParams
from pykoclaw_acp.server.call import Call


async def initialize(call: Call, params: InitializeParams) -> dict[str, Any]:
    """The answer: the same for every client, but for the ways to log in."""
    call.client.initialized(params)
    given = call.client.given
    account = None if given is None or given.account is None else shown(given.account)
    return greeting(_decoded(params.client_capabilities), account)


def _decoded(raw: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
