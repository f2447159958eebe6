"""`session/new`, `session/load`, `session/resume`, `session/close`."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.link.lines import MAX_NUMBER
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.protocol import projection, replay, session_meta
from pykoclaw_acp.protocol.limits import MAX_PATH
from pykoclaw_acp.protocol.messages import (
    Empty,
    LoadSessionParams,
    NewSessionParams,
    NewSessionResult,
    OpenedState,
    ResumeSessionParams,
    SessionParams,
)
from pykoclaw_acp.server import authenticating, steering
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.given_servers import servers
from pykoclaw_acp.sessions import opening
from pykoclaw_acp.sessions.opening import AFTER, OpenedSession, OpenOptions

# about permission requests while no client is there
AWAY_POLICY: Final = "pykoclaw.dev/awayPolicy"
MAX_DIRECTORIES: Final = 1000


async def new(call: Call, params: NewSessionParams) -> NewSessionResult:
    """Create a session; it is in the database before the response."""
    authenticating.require_login(call.client)
    opened = await opening.create(call.subscriber, options_of(params, params.mcp_servers), call.key)
    state = state_of(call, opened)
    return NewSessionResult(
        session_id=opened.session_id,
        modes=state.modes,
        models=state.models,
        config_options=state.config_options,
    )


async def load(call: Call, params: LoadSessionParams) -> OpenedState:
    """Send the whole history as updates, or its newest turns, then the response."""
    options = options_of(params, params.mcp_servers)
    number, again = call.line.number, call.line.sent_at is not None
    last = replay.last(params.meta)
    opened = await opening.load(
        call.subscriber, params.session_id, options, number=number, again=again, last=last
    )
    state = state_of(call, opened)
    if opened.place is None:
        return state
    window = {"after": opened.place.after, "turnsLeftOut": opened.place.left_out}
    return msgspec.structs.replace(state, meta={replay.REPLAY: window})


async def resume(call: Call, params: ResumeSessionParams) -> OpenedState:
    """Open a session without its history; updates that the client has not seen follow
    the response.
    """
    after, again = _cursor(params), call.line.sent_at is not None
    options = options_of(params, params.mcp_servers or [])
    opened = await opening.resume(
        call.subscriber, params.session_id, options, after=after, again=again
    )
    return state_of(call, opened)


async def close(call: Call, params: SessionParams) -> Empty:
    """End the session's turns and its worker. It can be loaded again; for other clients it stays
    open.
    """
    session = await call.sessions.get(params.session_id)
    await call.sessions.close(session, call.client)
    return Empty()


def options_of(
    params: NewSessionParams | ResumeSessionParams, raw_servers: list[msgspec.Raw]
) -> OpenOptions:
    """The parameters that new, load and resume have in common; raises InvalidParams."""
    cwd = absolute("cwd", params.cwd)
    policy = _away_policy(params)
    requested = session_meta.parse(
        params.meta,
        new=type(params) is NewSessionParams,
        system_prompt=params.system_prompt,
    )
    return OpenOptions(
        cwd,
        directories(params.additional_directories),
        servers(raw_servers),
        policy,
        steering.wanted(params),
        requested,
        authenticating.account(params.meta or {}),
    )


def state_of(call: Call, opened: OpenedSession) -> OpenedState:
    call.follow_ups += opened.follow_ups
    return projection.state(
        opened.selection, legacy_models=call.legacy_models, booleans=call.client.booleans
    )


def _cursor(params: ResumeSessionParams) -> int | None:
    after = (params.meta or {}).get(AFTER)
    if after is None or (
        isinstance(after, int) and not isinstance(after, bool) and 0 <= after <= MAX_NUMBER
    ):
        return after
    raise InvalidParams(
        f"`_meta.{AFTER}`: must be a whole number, the `seq` of the last update that was seen."
    )


def _away_policy(params: NewSessionParams | ResumeSessionParams) -> AwayPolicy | None:
    """The away policy in `_meta`; None if there is none. Raises InvalidParams."""
    wanted = (params.meta or {}).get(AWAY_POLICY)
    for policy in AwayPolicy:
        if policy == wanted:
            return policy
    if wanted is not None:
        raise InvalidParams(f"`_meta.{AWAY_POLICY}`: must be one of {', '.join(AwayPolicy)}.")
    return None


def absolute(name: str, path: str) -> str:
    """Check that a parameter is an absolute path, as long as Linux takes; raises InvalidParams."""
    # what resolves links takes time that grows with the square of the length
    if len(os.fsencode(path)) >= MAX_PATH:
        raise InvalidParams(
            f"`{name}`: is longer than {MAX_PATH - 1:,} bytes, which no path can be."
        )
    if not os.path.isabs(path) or "\0" in path:
        raise InvalidParams(f"`{name}`: must be an absolute path.")
    return path


def directories(paths: list[str] | None) -> tuple[str, ...]:
    """Check that all paths are absolute; raises InvalidParams."""
    if paths is not None and len(paths) > MAX_DIRECTORIES:
        raise InvalidParams(
            f"`additionalDirectories`: are more than {MAX_DIRECTORIES}; name one that holds them."
        )
    return tuple(
        absolute(f"additionalDirectories[{at}]", path) for at, path in enumerate(paths or [])
    )
