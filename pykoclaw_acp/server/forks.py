"""`session/fork`."""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.protocol.messages import ForkSessionParams, ForkSessionResult
from pykoclaw_acp.server import authenticating, meta
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.lifecycle import options_of, state_of
from pykoclaw_acp.sessions import opening

MESSAGE: Final = "pykoclaw.dev/messageId"
FORKED: Final = "pykoclaw.dev/forkedFrom"
OPTIONS: Final = (
    "A fork has the system prompt and the options of its source, but for what is forbidden or asked"
    " about. Give others with `session/load` of the fork."
)
MAX_ID: Final = 256  # characters


async def fork(call: Call, params: ForkSessionParams) -> ForkSessionResult:
    """A session of its own with the history of another one, up to its last complete turn, or to the
    turn of the message that `_meta` names.
    """
    authenticating.require_login(call.client)
    options = options_of(params, params.mcp_servers or [])
    if options.requested.given.keys() - {"forbids_bypass", "ask_tools"}:
        raise InvalidParams(OPTIONS)
    message_id = meta.text(params, MESSAGE, MAX_ID)  # the id that its updates carry
    opened = await opening.fork(
        call.subscriber, params.session_id, options, call.key, message_id=message_id
    )
    state = state_of(call, opened)  # without `models`, which were gone when forks came to ACP
    at = opened.forked_at
    assert at is not None
    told = {
        "sessionId": params.session_id,
        "seq": at.upto,
        "runningTurnLeftOut": not at.complete,
    }
    return ForkSessionResult(
        session_id=opened.session_id,
        modes=state.modes,
        config_options=state.config_options,
        meta={FORKED: told},
    )
