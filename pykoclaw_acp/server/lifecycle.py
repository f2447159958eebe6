"""`session/new`, `load`, `resume`, `close`: answered from the database; none of them starts a worker."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

import msgspec

from pykoclaw_acp.channel.options import McpStdio
from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.link.lines import MAX_NUMBER
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.protocol.jsonrpc import decode_params
from pykoclaw_acp.protocol.messages import (
    Empty,
    LoadSessionParams,
    McpServer,
    NewSessionParams,
    NewSessionResult,
    ResumeSessionParams,
    SessionParams,
    SessionState,
)
from pykoclaw_acp.server import selection
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.subscription import Subscription

AFTER: Final = "pykoclaw.dev/after"
AWAY_POLICY: Final = "pykoclaw.dev/awayPolicy"  # about permission questions while no client is there
MAX_SERVERS: Final = 200
MAX_DIRECTORIES: Final = 1000
PLACE_WAIT: Final = 0.2  # s; for a client's place in the session to be kept, if the database takes it


async def new(call: Call, params: NewSessionParams) -> NewSessionResult:
    """A session; its row is committed before the answer."""
    cwd = _absolute("cwd", params.cwd)
    policy = _away_policy(params)
    if not await asyncio.to_thread(os.path.isdir, cwd):
        raise InvalidParams("`cwd`: there is no such directory.")
    session = await call.sessions.create(
        cwd,
        directories(params.additional_directories),
        servers(params.mcp_servers),
        request_key=call.key,
        client=call.connection.name,
    )
    if policy is not None:
        await call.sessions.set_away_policy(session.id, policy)
    call.connection.following(session, session.id)
    await call.sessions.confirmations.written(PLACE_WAIT)
    call.warm()
    state = await selection.opened(call, session, session.id)
    return NewSessionResult(
        session_id=session.id, modes=state.modes, models=state.models, config_options=state.config_options
    )


async def load(call: Call, params: LoadSessionParams) -> SessionState:
    """The whole history as updates, then the answer."""
    session = await _reopen(call, params, params.mcp_servers)
    told = session.last_seq
    if call.line.sent_at is not None and call.connection.loaded.get(params.session_id) == call.line.number:
        subscription = call.connection.following(session, params.session_id)  # its front has part of the replay
    else:
        await call.connection.claim(session, params.session_id, upto=session.last_seq)
        subscription = call.connection.subscribe(session, params.session_id, after=0, number=call.line.number)
    try:
        await subscription.reached(told)
    except BaseException:
        subscription.close()
        raise
    await call.sessions.confirmations.written(PLACE_WAIT)
    return await selection.opened(call, session, params.session_id)


async def resume(call: Call, params: ResumeSessionParams) -> SessionState:
    """Open a session without its history: what the client has not seen yet follows the answer.

    That is what comes after `_meta["pykoclaw.dev/after"]`, or else after what this instance of the client has
    confirmed, or one of its name that has ended.
    """
    after = _cursor(params)
    session = await _reopen(call, params, params.mcp_servers or [])
    follows = call.connection.follows(params.session_id)
    if call.line.sent_at is not None and follows:
        pass  # its front stands further on already
    elif after is not None:
        if after > session.last_seq:
            raise InvalidParams(f"`_meta.{AFTER}`: the session's log ends before that.", {"lastSeq": session.last_seq})
        start = await call.sessions.place(session, params.session_id, after)
        await call.connection.claim(session, params.session_id, upto=start)
        call.connection.subscribe(session, params.session_id, start)
    elif not follows:
        seen = await call.connection.claim(session, params.session_id)
        start = session.last_seq if seen is None else seen
        missed = start < session.last_seq or session.busy
        hold = call.connection.traits.catch_up_pause if missed else 0
        subscription = call.connection.subscribe(session, params.session_id, start, hold=hold)
        if missed and call.connection.traits.ends_lines:
            subscription.loose_end = True
            call.follow_ups.append(lambda: _end_line(session, subscription))
    await call.sessions.confirmations.written(PLACE_WAIT)
    return await selection.opened(call, session, params.session_id)


async def _end_line(session: Session, subscription: Subscription) -> None:
    """In a turn that the client did not ask for, it sees no end of the text (ClientTraits.ends_lines)."""
    await session.idle()
    await subscription.reached(session.last_seq)
    if subscription.alive and not session.busy:
        await subscription.end_line()


async def close(call: Call, params: SessionParams) -> Empty:
    """Ends the session's turns and its worker; its history stays, and it can be loaded again."""
    session = await call.sessions.get(params.session_id)
    await call.sessions.close(session)
    return Empty()


async def _reopen(call: Call, params: LoadSessionParams | ResumeSessionParams, raw: list[msgspec.Raw]) -> Session:
    cwd = _absolute("cwd", params.cwd)
    policy = _away_policy(params)
    further, mcp = directories(params.additional_directories), servers(raw)
    session = await call.sessions.get(params.session_id)
    known = session.record.cwd
    if known is not None and not await asyncio.to_thread(_same_place, known, cwd):
        raise InvalidParams("`cwd`: the session belongs to another directory.", {"sessionCwd": known})
    await call.sessions.reopen(session, cwd, further, mcp)
    session.unclaimed.client_came(call.connection.name)
    if policy is not None:
        await call.sessions.set_away_policy(session.id, policy)
    call.warm()
    return session


def _cursor(params: ResumeSessionParams) -> int | None:
    after = (params.meta or {}).get(AFTER)
    if after is None or (isinstance(after, int) and not isinstance(after, bool) and 0 <= after <= MAX_NUMBER):
        return after
    raise InvalidParams(f"`_meta.{AFTER}`: must be a whole number, the `seq` of the last update that was seen.")


def _away_policy(params: NewSessionParams | ResumeSessionParams) -> AwayPolicy | None:
    """The policy that the client wants; None: it says nothing of it."""
    wanted = (params.meta or {}).get(AWAY_POLICY)
    for policy in AwayPolicy:
        if policy == wanted:
            return policy
    if wanted is not None:
        raise InvalidParams(f"`_meta.{AWAY_POLICY}`: must be one of {', '.join(AwayPolicy)}.")
    return None


def _same_place(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _absolute(name: str, path: str) -> str:
    if not os.path.isabs(path) or "\0" in path:
        raise InvalidParams(f"`{name}`: must be an absolute path.")
    return path


def directories(paths: list[str] | None) -> tuple[str, ...]:
    """The paths; raises InvalidParams unless all are absolute."""
    if paths is not None and len(paths) > MAX_DIRECTORIES:
        raise InvalidParams(f"`additionalDirectories`: are more than {MAX_DIRECTORIES}; name one that holds them.")
    return tuple(_absolute(f"additionalDirectories[{at}]", path) for at, path in enumerate(paths or []))


def servers(raw: list[msgspec.Raw]) -> tuple[McpStdio, ...]:
    """The MCP servers; raises InvalidParams."""
    if len(raw) > MAX_SERVERS:
        raise InvalidParams(f"`mcpServers`: are more than {MAX_SERVERS}; give a session those that it needs.")
    taken: dict[str, McpStdio] = {}
    for at, one in enumerate(raw):
        place = f"mcpServers[{at}]"
        if _transport(bytes(one)) not in (None, "stdio"):
            raise InvalidParams(f"`{place}.type`: this agent connects to stdio servers only.")
        server = decode_params(bytes(one), McpServer, place)
        if server.name in taken:
            raise InvalidParams(f"`{place}.name`: two servers have the same name.")
        environment = {variable.name: variable.value for variable in server.env}
        taken[server.name] = McpStdio(server.name, server.command, server.args, environment)
    return tuple(taken.values())


class _Transport(msgspec.Struct):
    type: Any = None


def _transport(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw, type=_Transport).type
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
